package receiver

import (
	"net/http"
	"testing"
)

func TestDuplicates(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.behave("/hook", Behaviour{FailFirst: 1})
	b.is.Equal(b.send(hook{seq: 1}), 500)
	b.is.Equal(b.Verdict().Duplicates, int64(0))
	b.is.Equal(b.Verdict().Accepted, int64(0))

	b.is.Equal(b.send(hook{seq: 1, attempt: 2}), 200) // a retry of what had failed
	b.is.Equal(b.Verdict().Duplicates, int64(1))
	b.is.Equal(b.Verdict().Redelivered, int64(0))

	b.is.Equal(b.send(hook{seq: 1, attempt: 3}), 200) // again, though it had succeeded
	b.is.Equal(b.send(hook{seq: 1, path: "/other"}), 200)
	v := b.Verdict()
	b.is.Equal(v.Duplicates, int64(2))
	b.is.Equal(v.Redelivered, int64(1))
	b.is.Equal(v.Events, int64(2)) // one per path
	b.is.Equal(v.Accepted, int64(2))
	b.is.Equal(v.Requests, int64(4))
	b.is.True(v.OK()) // a duplicate breaks no promise
}

func TestConflicting(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		again hook
		want  int64
	}{
		"identical":         {hook{seq: 1, asset: "a", body: `{"a":1}`, attempt: 2}, 0},
		"another timestamp": {hook{seq: 1, asset: "a", body: `{"a":1}`, timestamp: noon.Add(60e9)}, 0},
		"another body":      {hook{seq: 1, asset: "a", body: `{"a":2}`}, 1},
		"one byte more":     {hook{seq: 1, asset: "a", body: `{"a":1}` + "\n"}, 1},
		"another seq":       {hook{seq: 2, id: "msg_1", prev: 1, asset: "a", body: `{"a":1}`}, 1},
		"another asset":     {hook{seq: 1, asset: "b", body: `{"a":1}`}, 1},
		"no asset":          {hook{seq: 1, body: `{"a":1}`}, 1},
		"another type": {hook{seq: 1, asset: "a", body: `{"a":1}`, change: func(h http.Header) {
			h.Set(headerType, "order.lost")
		}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			b.send(hook{seq: 1, asset: "a", body: `{"a":1}`})
			b.send(test.again)
			v := b.Verdict()
			b.is.Equal(v.Conflicting, test.want)
			b.is.Equal(v.Problems(), test.want)
			b.is.Equal(v.Duplicates, int64(1))
			b.is.Equal(v.Events, int64(1))
		})
	}
}
