package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
)

// loud is a server whose secrets and payloads are marked, and all that it says.
type loud struct {
	t        *testing.T
	is       *is.I
	ctx      context.Context
	program  string
	database string
	env      []string

	cmd     *exec.Cmd
	url     string
	printed buffer
	// served is all that it answered, but for the answers that are there to tell a secret.
	served bytes.Buffer
	browse http.Client

	// secrets are to be nowhere, and private ones neither in what it prints nor in metrics.
	secrets, private map[string]string
}

type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func mark(what string) string { return "mark-" + what + "-" + rand.Text() }

// search fails the test where a mark is, as it is or in another writing.
func search(t *testing.T, where, text string, marks map[string]string) {
	t.Helper()
	for what, m := range marks {
		for _, form := range []string{m, hex.EncodeToString([]byte(m)), base64.RawStdEncoding.EncodeToString([]byte(m)), url.QueryEscape(m)} {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%s is in %s: …%q…", what, where, text[max(0, i-100):min(len(text), i+100)])
				return
			}
		}
	}
}

func newLoud(t *testing.T) *loud {
	t.Helper()
	l := &loud{t: t, is: is.New(t), ctx: t.Context(), program: build(t), database: pgtest.URL(t)}
	secretKey := make([]byte, 32)
	rand.Read(secretKey)
	l.secrets = map[string]string{
		"the operator's key": mark("operator"), "the key of the secrets": base64.StdEncoding.EncodeToString(secretKey), "a payload": mark("payload"),
		"a header's value": mark("header"), "a wrong key": mark("wrong"),
	}
	l.private = map[string]string{"the token of a URL": mark("url"), "an asset": mark("asset")}
	l.env = append(os.Environ(), "POSTLANE_DATABASE_URL="+l.database, "POSTLANE_SECRET_KEY="+l.secrets["the key of the secrets"],
		"POSTLANE_OPERATOR_KEY="+l.secrets["the operator's key"], "POSTLANE_MODE=development", "POSTLANE_RELAY=webhooks")
	jar, err := cookiejar.New(nil)
	l.is.NoErr(err)
	l.browse = http.Client{Jar: jar}
	return l
}

// serve starts the server, and returns when it answers.
func (l *loud) serve() {
	l.t.Helper()
	l.cmd = exec.CommandContext(l.ctx, l.program, "serve", "-listen", "127.0.0.1:0", "-poll", "20ms")
	l.cmd.Env, l.cmd.Stdout = l.env, &l.printed
	stderr, err := l.cmd.StderrPipe()
	l.is.NoErr(err)
	l.is.NoErr(l.cmd.Start())
	address := regexp.MustCompile(`address=(127\.0\.0\.1:\d+)`)
	found := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewReader(io.TeeReader(stderr, &l.printed))
		for {
			line, err := lines.ReadString('\n')
			if m := address.FindStringSubmatch(line); m != nil {
				found <- m[1]
			}
			if err != nil {
				return
			}
		}
	}()
	l.t.Cleanup(func() {
		_ = l.cmd.Process.Kill() // it has ended, unless the test failed
		<-read
		_ = l.cmd.Wait()
	})
	select {
	case a := <-found:
		l.url = "http://" + a
	case <-read:
		l.t.Fatal(l.printed.String())
	}
}

// call makes a request and keeps the answer, unless it is one that tells a secret.
func (l *loud) call(key, method, path, body string, tells bool) (status int, text string) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.ctx, method, l.url+path, strings.NewReader(body))
	l.is.NoErr(err)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	return l.keep(resp, err, tells)
}

