package signing_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/signing"
)

func generate(tb testing.TB) signing.Secret {
	tb.Helper()
	s, err := signing.Generate(0)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, n := range []int{24, 27, 33, 63} {
		s, err := signing.Generate(n)
		is.NoErr(err)
		is.Equal(len(s.Reveal()), len("whsec_")+n/3*4)
		is.True(!strings.Contains(s.Reveal(), "=")) // nothing to lose on the way
		parsed, err := signing.Parse(s.Reveal())
		is.NoErr(err)
		is.True(parsed.Equal(s))
	}
	for _, n := range []int{-3, 1, 21, 25, 32, 64, 66} {
		_, err := signing.Generate(n)
		is.True(errors.Is(err, signing.ErrSecret))
	}
	is.True(!generate(t).Equal(generate(t)))
	is.Equal(len(generate(t).Reveal()), len("whsec_")+signing.DefaultSecretBytes/3*4)
}

func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	secret, key := generate(t), signing.GeneratePrivateKey()
	type holder struct {
		Public any
		inner  any
	}
	for name, c := range map[string]struct {
		value    any
		text     string
		redacted string
	}{
		"secret":      {secret, secret.Reveal(), "whsec_[redacted]"},
		"private key": {key, key.Reveal(), "whsk_[redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			var out []string
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%c", "%10.3s"} {
				got := fmt.Sprintf(verb, c.value)
				is.Equal(got, c.redacted) // verb
				out = append(out, got,
					fmt.Sprintf(verb, holder{c.value, c.value}),
					fmt.Sprintf(verb, &holder{c.value, c.value}),
					fmt.Sprintf(verb, []any{c.value}))
			}
			var log bytes.Buffer
			for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
				slog.New(h).Info("m", "k", c.value, "h", holder{c.value, c.value}, "p", &holder{c.value, nil})
			}
			text, err := json.Marshal(map[string]any{"k": c.value, "h": holder{c.value, c.value}})
			is.NoErr(err)
			is.True(strings.Contains(log.String(), c.redacted))
			is.True(strings.Contains(string(text), c.redacted))
			out = append(out, log.String(), string(text), fmt.Sprint(c.value), fmt.Sprintln(c.value), fmt.Errorf("%w", fmt.Errorf("%v", c.value)).Error())

			encoded := c.text[strings.IndexByte(c.text, '_')+1:]
			raw, err := base64.StdEncoding.DecodeString(encoded)
			is.NoErr(err)
			for _, o := range out {
				for _, leak := range []string{encoded[:12], fmt.Sprintf("%x", raw[:6]), fmt.Sprintf("%X", raw[:6]), strings.Trim(fmt.Sprintf("%d", raw[:6]), "[]"), string(raw[:6])} {
					if strings.Contains(o, leak) {
						t.Errorf("%q holds %q", o, leak)
					}
				}
			}
		})
	}
}

func TestZeroValues(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var s signing.Secret
	var k signing.PrivateKey
	var p signing.PublicKey
	is.True(s.IsZero() && k.IsZero() && p.IsZero())
	is.Equal(s.Reveal()+k.Reveal()+p.String(), "")
	is.True(s.Equal(signing.Secret{}))
	is.True(!s.Equal(generate(t)))
	is.True(k.Public().IsZero())
	for _, sign := range []func(){
		func() { signing.Sign(nil, "id", 1, nil, s) },
		func() { k.Sign(nil, "id", 1, nil) },
	} {
		func() {
			defer func() { is.True(recover() != nil) }()
			sign()
		}()
	}
	h := signing.Headers{ID: "id", Timestamp: "1", Signature: "v1,x v1a,x"}
	for _, keys := range [][]signing.Key{nil, {s}, {p}, {nil}} {
		is.True(errors.Is(signing.Verify(keys, h, nil, time.Unix(1, 0), 0), signing.ErrNoKeys))
	}
}

func TestSignAppends(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a, b, key := generate(t), generate(t), signing.GeneratePrivateKey()
	body := []byte("{}")
	one := string(signing.Sign(nil, "id", 1, body, a))
	two := string(signing.Sign(nil, "id", 1, body, b))
	is.Equal(string(signing.Sign(nil, "id", 1, body, a, b)), one+" "+two)
	is.Equal(string(signing.Sign([]byte(one), "id", 1, body, b)), one+" "+two)
	is.Equal(string(key.Sign([]byte(one), "id", 1, body)), one+" "+string(key.Sign(nil, "id", 1, body)))
	is.Equal(len(signing.Sign(nil, "id", 1, body)), 0)
}

