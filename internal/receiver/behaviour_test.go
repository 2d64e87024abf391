package receiver

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Behaviour: Behaviour{Status: 204}})
	b.is.Equal(b.send(hook{seq: 1}), 204)
	b.behave("/hook", Behaviour{Status: 503, Header: http.Header{"retry-after": {"120"}}})
	w := httptest.NewRecorder()
	b.ServeHTTP(w, hook{seq: 2, prev: 1}.request())
	b.is.Equal(w.Code, 503)
	b.is.Equal(w.Header().Get("Retry-After"), "120")
	b.is.Equal(b.send(hook{path: "/other"}), 204) // as AnyPath
	b.behave(AnyPath, Behaviour{Status: 299})
	b.is.Equal(b.send(hook{path: "/other", seq: 2, prev: 1}), 299)
	b.is.Equal(b.send(hook{seq: 3, prev: 2}), 503) // has its own
	b.is.Equal(b.Verdict().Accepted, int64(3))     // 2xx alone
}

func TestFailFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Behaviour: Behaviour{FailFirst: 2}})
	for _, path := range []string{"/a", "/b"} { // each path by itself
		b.is.Equal(b.send(hook{path: path, attempt: 1}), 500)
		b.is.Equal(b.send(hook{path: path, attempt: 2}), 500)
		b.is.Equal(b.send(hook{path: path, attempt: 3}), 200)
	}
	b.behave("/a", Behaviour{FailFirst: 1, FailStatus: 429, Status: 201})
	b.is.Equal(b.send(hook{path: "/a", seq: 2, prev: 1}), 429)
	b.is.Equal(b.send(hook{path: "/a", seq: 2, prev: 1}), 201)
	b.is.Equal(b.send(hook{path: "/b", seq: 2, prev: 1}), 200)
}

func TestFailFirstUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Behaviour: Behaviour{FailFirst: 10}})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { b.send(hook{seq: int64(i + 1), asset: string(rune('A' + i))}) })
	}
	wg.Wait()
	b.is.Equal(b.Verdict().Accepted, int64(40))
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.behave("/hook", Behaviour{Status: 202, Answer: func(a Arrival) int {
		if a.Attempt < 3 {
			return 502
		}
		return 0
	}})
	b.is.Equal(b.send(hook{attempt: 1}), 502)
	b.is.Equal(b.send(hook{attempt: 2}), 502)
	b.is.Equal(b.send(hook{attempt: 3}), 202)
}

func TestDelay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		behaviour      Behaviour
		light          bool
		atLeast, below time.Duration
	}{
		"none":           {Behaviour{}, false, 0, 1},
		"fixed":          {Behaviour{Delay: time.Second}, false, time.Second, time.Second + 1},
		"random":         {Behaviour{Jitter: time.Second}, false, 0, time.Second},
		"both":           {Behaviour{Delay: time.Minute, Jitter: time.Second}, false, time.Minute, time.Minute + time.Second},
		"fixed in Light": {Behaviour{Delay: time.Second}, true, time.Second, time.Second + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, Config{Behaviour: test.behaviour, Light: test.light})
				start := time.Now()
				b.is.Equal(b.send(hook{}), 200)
				took := time.Since(start)
				b.is.True(took >= test.atLeast)
				b.is.True(took < test.below)
			})
		})
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, Config{})
		release := b.open(t, hook{seq: 1, asset: "a"}, hook{seq: 2, asset: "b"})
		time.Sleep(24 * time.Hour)
		b.is.Equal(b.Verdict().Open, int64(2))
		b.is.Equal(b.Verdict().Accepted, int64(0))
		release()
		b.is.Equal(b.Verdict().Open, int64(0))
		b.is.Equal(b.Verdict().Accepted, int64(2))
	})
}

func TestBehaviourIsChecked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, b := range []Behaviour{
		{Status: 99}, {Status: 100}, {Status: 1000}, {Status: -2}, {FailStatus: 199}, {FailFirst: -1}, {Delay: -1}, {Jitter: -1},
	} {
		_, err := New(Config{Behaviour: b})
		is.True(err != nil)
	}
	r, err := New(Config{Behaviour: Behaviour{Status: Drop, FailStatus: 999}})
	is.NoErr(err)
	is.True(r.Behave("hook", Behaviour{}) != nil)
}