func (l *loud) keep(resp *http.Response, err error, tells bool) (status int, text string) {
	l.t.Helper()
	l.is.NoErr(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	l.is.NoErr(err)
	if !tells {
		fmt.Fprintf(&l.served, "%s\n%v\n%s\n", resp.Request.URL.Path, resp.Header, raw)
	}
	return resp.StatusCode, string(raw)
}

// told makes a request whose answer tells a secret, and adds that to what is searched for.
func (l *loud) told(what, field, method, path, body string) map[string]any {
	l.t.Helper()
	status, text := l.call(l.secrets["the operator's key"], method, path, body, true)
	if status >= 300 {
		l.t.Fatalf("%s: %d %s", path, status, text)
	}
	var v map[string]any
	l.is.NoErr(json.Unmarshal([]byte(text), &v))
	l.secrets[what] = strings.TrimPrefix(v[field].(string), "whsec_")
	return v
}

// A server that has secrets and payloads, and endpoints and clients that make trouble, tells
// of them nowhere: not in a log, an answer, a page, a metric, the list of processes, its
// last words or, but for the payloads of events, its database.
func TestNoSecretIsToldAnywhere(t *testing.T) {
	t.Parallel()
	l := newLoud(t)
	l.serve()
	answers := make(chan int, 100)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case status := <-answers:
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "an answer")
		default:
			panic(http.ErrAbortHandler) // hangs up
		}
	}))
	defer endpoint.Close()
	operator := l.secrets["the operator's key"]
	made := l.told("a signing secret", "secret", "POST", "/v1/subscriptions", fmt.Sprintf(`{"tenant":"acme","url":"%s/?token=%s","max_attempts":1,"v1a":true,"headers":{"x-token":%q}}`,
		endpoint.URL, l.private["the token of a URL"], l.secrets["a header's value"]))
	path := "/v1/subscriptions/" + made["id"].(string)
	l.told("a rotated secret", "secret", "POST", path+"/rotate-secret", `{}`)
	l.told("a tenant's key", "key", "POST", "/v1/keys", `{"name":"shop","tenant":"acme","scope":"write"}`)
	tenant := l.secrets["a tenant's key"]

	answers <- 500
	answers <- 200
	for i := range 3 { // one answered badly, one well, one cut off; and then one that is not valid
		event := fmt.Sprintf(`{"events":[{"id":"e%d","type":"a.b","asset":%q,"payload":{"card":%q}}]}`, i, l.private["an asset"]+strconv.Itoa(i), l.secrets["a payload"])
		status, _ := l.call(tenant, "POST", "/v1/events", event, false)
		l.is.Equal(status, 201)
		l.call(tenant, "POST", "/v1/events", event[:len(event)-2], false)
		l.call(tenant, "POST", "/v1/events", strings.Replace(event, `"type"`, `"kind":`+strconv.Quote(l.secrets["a payload"])+`,"type"`, 1), false)
		l.call(tenant, "POST", "/v1/events", strings.Replace(event, `"a.b"`, `"c.d"`, 1), false) // another of the same id
		l.settled(i + 1)
	}
	for _, c := range [][3]string{
		{"PATCH", path, `{"headers":{"x-token":` + strconv.Quote(l.secrets["a header's value"]+"\n") + `}}`},
		{"PATCH", path, `{"headers":{"host":` + strconv.Quote(l.secrets["a header's value"]) + `}}`},
		{"PATCH", path, `{"headers":[` + strconv.Quote(l.secrets["a header's value"]) + `]}`},
		{"PATCH", path, `{"secret":` + strconv.Quote(l.secrets["a signing secret"]) + `}`},
		{"POST", path + "/test", ""},
		{"POST", path + "/deliveries/retry", `{"dry_run":true}`},
	} {
		l.call(tenant, c[0], c[1], c[2], false)
	}
	_, list := l.call(tenant, "GET", path+"/deliveries", "", false)
	pages := []string{"/v1/subscriptions", path, path + "/streams", "/v1/events/e0", "/v1/audit", "/v1/keys", "/metrics", "/readyz", "/healthz", "/openapi.json", "/nowhere"}
	for _, id := range regexp.MustCompile(`dlv_\d+`).FindAllString(list, -1) {
		pages = append(pages, path+"/deliveries/"+id)
	}
	for _, key := range []string{operator, tenant, l.secrets["a wrong key"], ""} {
		for _, page := range pages {
			l.call(key, "GET", page, "", false)
		}
	}
	l.visit(made["id"].(string), operator)
	search(t, "an answer", l.served.String(), l.secrets)
	_, metrics := l.call(operator, "GET", "/metrics", "", false)
	search(t, "the metrics", metrics, l.private)

	processes, err := exec.CommandContext(l.ctx, "ps", "-A", "-o", "args=").Output()
	l.is.NoErr(err)
	l.is.True(strings.Contains(string(processes), l.program))
	search(t, "the list of processes", string(processes), l.secrets)
	l.searchDatabase()

	l.is.NoErr(l.cmd.Process.Signal(syscall.SIGQUIT)) // which makes it print what every goroutine does
	_ = l.cmd.Wait()
	words := l.printed.String()
	l.is.True(strings.Contains(words, "goroutine 1 "))
	search(t, "what it printed", words, l.secrets)
	search(t, "what it printed", words, l.private)
}