func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	secret := generate(t)
	keys := []signing.Key{secret}
	now := time.Unix(1_700_000_000, 0)
	body := []byte(`{"a":1}`)
	signed := func(at int64) signing.Headers {
		return signing.Headers{ID: "evt_1", Timestamp: strconv.FormatInt(at, 10), Signature: string(signing.Sign(nil, "evt_1", at, body, secret))}
	}
	good := signed(now.Unix())
	is.NoErr(signing.Verify(keys, good, body, now, 0))

	for name, h := range map[string]signing.Headers{
		"id":        {Timestamp: good.Timestamp, Signature: good.Signature},
		"timestamp": {ID: good.ID, Signature: good.Signature},
		"signature": {ID: good.ID, Timestamp: good.Timestamp},
	} {
		if err := signing.Verify(keys, h, body, now, 0); !errors.Is(err, signing.ErrMissingHeader) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	for _, text := range []string{"-1", "+1700000000", " 1700000000", "1.7e9", "0x6553f100", "01700000000", "１", "99999999999999999999", "now"} {
		h := good
		h.Timestamp = text
		is.True(errors.Is(signing.Verify(keys, h, body, now, 0), signing.ErrTimestamp))
	}
	for _, c := range []struct {
		offset int64
		want   error
	}{
		{300, nil}, {-300, nil}, {301, signing.ErrTooNew}, {-301, signing.ErrTooOld},
	} {
		err := signing.Verify(keys, signed(now.Unix()+c.offset), body, now, 0)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("offset %d: got %v, want %v", c.offset, err, c.want)
		}
	}
	// Distances that overflow int64.
	is.True(errors.Is(signing.Verify(keys, signed(math.MaxInt64), body, now, 0), signing.ErrTooNew))
	is.True(errors.Is(signing.Verify(keys, signed(math.MaxInt64), body, time.Time{}, math.MaxInt64), signing.ErrTooNew))
	is.True(errors.Is(signing.Verify(keys, signed(0), body, now, 0), signing.ErrTooOld))
	is.True(errors.Is(signing.Verify(keys, signed(now.UnixMilli()), body, now, 0), signing.ErrTooNew))

	is.True(signing.Verify(keys, good, body, now, -time.Second) != nil) // a negative tolerance is a mistake
	is.True(errors.Is(signing.Verify([]signing.Key{generate(t)}, good, body, now, 0), signing.ErrNoMatch))
	other := good
	other.ID = "evt_2"
	is.True(errors.Is(signing.Verify(keys, other, body, now, 0), signing.ErrNoMatch))
}

func TestVerifyLooksAtSoManySignatures(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	secret := generate(t)
	now := time.Unix(1_700_000_000, 0)
	good := string(signing.Sign(nil, "id", now.Unix(), nil, secret))
	h := signing.Headers{ID: "id", Timestamp: "1700000000"}
	h.Signature = strings.Repeat("v1,AAAA ", signing.MaxSignatures-1) + good
	is.NoErr(signing.Verify([]signing.Key{secret}, h, nil, now, 0))
	h.Signature = strings.Repeat("v1,AAAA ", signing.MaxSignatures) + good
	is.True(errors.Is(signing.Verify([]signing.Key{secret}, h, nil, now, 0), signing.ErrNoMatch))
}

func TestHeadersOfJoinsLines(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	secret := generate(t)
	now := time.Unix(1_700_000_000, 0)
	h := http.Header{}
	h.Set("webhook-id", "id")
	h.Set("webhook-timestamp", "1700000000")
	h.Add("webhook-signature", "v1,AAAA")
	h.Add("webhook-signature", string(signing.Sign(nil, "id", now.Unix(), []byte("x"), secret)))
	is.NoErr(signing.Verify([]signing.Key{secret}, signing.HeadersOf(h), []byte("x"), now, 0))
}

func TestAsymmetricKeys(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	key := signing.GeneratePrivateKey()
	again, err := signing.ParsePrivateKey(key.Reveal())
	is.NoErr(err)
	is.Equal(again.Reveal(), key.Reveal())
	public, err := signing.ParsePublicKey(key.Public().String())
	is.NoErr(err)
	now := time.Unix(1_700_000_000, 0)
	h := signing.Headers{ID: "id", Timestamp: "1700000000", Signature: string(again.Sign(nil, "id", now.Unix(), []byte("x")))}
	is.NoErr(signing.Verify([]signing.Key{public}, h, []byte("x"), now, 0))
	is.True(errors.Is(signing.Verify([]signing.Key{public}, h, []byte("y"), now, 0), signing.ErrNoMatch))
	is.True(errors.Is(signing.Verify([]signing.Key{signing.GeneratePrivateKey().Public()}, h, []byte("x"), now, 0), signing.ErrNoMatch))

	mixed := make([]byte, 0, ed25519.PrivateKeySize)
	mixed = append(mixed, raw(t, key.Reveal())[:32]...)
	mixed = append(mixed, raw(t, signing.GeneratePrivateKey().Reveal())[32:]...)
	for _, text := range []string{
		"", "whsk_", "whpk_" + key.Reveal()[5:], key.Reveal()[5:], key.Reveal() + "\n",
		"whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"whsk_" + base64.StdEncoding.EncodeToString(mixed),
	} {
		_, err := signing.ParsePrivateKey(text)
		is.True(errors.Is(err, signing.ErrSecret))
	}
	for _, text := range []string{"", "whpk_", "whsk_" + public.String()[5:], public.String() + " ", "whpk_AAAA"} {
		_, err := signing.ParsePublicKey(text)
		is.True(errors.Is(err, signing.ErrSecret))
	}
}

