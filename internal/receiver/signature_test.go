package receiver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestSignatures(t *testing.T) {
	t.Parallel()
	signatures := func(f func(good string) []string) func(http.Header) {
		return func(h http.Header) { h[headerSignature] = f(h.Get(headerSignature)) }
	}
	other := hook{id: "msg_1", timestamp: noon, body: "{}", secret: secretB}.signature()
	for name, test := range map[string]struct {
		hook hook
		want int64
	}{
		"right":                {hook{secret: secretA}, 0},
		"second secret":        {hook{secret: secretB}, 0},
		"rotation, both":       {hook{secret: secretA, change: signatures(func(s string) []string { return []string{s + " " + other} })}, 0},
		"unknown version too":  {hook{secret: secretA, change: signatures(func(s string) []string { return []string{"v9,AAAA " + s} })}, 0},
		"unknown secret":       {hook{}, 1},
		"absent":               {hook{secret: secretA, change: func(h http.Header) { h.Del(headerSignature) }}, 1},
		"empty":                {hook{secret: secretA, change: signatures(func(string) []string { return []string{""} })}, 1},
		"two lines":            {hook{secret: secretA, change: signatures(func(s string) []string { return []string{s, s} })}, 1},
		"two spaces":           {hook{secret: secretA, change: signatures(func(s string) []string { return []string{s + "  " + other} })}, 1},
		"joined by a comma":    {hook{secret: secretA, change: signatures(func(s string) []string { return []string{s + "," + other} })}, 1},
		"no version":           {hook{secret: secretA, change: signatures(func(s string) []string { return []string{s[3:]} })}, 1},
		"unpadded":             {hook{secret: secretA, change: signatures(func(s string) []string { return []string{strings.TrimRight(s, "=")} })}, 1},
		"of another id":        {hook{secret: secretA, change: func(h http.Header) { h.Set(headerID, "msg_2") }}, 1},
		"of another timestamp": {hook{secret: secretA, change: func(h http.Header) { h.Set(headerTimestamp, "1772366401") }}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{Secrets: map[string][]string{"/hook": {secretA, secretB}}})
			test.hook.id = "msg_1"
			test.hook.body = "{}"
			test.hook.timestamp = noon
			status := b.send(test.hook)
			v := b.Verdict()
			b.is.Equal(v.BadSignatures, test.want)
			b.is.Equal(v.Problems(), test.want)
			b.is.Equal(v.Unverified, int64(0))
			b.is.Equal(v.Events, 1-test.want) // what is refused has not arrived
			b.is.Equal(status == http.StatusUnauthorized, test.want == 1)
		})
	}
}

func TestTamperedBody(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Secrets: map[string][]string{"/hook": {secretA}}})
	req := hook{id: "msg_1", body: `{"a":1}`, timestamp: noon, secret: secretA}.request()
	forged := hook{id: "msg_1", body: `{"a":2}`, timestamp: noon}.request()
	forged.Header = req.Header
	b.is.Equal(b.serve(forged), 401)
	b.is.Equal(b.serve(req), 200)
	b.is.Equal(b.Verdict().BadSignatures, int64(1))
}

// Vectors of the official library, and of svix for v1a.
func TestSignatureVectors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ key, id, timestamp, body, signature string }{
		"v1": {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`,
			"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		"v1a": {"whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`,
			"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			k, err := newKeyring([]string{secretA, test.key})
			is.NoErr(err)
			h := http.Header{headerID: {test.id}, headerTimestamp: {test.timestamp}, headerSignature: {test.signature}}
			is.NoErr(k.verify(h, []byte(test.body)))
			is.Equal(k.verify(h, []byte(test.body+" ")), errBadSignature)
			none, err := newKeyring([]string{secretA})
			is.NoErr(err)
			is.Equal(none.verify(h, []byte(test.body)), errBadSignature)
		})
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, secret := range []string{
		"", "whsec_", "secret", "whsec_AAECAwQF", "whsec_" + strings.Repeat("AAAA", 22), "whsec_!!!!CAwQFBgcICQoLDA0ODxAREhMUFRYX",
		secretB + "\n", "whpk_AAAA", strings.TrimRight(secretA, "="), strings.TrimPrefix(secretA, "whsec_"),
	} {
		_, err := newKeyring([]string{secret})
		is.True(err != nil)
		is.True(len(secret) < 10 || !strings.Contains(err.Error(), secret[7:])) // never repeated
	}
	_, err := New(Config{Secrets: map[string][]string{"/hook": {"secret"}}})
	is.True(err != nil)
	_, err = New(Config{Secrets: map[string][]string{"hook": {secretA}}})
	is.True(err != nil) // a path begins with /
}

func TestSecretsAtRunTime(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.is.Equal(b.send(hook{seq: 1}), 200)
	b.is.Equal(b.Verdict().Unverified, int64(1)) // and not called bad

	b.is.NoErr(b.SetSecrets(AnyPath, secretA))
	b.is.Equal(b.send(hook{seq: 2, prev: 1}), 401)
	b.is.Equal(b.send(hook{seq: 2, prev: 1, secret: secretA}), 200)

	b.is.NoErr(b.SetSecrets("/hook", secretB))
	b.is.Equal(b.send(hook{seq: 3, prev: 2, secret: secretA}), 401)
	b.is.Equal(b.send(hook{seq: 3, prev: 2, secret: secretB}), 200)

	b.is.NoErr(b.SetSecrets("/hook"))
	b.is.Equal(b.send(hook{seq: 4, prev: 3, secret: secretA}), 200)
	v := b.Verdict()
	b.is.Equal(v.BadSignatures, int64(2))
	b.is.Equal(v.Unverified, int64(1))
	b.is.Equal(v.Problems(), int64(2))
}

func TestTimestamps(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) hook { return hook{timestamp: noon.Add(d)} }
	text := func(s string) hook {
		return hook{change: func(h http.Header) { h.Set(headerTimestamp, s) }}
	}
	for name, test := range map[string]struct {
		hook hook
		want int64
	}{
		"now":           {at(0), 0},
		"oldest":        {at(-tolerance), 0},
		"newest":        {at(tolerance), 0},
		"too old":       {at(-tolerance - time.Second), 1},
		"too new":       {at(tolerance + time.Second), 1},
		"milliseconds":  {text("1772366400000"), 1},
		"with a sign":   {text("+1772366400"), 1},
		"fraction":      {text("1772366400.5"), 1},
		"empty":         {text(""), 1},
		"not a number":  {text("noon"), 1},
		"out of range":  {text("99999999999999999999"), 1},
		"far in future": {text("9223372036854775807"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			status := b.send(test.hook)
			v := b.Verdict()
			b.is.Equal(v.BadTimestamps, test.want)
			b.is.Equal(v.Problems(), test.want)
			b.is.Equal(v.Events, 1-test.want)
			b.is.Equal(status == http.StatusUnauthorized, test.want == 1)
		})
	}
}
