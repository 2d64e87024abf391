package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds a step of a browser in a test, far above what it takes.
const patience = time.Minute

// lacks skips a test that needs a tool which is not there, or fails it where the whole
// suite has to run.
func lacks(t testing.TB, format string, arguments ...any) {
	t.Helper()
	if os.Getenv("POSTLANE_TEST_COMPLETE") != "" {
		t.Fatalf(format, arguments...)
	}
	t.Skipf(format, arguments...)
}

// chromium is one browser for all tests of this process; each has a profile of its own
// in it.
var chromium = struct {
	once  sync.Once
	ctx   context.Context
	close func()
	err   error
}{}

func openBrowser() (context.Context, error) {
	b := &chromium
	b.once.Do(func() {
		path := ""
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
			if found, err := exec.LookPath(name); err == nil {
				path = found
				break
			}
		}
		if path == "" {
			b.err = errors.New("no Chromium: install the package chromium")
			return
		}
		allocator, stop := chromedp.NewExecAllocator(context.Background(),
			chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
			chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
			chromedp.Flag("force-color-profile", "srgb"))
		ctx, quit := chromedp.NewContext(allocator)
		if err := chromedp.Do(ctx); err != nil {
			b.err = fmt.Errorf("chromium does not start: %w", err)
		}
		b.ctx = ctx
		b.close = func() {
			_ = chromedp.Cancel(ctx) // waits for it to end
			quit()
			stop()
		}
	})
	return b.ctx, b.err
}

func closeBrowser() {
	if chromium.close != nil {
		chromium.close()
	}
}

// browser is a tab with cookies of its own, which remembers what went wrong in it.
type browser struct {
	*site
	tab context.Context
	mu  sync.Mutex
	// wrong is what the page's console said, and what its policy refused.
	wrong []string
}

func (s *site) browser() *browser {
	s.t.Helper()
	root, err := openBrowser()
	if err != nil {
		lacks(s.t, "%v", err)
	}
	b := &browser{site: s}
	ctx, cancel := chromedp.NewContext(root, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	s.t.Cleanup(cancel)
	b.tab = ctx
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the context that opens it
		s.t.Fatalf("the browser opens no tab: %v", err)
	}
	call(b, audits.Enable, cdp.Empty{})
	call(b, log.Enable, cdp.Empty{})
	b.size(1280, 900)
	return b
}

// step runs one step in the tab, and fails the test with what the page shows if it fails
// or does not end.
func step[R any](b *browser, what string, f func(context.Context) (R, error)) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.tab, patience)
	defer cancel()
	r, err := f(ctx)
	if err != nil {
		look, cancel := context.WithTimeout(b.tab, patience/4)
		defer cancel()
		shown, e := chromedp.Run(look, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText", chromedp.EvalAwaitPromise))
		if e != nil {
			shown = e.Error()
		}
		b.t.Fatalf("the browser, %s: %v\nshows %s", what, err, shown)
	}
	return r
}

// call makes a call of the browser's protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return step(b, "a call", func(ctx context.Context) (R, error) { return chromedp.Call(ctx, command, params) })
}

func (b *browser) hear(event any) {
	said := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		said = fmt.Sprintf("exception: %+v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			said = fmt.Sprintf("console %s", e.Type)
			for _, a := range e.Args {
				said += fmt.Sprintf(" %s %s", a.Value, a.Description)
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			said = fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *audits.EventIssueAdded:
		if d, err := json.Marshal(e.Issue); err == nil {
			said = "issue: " + string(d)
		}
	case *page.EventJavascriptDialogOpening:
		said = "dialog: " + e.Message
		go func() { _, _ = chromedp.Call(b.tab, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}) }()
	}
	if said != "" {
		b.mu.Lock()
		b.wrong = append(b.wrong, said)
		b.mu.Unlock()
	}
}

// clean fails the test if anything went wrong in the tab since it was last asked.
func (b *browser) clean(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrong {
		b.t.Errorf("%s: %s", where, w)
	}
	b.wrong = nil
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	step(b, "an action", func(ctx context.Context) (any, error) { return nil, chromedp.Do(ctx, actions...) })
}

func (b *browser) size(width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
}

func (b *browser) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// see opens a page.
func (b *browser) see(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url + Root + strings.TrimPrefix(path, Root)))
}

// text is what the page says.
func (b *browser) text() string {
	b.t.Helper()
	return value[string](b, "document.querySelector('main').innerText")
}

func (b *browser) says(texts ...string) {
	b.t.Helper()
	got := b.text()
	for _, want := range texts {
		if !strings.Contains(got, want) {
			b.t.Errorf("the page does not say %q:\n%s", want, got)
		}
	}
}

