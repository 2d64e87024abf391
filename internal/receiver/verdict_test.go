package receiver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestVerdictBeforeAnything(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	text, err := json.Marshal(b.Verdict())
	b.is.NoErr(err)
	b.is.Equal(string(text), `{"requests":0,"events":0,"accepted":0,"streams":0,"open":0,"abandoned":0,`+
		`"duplicates":0,"redelivered":0,"unverified":0,`+
		`"overlaps":0,"out_of_order":0,"gaps":0,"conflicting":0,"bad_signatures":0,"bad_timestamps":0,"bad_headers":0,"unread":0,`+
		`"first":null,"last":null,"examples":[]}`)
	b.is.True(b.Verdict().OK())
}

func TestFirstAndLast(t *testing.T) {
	t.Parallel()
	now := noon
	b := setup(t, Config{Now: func() time.Time { return now }})
	b.send(hook{path: "/a"})
	now = noon.Add(time.Second)
	b.send(hook{path: "/b"})
	v := b.Verdict()
	b.is.Equal(*v.First, noon)
	b.is.Equal(*v.Last, now)
	b.is.Equal(*b.VerdictOf("/b").First, now)
}

// A flood of one kind of problem leaves room for another, and no example holds
// a payload or a secret.
func TestExamples(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Examples: 3, Secrets: map[string][]string{"/signed": {secretA}}})
	for i := range int64(10) {
		b.send(hook{path: "/gaps", seq: 10 * (i + 1), prev: 5, asset: "A-17", body: `{"card":"4111"}`})
	}
	b.send(hook{path: "/late", seq: 5})
	b.send(hook{path: "/late", seq: 4, id: "msg_late\x1b[31m"})
	b.send(hook{path: "/signed", secret: secretB})
	v := b.Verdict()
	b.is.Equal(v.Gaps, int64(10))
	b.is.Equal(len(v.Examples), 5)
	b.is.Equal(v.Examples[0], "gap: /gaps asset=A-17 seq=10 prev=5 id=msg_10 attempt=1: highest seq before it in its stream is 0")
	b.is.Equal(v.Examples[3], `out_of_order: /late asset=- seq=4 prev=0 id="msg_late\x1b[31m" attempt=1: highest seq before it in its stream is 5`)
	b.is.Equal(b.VerdictOf("/late").Examples, v.Examples[3:4])
	all := strings.Join(v.Examples, "\n")
	b.is.True(!strings.Contains(all, "4111"))
	b.is.True(!strings.Contains(all, "v1,"))
	b.is.True(!strings.Contains(all, strings.TrimPrefix(secretA, "whsec_")))
}

func TestReport(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.send(hook{path: "/a"})
	b.send(hook{path: "/b", seq: 7, prev: 3})
	for path, want := range map[string]Verdict{"/": b.Verdict(), "/a": b.VerdictOf("/a"), "/b": b.VerdictOf("/b"), "/c": b.VerdictOf("/c")} {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		b.is.Equal(w.Code, 200)
		b.is.Equal(w.Header().Get("Content-Type"), "application/json")
		var got Verdict
		b.is.NoErr(json.Unmarshal(w.Body.Bytes(), &got))
		b.is.Equal(got, want)
	}
	b.is.Equal(b.VerdictOf("/a").Gaps, int64(0))
	b.is.Equal(b.VerdictOf("/b").Gaps, int64(1))
	b.is.Equal(b.VerdictOf("/c").Requests, int64(0))
	b.is.Equal(b.Verdict().Requests, int64(2)) // asking is no request, and makes no endpoint
	b.is.Equal(len(b.endpoints.all()), 2)
}

func TestCompare(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.behave("/b", Behaviour{Status: 500})
	for i := range int64(5) {
		b.send(hook{path: "/a", seq: i + 1, prev: i})
		b.send(hook{path: "/b", seq: i + 1, prev: i})
	}
	ids := func(from, to int) (ids []string) {
		for i := from; i <= to; i++ {
			ids = append(ids, fmt.Sprint("msg_", i))
		}
		return ids
	}
	b.is.Equal(b.Lost(map[string][]string{"/a": ids(1, 5)}), map[string][]string{})
	b.is.Equal(b.Lost(map[string][]string{"/a": ids(4, 6), "/b": ids(1, 1), "/c": ids(1, 1)}),
		map[string][]string{"/a": {"msg_6"}, "/b": {"msg_1"}, "/c": {"msg_1"}}) // /b answered 500
	b.is.Equal(b.Phantoms(map[string][]string{"/a": ids(1, 5), "/b": ids(1, 9)}), map[string]int64{})
	b.is.Equal(b.Phantoms(map[string][]string{"/a": append(ids(1, 3), ids(1, 3)...)}), map[string]int64{"/a": 2, "/b": 5})
}

func TestLight(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Light: true, Behaviour: Behaviour{Status: 202}})
	b.is.Equal(b.send(hook{seq: 2}), 202)
	b.is.Equal(b.send(hook{seq: 1}), 202)
	v := b.Verdict()
	b.is.Equal(v.Requests, int64(2))
	b.is.Equal(v.Events, int64(0))
	b.is.Equal(*v.First, noon)
	b.is.True(!v.OK()) // nothing was judged
	b.is.NoErr(b.WaitForRequests(t.Context(), 2))
	b.is.Equal(b.WaitFor(t.Context(), 2), ErrLight)
	text, err := json.Marshal(v)
	b.is.NoErr(err)
	b.is.True(strings.Contains(string(text), `"light":true`))
}
