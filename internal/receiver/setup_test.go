package receiver

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	secretA = "whsec_4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8="
	secretB = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
)

// noon is when every test request arrives.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// testBundle is a receiver and its requests, sent without a network.
type testBundle struct {
	*Receiver
	is *is.I
}

func setup(t testing.TB, config Config) *testBundle {
	t.Helper()
	is := is.New(t)
	if config.Now == nil {
		config.Now = func() time.Time { return noon }
	}
	r, err := New(config)
	is.NoErr(err)
	return &testBundle{r, is}
}

// hook is one request to be; its zero value is a correct one, the first of the
// stream without an asset on /hook.
type hook struct {
	path      string // default: /hook
	id        string // default: msg_SEQ
	seq       int64  // default: 1
	prev      int64
	asset     string // "": absent
	attempt   int    // default: 1
	body      string // default: {}
	timestamp time.Time
	secret    string // "": signed with a key that nobody knows
	change    func(http.Header)
}

func (h hook) request() *http.Request {
	if h.path == "" {
		h.path = "/hook"
	}
	if h.seq == 0 {
		h.seq = 1
	}
	if h.id == "" {
		h.id = "msg_" + strconv.FormatInt(h.seq, 10)
	}
	if h.attempt == 0 {
		h.attempt = 1
	}
	if h.body == "" {
		h.body = "{}"
	}
	if h.timestamp.IsZero() {
		h.timestamp = noon
	}
	req := httptest.NewRequest(http.MethodPost, h.path, strings.NewReader(h.body))
	req.Header = http.Header{
		headerID:        {h.id},
		headerTimestamp: {strconv.FormatInt(h.timestamp.Unix(), 10)},
		headerSignature: {h.signature()},
		headerType:      {"order.paid"},
		headerSeq:       {strconv.FormatInt(h.seq, 10)},
		headerAttempt:   {strconv.Itoa(h.attempt)},
	}
	if h.prev != 0 {
		req.Header[headerPrev] = []string{strconv.FormatInt(h.prev, 10)}
	}
	if h.asset != "" {
		req.Header[headerAsset] = []string{h.asset}
	}
	if h.change != nil {
		h.change(req.Header)
	}
	return req
}

func (h hook) signature() string {
	secret := h.secret
	if secret == "" {
		secret = "whsec_bm9ib2R5IGtub3dzIHRoaXMga2V5LCBpdCBpcyBub25l"
	}
	w, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		panic(err)
	}
	s, err := w.Sign(h.id, h.timestamp, []byte(h.body))
	if err != nil {
		panic(err)
	}
	return s
}

// send returns the status that the receiver answers.
func (b *testBundle) send(h hook) int { return b.serve(h.request()) }

func (b *testBundle) serve(req *http.Request) int {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, req)
	return w.Code
}

// behave sets a Behaviour that must be right.
func (b *testBundle) behave(path string, behaviour Behaviour) {
	b.is.Helper()
	b.is.NoErr(b.Behave(path, behaviour))
}