// value is that of an expression in the page.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	return step(b, "an expression", func(ctx context.Context) (T, error) {
		return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	})
}

// press presses a button and waits for the page that follows, which must be a good one.
func (b *browser) press(selector string) {
	b.t.Helper()
	b.pressed(selector, 200)
}

func (b *browser) pressed(selector string, status int64) {
	b.t.Helper()
	// A click by the pointer is tried again by chromedp when the page has left before the
	// browser confirmed it, and then waits for ever. So the script clicks, on what the
	// pointer would hit, and the next page is known by what it has not.
	click := fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect(), hit = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
		if (!e.contains(hit)) throw new Error("covered by " + hit?.outerHTML.slice(0, 100));
		window.pressed = true;
		e.click();
		return true;
	})()`, selector)
	step(b, "pressing "+selector, func(ctx context.Context) (bool, error) {
		if err := chromedp.Do(ctx, chromedp.WaitVisible(chromedp.CSS(selector))); err != nil {
			return false, err
		}
		return chromedp.Run(ctx, chromedp.Evaluate[bool](click, func(p *runtime.EvaluateParams) { p.UserGesture = new(true) }))
	})
	answered := step(b, "the page after "+selector, func(ctx context.Context) (int64, error) {
		for {
			answered, err := chromedp.Run(ctx, chromedp.Evaluate[int64](
				`window.pressed || document.readyState !== "complete" ? 0 : performance.getEntriesByType("navigation")[0].responseStatus`))
			if answered != 0 || ctx.Err() != nil {
				return answered, errors.Join(err, ctx.Err())
			}
			select { // between two pages an expression may fail
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	if answered != status {
		b.t.Fatalf("pressing %s: answered %d: %s", selector, answered, b.text())
	}
}

// forget takes what was meant to go wrong from what did.
func (b *browser) forget(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = slices.DeleteFunc(b.wrong, func(w string) bool { return strings.Contains(w, what) })
}

func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.run(chromedp.SetValue(chromedp.CSS(selector), text))
}

func (b *browser) signIn(key string) {
	b.t.Helper()
	b.see("sign-in")
	b.run(chromedp.SendKeys(chromedp.CSS("#key"), key))
	b.press("button.main")
}

// fits fails the test if the page has to be moved sideways.
func (b *browser) fits(where string) {
	b.t.Helper()
	if over := value[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		widest := value[string](b, `[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5)
			.map(e => e.tagName + '.' + e.className + ': ' + e.textContent.trim().slice(0, 40)).join('; ')`)
		b.t.Errorf("%s is %v pixels too wide: %s", where, over, widest)
	}
}

// accessible fails the test unless axe finds nothing wrong with the page.
func (b *browser) accessible(where string) {
	b.t.Helper()
	source, err := axe()
	if err != nil {
		lacks(b.t, "axe-core cannot be installed: %v", err)
	}
	value[bool](b, source+"; true")
	found := value[string](b, `axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations.map(v =>
		v.id + ': ' + v.help + '\n  ' + v.nodes.slice(0, 5).map(n => n.html.slice(0, 200) + '  ' + n.failureSummary.replace(/\n/g, ' ')).join('\n  '))))`)
	var list []string
	b.is.NoErr(json.Unmarshal([]byte(found), &list))
	for _, v := range list {
		b.t.Errorf("%s: %s", where, v)
	}
}

// picture saves what the page looks like, where somebody wants to look.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("POSTLANE_TEST_PICTURES")
	if dir == "" {
		return
	}
	whole := call(b, page.GetLayoutMetrics, cdp.Empty{}).CSSContentSize
	yes := true
	shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: &yes, Clip: &page.Viewport{Width: whole.Width, Height: min(whole.Height, 4000), Scale: 1},
	})
	b.is.NoErr(os.MkdirAll(dir, 0o755))
	b.is.NoErr(os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o600))
}

// axe returns the source of axe-core, from the npm package that testdata/axe names,
// installed beside the user's other caches.
var axe = sync.OnceValues(func() (string, error) {
	lock, err := os.ReadFile("testdata/axe/package-lock.json")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	final := filepath.Join(cache, "postlane", "axe-"+hex.EncodeToString(sum[:4]))
	script := filepath.Join(final, "node_modules/axe-core/axe.min.js")
	if source, err := os.ReadFile(script); err == nil {
		return string(source), nil
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", err
	}
	// Installed aside and moved: another test run may be doing the same.
	dir, err := os.MkdirTemp(filepath.Dir(final), "axe-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS("testdata/axe")); err != nil {
		return "", err
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if said, err := install.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(said)))
	}
	if err := os.Rename(dir, final); err != nil {
		if _, e := os.Stat(script); e != nil {
			return "", err
		}
	}
	source, err := os.ReadFile(script)
	return string(source), err
})
