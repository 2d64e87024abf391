package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/verify"
)

var noon = time.Unix(1_700_000_000, 0)

// hook is a request as Postlane sends it.
type hook struct {
	id        string
	at        time.Time
	body      string
	asset     string
	seq, prev int64
	secrets   []signing.Secret
	keys      []signing.PrivateKey
	change    func(*http.Request)
}

func (h hook) request() *http.Request {
	if h.id == "" {
		h.id = "evt_" + strconv.FormatInt(h.seq, 10)
	}
	if h.at.IsZero() {
		h.at = noon
	}
	r := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(h.body))
	signature := signing.Sign(nil, h.id, h.at.Unix(), []byte(h.body), h.secrets...)
	for _, k := range h.keys {
		signature = k.Sign(signature, h.id, h.at.Unix(), []byte(h.body))
	}
	r.Header.Set(signing.HeaderID, h.id)
	r.Header.Set(signing.HeaderTimestamp, strconv.FormatInt(h.at.Unix(), 10))
	r.Header.Set(signing.HeaderSignature, string(signature))
	r.Header.Set(verify.HeaderEventType, "invoice.paid")
	r.Header.Set(verify.HeaderAttempt, "2")
	if h.asset != "" {
		r.Header.Set(verify.HeaderAsset, sender.EncodeText(h.asset))
	}
	if h.seq != 0 {
		r.Header.Set(verify.HeaderStreamSeq, strconv.FormatInt(h.seq, 10))
		r.Header.Set(verify.HeaderStreamPrev, strconv.FormatInt(h.prev, 10))
	}
	if h.change != nil {
		h.change(r)
	}
	return r
}

type bundle struct {
	is     *is.I
	secret signing.Secret
	*verify.Verifier
}

func setup(t *testing.T, config verify.Config) *bundle {
	t.Helper()
	b := &bundle{is: is.New(t)}
	var err error
	b.secret, err = signing.Generate(0)
	b.is.NoErr(err)
	config.Secrets = append(config.Secrets, b.secret.Reveal())
	if config.Now == nil {
		config.Now = func() time.Time { return noon }
	}
	b.Verifier, err = verify.New(config)
	b.is.NoErr(err)
	return b
}

// send gives a hook that is signed as it should be to a handler.
func (b *bundle) send(h hook, next http.HandlerFunc) *httptest.ResponseRecorder {
	h.secrets = append(h.secrets, b.secret)
	w := httptest.NewRecorder()
	b.Handler(next).ServeHTTP(w, h.request())
	return w
}

func TestHeaderNamesAreTheSenders(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(
		[]string{verify.HeaderEventType, verify.HeaderAttempt, verify.HeaderAsset, verify.HeaderStreamSeq, verify.HeaderStreamPrev},
		[]string{sender.HeaderEventType, sender.HeaderAttempt, sender.HeaderAsset, sender.HeaderStreamSeq, sender.HeaderStreamPrev},
	)
}

