package receiver

import (
	"testing"

	"github.com/matryer/is"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	type verdict struct{ outOfOrder, gaps int64 }
	for name, test := range map[string]struct {
		hooks  []hook
		config Config
		want   verdict
	}{
		"in order":                         {[]hook{{seq: 3}, {seq: 7, prev: 3}, {seq: 8, prev: 7}}, Config{}, verdict{}},
		"retried":                          {[]hook{{seq: 3}, {seq: 3, attempt: 2}, {seq: 7, prev: 3}}, Config{}, verdict{}},
		"retried after a later one":        {[]hook{{seq: 3}, {seq: 7, prev: 3}, {seq: 3, attempt: 2}, {seq: 8, prev: 7}}, Config{}, verdict{}},
		"one missing":                      {[]hook{{seq: 3}, {seq: 8, prev: 7}, {seq: 9, prev: 8}}, Config{}, verdict{gaps: 1}},
		"swapped":                          {[]hook{{seq: 3}, {seq: 8, prev: 7}, {seq: 7, prev: 3}, {seq: 9, prev: 8}}, Config{}, verdict{outOfOrder: 1, gaps: 1}},
		"same seq, another event":          {[]hook{{seq: 3}, {seq: 3, id: "msg_other"}}, Config{}, verdict{outOfOrder: 1}},
		"prev below the last":              {[]hook{{seq: 3}, {seq: 5, prev: 3}, {seq: 8, prev: 3}}, Config{}, verdict{gaps: 1}},
		"prev absent in mid-stream":        {[]hook{{seq: 3}, {seq: 7}}, Config{}, verdict{gaps: 1}},
		"prev at the beginning":            {[]hook{{seq: 7, prev: 3}}, Config{}, verdict{gaps: 1}},
		"prev at the beginning, MidStream": {[]hook{{seq: 7, prev: 3}, {seq: 8, prev: 7}}, Config{MidStream: true}, verdict{}},
		"one missing later, MidStream":     {[]hook{{seq: 7, prev: 3}, {seq: 9, prev: 8}}, Config{MidStream: true}, verdict{gaps: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, test.config)
			for _, h := range test.hooks {
				b.is.Equal(b.send(h), 200)
			}
			v := b.Verdict()
			b.is.Equal(verdict{v.OutOfOrder, v.Gaps}, test.want)
			b.is.Equal(v.Problems(), test.want.outOfOrder+test.want.gaps) // nothing else is found
			b.is.Equal(v.OK(), test.want == verdict{})
		})
	}
}

// Each path and asset counts by itself, and no asset is a stream of its own.
func TestOrderIsPerStream(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	for _, h := range []hook{
		{seq: 9}, {seq: 8, asset: "a"}, {seq: 7, asset: "b"}, {seq: 6, path: "/other"}, {seq: 5, asset: "a", path: "/other"},
		{seq: 10, prev: 9}, {seq: 11, prev: 8, asset: "a"}, {seq: 12, prev: 7, asset: "b"},
		{seq: 13, prev: 6, path: "/other"}, {seq: 14, prev: 5, asset: "a", path: "/other"},
	} {
		b.is.Equal(b.send(h), 200)
	}
	v := b.Verdict()
	b.is.True(v.OK())
	b.is.Equal(v.Streams, int64(5))
	b.is.Equal(v.Events, int64(10))
	b.is.Equal(b.VerdictOf("/other").Streams, int64(2))
	b.is.Equal(b.VerdictOf("/nowhere").Events, int64(0))
}

// A stream that only saw refused requests leaves nothing behind.
func TestRefusedRequestsOpenNoStream(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	b := setup(t, Config{Secrets: map[string][]string{"/hook": {secretA}}})
	is.Equal(b.send(hook{asset: "a"}), 401)
	is.Equal(b.Verdict().Streams, int64(0))
	is.Equal(b.Verdict().Events, int64(0))
	for i := range b.streams.shards {
		is.Equal(len(b.streams.shards[i].m), 0)
	}
	is.Equal(b.send(hook{asset: "a", secret: secretA}), 200) // and the same id is still a first arrival
	is.Equal(b.Verdict().Duplicates, int64(0))
}
