package console

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/hex"
	"hash/fnv"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/postlane-go/postlane/internal/keys"
)

//go:embed assets templates
var files embed.FS

// frame is what surrounds every page.
type frame struct {
	Title string
	// Active is the section of the page in the navigation.
	Active string
	// Who is nil where nobody is signed in.
	Who   *keys.Caller
	Token string
	Theme string
	// Notice is what an action has just done.
	Notice string
	// Tenant is the one that an operator chose, "" for all.
	Tenant string
	// Database is the one whose console this is, of Databases, where there are several and
	// the visitor may choose.
	Database  string
	Databases []string
	// Replica tells an operator how far behind the replica is.
	Replica string
	// Here is the page's address, Path that without its parameters.
	Here, Path string
	Nav        []navigation
	// Body is what the page is about.
	Body any
}

type navigation struct{ Label, Path, Section string }

// Operator reports whether the visitor sees all tenants.
func (f *frame) Operator() bool { return f.Who != nil && f.Who.Operator() }

// Writes reports whether the visitor may change anything.
func (f *frame) Writes() bool { return f.Who != nil && f.Who.Scope == keys.Write }

// Themes are the colours to choose from.
func (f *frame) Themes() []string { return []string{"auto", "light", "dark"} }

// Shown is the theme that is chosen.
func (f *frame) Shown() string { return cmp.Or(f.Theme, "auto") }

// AllTenants reports whether the page shows things of several tenants.
func (f *frame) AllTenants() bool { return f.Operator() && f.Tenant == "" }

// SectionPath is the list that the page belongs to, for all tenants.
func (f *frame) SectionPath() string {
	if f.Active == "overview" {
		return Root
	}
	return Root + f.Active
}

func (c *Console) frame(r *http.Request, v *visit) *frame {
	f := &frame{Here: r.URL.RequestURI(), Path: r.URL.Path}
	if r.Method != http.MethodGet {
		f.Here = Root
	}
	if cookie, err := r.Cookie(themeCookie); err == nil && (cookie.Value == "light" || cookie.Value == "dark") {
		f.Theme = cookie.Value
	}
	if v == nil || v.who == nil {
		return f
	}
	f.Who, f.Token, f.Notice = v.who, v.token, v.notice()
	if v.operator() {
		f.Tenant, f.Database, f.Databases = v.tenant(), c.Database, c.Databases
		f.Replica = c.replicaState()
	}
	f.Nav = []navigation{
		{"Overview", v.path(""), "overview"},
		{"Endpoints", v.path("endpoints"), "endpoints"},
		{"Deliveries", v.path("deliveries"), "deliveries"},
		{"Dead letters", v.path("dead"), "dead"},
		{"Streams", v.path("streams"), "streams"},
		{"Event types", v.path("event-types"), "event-types"},
	}
	if v.operator() {
		f.Nav = append(f.Nav, navigation{"Outbox", v.path("outbox"), "outbox"}, navigation{"Keys", v.path("keys"), "keys"})
	}
	f.Nav = append(f.Nav, navigation{"Audit log", v.path("audit"), "audit"})
	return f
}

// replicaState is how the replica is, in words; "" where there is none.
func (c *Console) replicaState() string {
	if c.Replica == nil {
		return ""
	}
	lag, read := c.Replica.State()
	switch {
	case !read:
		return "The replica is not read, but the primary"
	case lag < time.Second:
		return "Read from the replica, less than a second behind"
	}
	return "Read from the replica, " + lag.Round(time.Second).String() + " behind"
}

// page answers with a page.
func (v *visit) page(name, section, title string, body any) error {
	f := v.frame(v.r, v)
	f.Active, f.Title, f.Body = section, title, body
	v.write(v.w, http.StatusOK, name, f)
	return nil
}

// retype answers an action with its form, which says what cannot be in it.
func (v *visit) retype(p *problem, name, section, title string, form any) error {
	v.entry.Status, v.entry.Outcome = p.status, p.code
	f := v.frame(v.r, v)
	f.Active, f.Title, f.Body = section, title, form
	v.write(v.w, p.status, name, f)
	return nil
}

// write makes a page and answers with it, whole or not at all.
func (c *Console) write(w http.ResponseWriter, status int, name string, f *frame) {
	var b bytes.Buffer
	if err := pages[name].ExecuteTemplate(&b, "layout", f); err != nil {
		c.Logger.Error("a page could not be made", "page", name, "error", err)
		http.Error(w, "Something went wrong here. The server's log tells more.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the browser is gone if this fails
}

// pages are the templates by name, each with the layout and the parts that pages share.
var pages = func() map[string]*template.Template {
	made := map[string]*template.Template{}
	base := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	entries, err := files.ReadDir("templates")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".html")
		if name != "layout" && name != "parts" {
			made[name] = template.Must(template.Must(base.Clone()).ParseFS(files, "templates/"+e.Name()))
		}
	}
	return made
}()

// version names the files of this build, so that browsers keep them until they change.
var version = func() string {
	h := fnv.New64a()
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		content, err := files.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // they are embedded
		}
		_, _ = h.Write(content) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}()

func serveAsset(name, contentType string) http.Handler {
	content, err := files.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // they are embedded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "no-cache")
		if r.URL.Query().Get("v") == version {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}