func TestAGoodRequestReachesTheHandler(t *testing.T) {
	t.Parallel()
	b := setup(t, verify.Config{Scope: "acme"})
	body := "{\"a\": 1}\n\x00\xff"
	var got *verify.Delivery
	w := b.send(hook{seq: 7, prev: 3, asset: "invoice 1%ü", body: body}, func(w http.ResponseWriter, r *http.Request) {
		again, err := io.ReadAll(r.Body)
		b.is.NoErr(err)
		b.is.Equal(string(again), body) // the handler may read the body itself
		got, _ = verify.From(r.Context())
		w.WriteHeader(http.StatusAccepted)
	})
	b.is.Equal(w.Code, http.StatusAccepted)
	b.is.Equal(got, &verify.Delivery{
		ID: "evt_7", Timestamp: noon, Body: []byte(body), EventType: "invoice.paid", Asset: "invoice 1%ü",
		Attempt: 2, StreamSeq: 7, StreamPrev: 3, Order: verify.Next, Scope: "acme",
	})
	_, ok := verify.From(context.Background())
	b.is.True(!ok)
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	stranger, err := signing.Generate(0)
	if err != nil {
		t.Fatal(err)
	}
	without := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	body := func(text string) func(*http.Request) {
		return func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
		}
	}
	for name, c := range map[string]struct {
		hook   hook
		want   error
		status int
	}{
		"no id":             {hook{change: without(signing.HeaderID)}, signing.ErrMissingHeader, 400},
		"no timestamp":      {hook{change: without(signing.HeaderTimestamp)}, signing.ErrMissingHeader, 400},
		"no signature":      {hook{change: without(signing.HeaderSignature)}, signing.ErrMissingHeader, 400},
		"a signed number":   {hook{change: set(signing.HeaderTimestamp, "+1700000000")}, signing.ErrTimestamp, 400},
		"another id":        {hook{change: set(signing.HeaderID, "evt_other")}, signing.ErrNoMatch, 401},
		"another body":      {hook{body: "{}", change: body("{ }")}, signing.ErrNoMatch, 401},
		"another timestamp": {hook{change: set(signing.HeaderTimestamp, "1700000001")}, signing.ErrNoMatch, 401},
		"another version":   {hook{change: set(signing.HeaderSignature, "v2,AAAA")}, signing.ErrNoMatch, 401},
		"too old":           {hook{at: noon.Add(-301 * time.Second)}, signing.ErrTooOld, 401},
		"too new":           {hook{at: noon.Add(301 * time.Second)}, signing.ErrTooNew, 401},
		"too large, says so": {
			hook{body: strings.Repeat("x", 101)}, verify.ErrTooLarge, 413,
		},
		"too large, says nothing": {hook{body: strings.Repeat("x", 101), change: func(r *http.Request) { r.ContentLength = -1 }}, verify.ErrTooLarge, 413},
		"cut off":                 {hook{change: func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(cut{}), -1 }}, verify.ErrBody, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, verify.Config{MaxBody: 100})
			c.hook.secrets = []signing.Secret{stranger, b.secret}
			_, err := b.Read(c.hook.request())
			b.is.True(errors.Is(err, c.want))
			b.is.Equal(verify.Status(err), c.status)
			w := b.send(c.hook, func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
			b.is.Equal(w.Code, c.status)
			b.is.True(strings.Contains(w.Body.String(), c.want.Error()))
		})
	}
	b := setup(t, verify.Config{})
	_, err = b.Read(hook{secrets: []signing.Secret{stranger}}.request())
	b.is.True(errors.Is(err, signing.ErrNoMatch))
	for _, at := range []time.Duration{-300 * time.Second, 300 * time.Second} {
		_, err = b.Read(hook{at: noon.Add(at), secrets: []signing.Secret{b.secret}}.request())
		b.is.NoErr(err)
	}
	exact := setup(t, verify.Config{MaxBody: 100})
	_, err = exact.Read(hook{body: strings.Repeat("x", 100), secrets: []signing.Secret{exact.secret}}.request())
	exact.is.NoErr(err)
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestSeveralSecretsAndBothSchemes(t *testing.T) {
	t.Parallel()
	private := signing.GeneratePrivateKey()
	old, err := signing.Generate(0)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := signing.Generate(0)
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, verify.Config{
		Secrets: []string{private.Public().String(), " " + old.Reveal() + "\n"},
		Keys: func(r *http.Request) ([]signing.Key, error) {
			if r.Header.Get("fail") != "" {
				return nil, errors.New("the vault is away")
			}
			return []signing.Key{elsewhere}, nil
		},
	})
	for _, h := range []hook{
		{secrets: []signing.Secret{b.secret}}, {secrets: []signing.Secret{old}}, {secrets: []signing.Secret{elsewhere}},
		{secrets: []signing.Secret{elsewhere, old}}, {keys: []signing.PrivateKey{private}},
		{secrets: []signing.Secret{b.secret}, keys: []signing.PrivateKey{signing.GeneratePrivateKey()}},
	} {
		_, err := b.Read(h.request())
		b.is.NoErr(err)
	}
	_, err = b.Read(hook{keys: []signing.PrivateKey{signing.GeneratePrivateKey()}}.request())
	b.is.True(errors.Is(err, signing.ErrNoMatch))
	_, err = b.Read(hook{change: func(r *http.Request) { r.Header.Set("fail", "1") }}.request())
	b.is.True(errors.Is(err, verify.ErrUnavailable))
	b.is.Equal(verify.Status(err), 503)
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	good, err := signing.Generate(0)
	is.NoErr(err)
	for _, c := range []verify.Config{
		{},
		{Secrets: []string{""}},
		{Secrets: []string{good.Reveal(), "hunter2"}},
		{Secrets: []string{"whpk_AAAA"}},
		{Secrets: []string{good.Reveal()}, Tolerance: -1},
		{Secrets: []string{good.Reveal()}, Tolerance: time.Millisecond},
		{Secrets: []string{good.Reveal()}, MaxBody: -1},
	} {
		_, err := verify.New(c)
		is.True(err != nil)
		is.True(!strings.Contains(err.Error(), "hunter2") && !strings.Contains(err.Error(), good.Reveal()))
	}
}

func TestAnEventIsHandledOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, verify.Config{})
	calls := 0
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			calls++
			if status != 0 {
				w.WriteHeader(status)
			}
		}
	}
	b.is.Equal(b.send(hook{seq: 1}, answer(500)).Code, 500)
	b.is.Equal(b.send(hook{seq: 1}, answer(302)).Code, 302) // no success either
	b.is.Equal(calls, 2)
	func() {
		defer func() { b.is.Equal(recover(), "out of memory") }()
		b.send(hook{seq: 1}, func(http.ResponseWriter, *http.Request) { panic("out of memory") })
	}()
	b.is.Equal(b.send(hook{seq: 1}, answer(0)).Code, 200)
	b.is.Equal(calls, 3)
	b.is.Equal(b.send(hook{seq: 1}, answer(500)).Code, 200) // answered without the handler
	b.is.Equal(b.send(hook{seq: 1, at: noon.Add(time.Minute)}, answer(500)).Code, 200)
	b.is.Equal(calls, 3)
	b.is.Equal(b.send(hook{seq: 2, prev: 1}, answer(204)).Code, 204)
	b.is.Equal(calls, 4)
}

func TestAnEventThatIsBeingHandledIsNotHandledTwice(t *testing.T) {
	t.Parallel()
	b := setup(t, verify.Config{})
	b.send(hook{seq: 1}, func(w http.ResponseWriter, _ *http.Request) {
		again := b.send(hook{seq: 1}, func(http.ResponseWriter, *http.Request) { t.Error("handled twice") })
		b.is.Equal(again.Code, http.StatusConflict)
		fmt.Fprint(w, "done")
		// The sender may see the answer from here on.
		again = b.send(hook{seq: 1}, func(http.ResponseWriter, *http.Request) { t.Error("handled twice") })
		b.is.Equal(again.Code, http.StatusOK)
	})
}

func TestOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, verify.Config{})
	order := func(h hook) (o verify.Order) {
		o = -1
		b.send(h, func(w http.ResponseWriter, r *http.Request) {
			d, _ := verify.From(r.Context())
			o = d.Order
			if d.Asset == "fails" {
				w.WriteHeader(500)
			}
		})
		return o
	}
	b.is.Equal(order(hook{seq: 4, prev: 2, asset: "a"}), verify.Next) // nothing is known of a yet
	b.is.Equal(order(hook{seq: 9, prev: 4, asset: "a"}), verify.Next)
	b.is.Equal(order(hook{seq: 12, prev: 11, asset: "a"}), verify.Gap) // 11 never came
	b.is.Equal(order(hook{seq: 11, prev: 9, asset: "a"}), verify.Late) // it was revived
	b.is.Equal(order(hook{seq: 13, prev: 12, asset: "a"}), verify.Next)
	b.is.Equal(order(hook{seq: 15, prev: 10, asset: "a"}), verify.Next) // the sender has forgotten 13

	b.is.Equal(order(hook{seq: 3, asset: "b"}), verify.Next) // another stream
	b.is.Equal(order(hook{seq: 20}), verify.Next)            // the stream without asset
	b.is.Equal(order(hook{id: "evt_plain"}), verify.Unordered)

	b.is.Equal(order(hook{seq: 30, asset: "fails"}), verify.Next)
	b.is.Equal(order(hook{seq: 30, asset: "fails"}), verify.Next) // failing does not move the stream

	for _, broken := range [][2]string{{"x", "0"}, {"0", "0"}, {"5", ""}, {"5", "-1"}, {"5", "5"}, {"", "4"}} {
		b.is.Equal(order(hook{id: "evt_broken" + broken[0] + broken[1], change: func(r *http.Request) {
			r.Header.Set(verify.HeaderStreamSeq, broken[0])
			r.Header.Set(verify.HeaderStreamPrev, broken[1])
		}}), verify.Unordered)
	}
	b.is.Equal(fmt.Sprint(verify.Next, verify.Gap, verify.Late, verify.Unordered), "next gap late unordered")
}

func TestScopesShareAStore(t *testing.T) {
	t.Parallel()
	store := verify.NewMemory(verify.MemoryConfig{})
	a, b := setup(t, verify.Config{Store: store, Scope: "a"}), setup(t, verify.Config{Store: store, Scope: "b"})
	calls := 0
	for _, v := range []*bundle{a, b, a, b} {
		v.send(hook{seq: 1}, func(http.ResponseWriter, *http.Request) { calls++ })
	}
	a.is.Equal(calls, 2)
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, verify.Config{Store: verify.NewMemory(verify.MemoryConfig{MaxEvents: 3, MaxStreams: 2})})
	handled := func(h hook) (o verify.Order, called bool) {
		b.send(h, func(_ http.ResponseWriter, r *http.Request) {
			d, _ := verify.From(r.Context())
			o, called = d.Order, true
		})
		return o, called
	}
	for seq := range int64(4) {
		_, called := handled(hook{seq: seq + 1, asset: strconv.FormatInt(seq, 10)})
		b.is.True(called)
	}
	_, called := handled(hook{seq: 4, asset: "3"})
	b.is.True(!called)
	o, called := handled(hook{seq: 1, asset: "0"}) // both forgotten
	b.is.True(called)
	b.is.Equal(o, verify.Next)
	o, _ = handled(hook{id: "evt_late", seq: 2, asset: "3"})
	b.is.Equal(o, verify.Late) // not forgotten
}

// failing is a store that is away.
type failing struct{ begin, end error }

func (f failing) Begin(context.Context, *verify.Delivery) (verify.Known, error) {
	return verify.Known{}, f.begin
}
func (f failing) End(context.Context, *verify.Delivery, bool) error { return f.end }

func TestAStoreThatFails(t *testing.T) {
	t.Parallel()
	away := errors.New("no connection")
	b := setup(t, verify.Config{Store: failing{begin: away}})
	w := b.send(hook{seq: 1}, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	b.is.Equal(w.Code, http.StatusServiceUnavailable)

	var log bytes.Buffer
	b = setup(t, verify.Config{Store: failing{end: away}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w = b.send(hook{seq: 1}, func(http.ResponseWriter, *http.Request) {})
	b.is.Equal(w.Code, http.StatusOK) // the work is done
	b.is.True(strings.Contains(log.String(), "evt_1") && strings.Contains(log.String(), "no connection"))
}

func TestErrorsAreAnsweredAsTheReceiverLikes(t *testing.T) {
	t.Parallel()
	var got error
	b := setup(t, verify.Config{OnError: func(w http.ResponseWriter, _ *http.Request, err error) {
		got = err
		w.WriteHeader(http.StatusTeapot)
	}})
	w := b.send(hook{change: func(r *http.Request) { r.Header.Del(signing.HeaderID) }}, nil)
	b.is.Equal(w.Code, http.StatusTeapot)
	b.is.True(errors.Is(got, signing.ErrMissingHeader))
}