func raw(tb testing.TB, text string) []byte {
	tb.Helper()
	b, err := base64.StdEncoding.DecodeString(text[strings.IndexByte(text, '_')+1:])
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestSignFromManyGoroutines(t *testing.T) {
	t.Parallel()
	secret, key := generate(t), signing.GeneratePrivateKey()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				body := fmt.Appendf(nil, "%d/%d", g, i)
				got := string(signing.Sign(nil, "id", int64(i), body, secret))
				if want := recipe(raw(t, secret.Reveal()), "id", int64(i), body); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				h := signing.Headers{ID: "id", Timestamp: strconv.Itoa(i), Signature: string(key.Sign(nil, "id", int64(i), body))}
				if err := signing.Verify([]signing.Key{key.Public()}, h, body, time.Unix(int64(i), 0), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// recipe is the scheme in its plainest form.
func recipe(key []byte, id string, timestamp int64, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func FuzzSign(f *testing.F) {
	f.Add([]byte("k"), "id", int64(1), []byte("{}"))
	f.Fuzz(func(t *testing.T, seed []byte, id string, timestamp int64, body []byte) {
		key := sha256.Sum256(seed)
		secret, err := signing.Parse("whsec_" + base64.StdEncoding.EncodeToString(key[:]))
		if err != nil {
			t.Fatal(err)
		}
		got := string(signing.Sign(nil, id, timestamp, body, secret))
		if want := recipe(key[:], id, timestamp, body); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}

// FuzzVerify holds, for any headers: no panic, and only what was signed passes.
func FuzzVerify(f *testing.F) {
	secret, err := signing.Parse("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")
	if err != nil {
		f.Fatal(err)
	}
	key := signing.GeneratePrivateKey()
	now := time.Unix(1_700_000_000, 0)
	good := string(signing.Sign(nil, "id", now.Unix(), []byte("{}"), secret))
	f.Add("id", "1700000000", good, []byte("{}"))
	f.Add("id", "1700000000", "v1,"+good+" v9,x  v1a,AAAA", []byte("{}"))
	f.Add("", "-1", ",, ,", []byte(nil))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		h := signing.Headers{ID: id, Timestamp: timestamp, Signature: signature}
		if signing.Verify([]signing.Key{secret, key.Public()}, h, body, now, 0) != nil {
			return
		}
		at, err := strconv.ParseInt(timestamp, 10, 64)
		if err != nil || strconv.FormatInt(at, 10) != timestamp {
			t.Fatalf("timestamp %q passes", timestamp)
		}
		if !strings.Contains(signature, recipe(raw(t, secret.Reveal()), id, at, body)) {
			t.Fatalf("%q passes", signature)
		}
	})
}

// FuzzParse holds that a text which parses is the one text of its key.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "whsec_", "whsec_AA\n", "whsk_x", "whpk_y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := signing.Parse(text); err == nil && s.Reveal() != text {
			t.Fatalf("%q parses as %q", text, s.Reveal())
		}
		if k, err := signing.ParsePrivateKey(text); err == nil && k.Reveal() != text {
			t.Fatalf("%q parses as %q", text, k.Reveal())
		}
		if k, err := signing.ParsePublicKey(text); err == nil && k.String() != text {
			t.Fatalf("%q parses as %q", text, k)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	secret, old, key := generate(b), generate(b), signing.GeneratePrivateKey()
	for _, size := range []int{256, 20 << 10} {
		body := bytes.Repeat([]byte("x"), size)
		dst := make([]byte, 0, 256)
		b.Run(fmt.Sprintf("v1/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				signing.Sign(dst, "evt_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1_700_000_000, body, secret)
			}
		})
		b.Run(fmt.Sprintf("v1-rotation/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				signing.Sign(dst, "evt_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1_700_000_000, body, secret, old)
			}
		})
		b.Run(fmt.Sprintf("v1a/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				key.Sign(dst, "evt_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1_700_000_000, body)
			}
		})
	}
	b.Run("parse-and-sign", func(b *testing.B) {
		b.ReportAllocs()
		text := secret.Reveal()
		for b.Loop() {
			s, _ := signing.Parse(text)
			signing.Sign(nil, "evt_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1_700_000_000, []byte("{}"), s)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	secret, key := generate(b), signing.GeneratePrivateKey()
	now := time.Unix(1_700_000_000, 0)
	body := bytes.Repeat([]byte("x"), 256)
	h := signing.Headers{ID: "id", Timestamp: "1700000000"}
	h.Signature = string(key.Sign(signing.Sign(nil, "id", now.Unix(), body, secret), "id", now.Unix(), body))
	for name, k := range map[string]signing.Key{"v1": secret, "v1a": key.Public()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := signing.Verify([]signing.Key{k}, h, body, now, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
