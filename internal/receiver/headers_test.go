package receiver

import (
	"net/http"
	"testing"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	set := func(name string, values ...string) func(http.Header) {
		return func(h http.Header) {
			h[name] = values
			if len(values) == 0 {
				delete(h, name)
			}
		}
	}
	for name, test := range map[string]struct {
		change func(http.Header)
		want   int64
		status int
	}{
		"complete":              {func(http.Header) {}, 0, 200},
		"without an asset":      {set(headerAsset), 0, 200},
		"without an id":         {set(headerID), 1, 400},
		"empty id":              {set(headerID, ""), 1, 400},
		"two ids":               {set(headerID, "msg_1", "msg_2"), 1, 400},
		"dot in the id":         {set(headerID, "msg.1"), 1, 400},
		"without a timestamp":   {set(headerTimestamp), 1, 400},
		"without a type":        {set(headerType), 1, 200},
		"empty type":            {set(headerType, ""), 1, 200},
		"without an attempt":    {set(headerAttempt), 1, 200},
		"attempt 0":             {set(headerAttempt, "0"), 1, 200},
		"without a seq":         {set(headerSeq), 1, 200},
		"seq with a sign":       {set(headerSeq, "+1"), 1, 200},
		"two seqs":              {set(headerSeq, "1", "2"), 1, 200},
		"prev 0":                {set(headerPrev, "0"), 0, 200},
		"prev unreadable":       {set(headerPrev, "none"), 1, 200},
		"two prevs":             {set(headerPrev, "1", "2"), 1, 200},
		"empty asset":           {set(headerAsset, ""), 1, 200},
		"two assets":            {set(headerAsset, "a", "b"), 1, 200},
		"two faults count once": {func(h http.Header) { delete(h, headerSeq); delete(h, headerType) }, 1, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			b.is.Equal(b.send(hook{asset: "a", change: test.change}), test.status)
			v := b.Verdict()
			b.is.Equal(v.BadHeaders, test.want)
			b.is.Equal(v.Problems(), test.want) // an unreadable seq or prev is not a gap as well
			b.is.Equal(v.Events == 1, test.status == 200)
		})
	}
}

// An empty asset is wrong, and still not the stream of no asset.
func TestEmptyAsset(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.send(hook{seq: 2})
	b.send(hook{seq: 1, change: func(h http.Header) { h[headerAsset] = []string{""} }})
	v := b.Verdict()
	b.is.Equal(v.BadHeaders, int64(1))
	b.is.Equal(v.Problems(), int64(1))
	b.is.Equal(v.Streams, int64(2))
}

// An unreadable prev does not make the next arrival a gap.
func TestOrderAfterAnUnreadablePrev(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.send(hook{seq: 1})
	b.send(hook{seq: 2, change: func(h http.Header) { h[headerPrev] = []string{"?"} }})
	b.send(hook{seq: 3, prev: 2})
	v := b.Verdict()
	b.is.Equal(v.BadHeaders, int64(1))
	b.is.Equal(v.Problems(), int64(1))
}

func TestArrivalFields(t *testing.T) {
	t.Parallel()
	var got Arrival
	var body string
	b := setup(t, Config{Observe: func(a Arrival, b []byte) { got, body = a, string(b) }})
	b.send(hook{seq: 4})
	b.send(hook{seq: 7, prev: 4, attempt: 3, path: "/orders", asset: "A-17", body: `{"a":1}`, id: "msg_x"})
	b.is.Equal(got, Arrival{
		Path: "/orders", ID: "msg_x", Type: "order.paid", Asset: "A-17", HasAsset: true,
		Seq: 7, Prev: 4, Attempt: 3, At: noon, Findings: Gap | Unverified,
	})
	b.is.Equal(body, `{"a":1}`)
	b.is.True(got.First())
	b.is.Equal(got.Findings.String(), "unverified,gap")
	b.send(hook{seq: 4})
	b.is.True(!got.HasAsset)
	b.is.True(!got.First())
}