// settled waits until so many deliveries are.
func (l *loud) settled(n int) {
	l.t.Helper()
	conn, err := pgx.Connect(l.ctx, l.database)
	l.is.NoErr(err)
	defer conn.Close(l.ctx)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		var settled int
		l.is.NoErr(conn.QueryRow(l.ctx, "SELECT count(*) FROM postlane.settled").Scan(&settled))
		if settled >= n {
			return
		}
	}
}

// visit looks at the console's pages, after somebody could not sign in.
func (l *loud) visit(sub, key string) {
	l.t.Helper()
	token := regexp.MustCompile(`name="token" value="([^"]+)"`)
	for _, with := range []string{l.secrets["a wrong key"], key} {
		resp, err := l.browse.Get(l.url + "/console/sign-in")
		_, page := l.keep(resp, err, false)
		resp, err = l.browse.PostForm(l.url+"/console/sessions", url.Values{"key": {with}, "token": token.FindStringSubmatch(page)[1:]})
		l.keep(resp, err, false)
	}
	for _, page := range []string{"", "endpoints", "endpoints/" + sub, "endpoints/" + sub + "/editing", "deliveries", "dead", "streams", "outbox", "keys", "audit"} {
		resp, err := l.browse.Get(l.url + "/console/" + page)
		status, _ := l.keep(resp, err, false)
		l.is.Equal(status, http.StatusOK)
	}
}

// searchDatabase looks through every row, as somebody with a backup would.
func (l *loud) searchDatabase() {
	l.t.Helper()
	conn, err := pgx.Connect(l.ctx, l.database)
	l.is.NoErr(err)
	defer conn.Close(l.ctx)
	rows, err := conn.Query(l.ctx, "SELECT relname::text FROM pg_class WHERE relnamespace = 'postlane'::regnamespace AND relkind = 'r'")
	l.is.NoErr(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	l.is.NoErr(err)
	for _, table := range tables {
		var text string
		l.is.NoErr(conn.QueryRow(l.ctx, "SELECT coalesce(string_agg(t::text, E'\n'), '') FROM postlane."+table+" t").Scan(&text))
		secrets := map[string]string{}
		for what, m := range l.secrets {
			if what != "a payload" || table != "events" {
				secrets[what] = m
			}
		}
		search(l.t, "the table "+table, text, secrets)
	}
}

// What cannot start, or is refused, says why, and not with what it was told in confidence.
func TestNoSecretIsToldByAnError(t *testing.T) {
	t.Parallel()
	l := newLoud(t)
	password := mark("password")
	l.secrets["the database's password"] = password
	away := "POSTLANE_DATABASE_URL=postgres://somebody:" + password + "@127.0.0.1:1/postlane?connect_timeout=1"
	payload := l.secrets["a payload"]
	for _, c := range []struct {
		env  string
		args []string
	}{
		{away, []string{"serve"}},
		{away, []string{"migrate", "up"}},
		{"POSTLANE_DATABASE_URL=postgres://somebody:" + password + "@[::1/postlane", []string{"serve"}},
		{"POSTLANE_DATABASE_URL=host=127.0.0.1 port=x password=" + password, []string{"serve"}},
		{"POSTLANE_LISTEN_DATABASE_URL=postgres://somebody:" + password + "@[::1/postlane", []string{"serve"}},
		{"POSTLANE_SECRET_KEY=" + l.secrets["a wrong key"], []string{"serve"}},
		{"POSTLANE_OPERATOR_KEY=" + l.secrets["a wrong key"][:19], []string{"serve"}},
		{away, []string{"events", "send", "-tenant", "acme", "-type", "a.b", "-payload", payload}},
		{"", []string{"events", "send", "-tenant", "acme", "-type", "a..b", "-payload", payload}},
		{"", []string{"events", "send", "-tenant", "acme", "-id", "é", "-type", "a.b", "-payload", payload}},
		{"", []string{"subscriptions", "create", "-tenant", "acme", "-url", "ftp://somebody:" + password + "@example.com/"}},
	} {
		cmd := exec.CommandContext(l.ctx, l.program, c.args...)
		cmd.Env = append(l.env, c.env) //nolint:gocritic // the last one counts
		out, err := cmd.CombinedOutput()
		if err == nil || len(out) == 0 {
			t.Errorf("%v: %v: %s", c.args, err, out)
		}
		search(t, strings.Join(c.args[:1], " ")+"'s error", string(out), l.secrets)
		search(t, "an error", string(out), map[string]string{"a short key": l.secrets["a wrong key"][:19]})
	}
}
