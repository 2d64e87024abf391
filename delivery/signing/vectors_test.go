package signing

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	official "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

type vector struct {
	Name          string `json:"name"`
	Scheme        string `json:"scheme"`
	Secret        string `json:"secret"`
	SecretKey     string `json:"secret_key"`
	PublicKey     string `json:"public_key"`
	ID            string `json:"id"`
	Timestamp     int64  `json:"timestamp"`
	Payload       string `json:"payload"`
	PayloadBase64 string `json:"payload_base64"`
	PayloadGen    *struct {
		Prefix, Repeat, Suffix string
		Count                  int
	} `json:"payload_gen"`
	PayloadLen    int    `json:"payload_len"`
	PayloadSHA256 string `json:"payload_sha256"`
	Signature     string `json:"signature"`
	Interop       string `json:"interop"`
}

type vectors struct {
	Vectors     []vector   `json:"vectors"`
	MustBeEqual [][]string `json:"must_be_equal"`
	Headers     []struct {
		Name      string
		Secrets   []string
		ID        string
		Timestamp int64
		Payload   string
		Headers   map[string]string
		Measured  map[string]map[string]any
	} `json:"header_vectors"`
	Secrets []struct {
		Name, Secret, Expect string
	} `json:"secret_vectors"`
}

func readVectors(tb testing.TB) vectors {
	tb.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		tb.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		tb.Fatal(err)
	}
	if len(v.Vectors) != 32 || len(v.Headers) != 10 || len(v.Secrets) != 12 {
		tb.Fatalf("%d, %d and %d vectors, want 32, 10 and 12: was the file cut?", len(v.Vectors), len(v.Headers), len(v.Secrets))
	}
	return v
}

// body returns the payload of a vector, checked against its hash.
func (v vector) body(tb testing.TB) []byte {
	tb.Helper()
	body := []byte(v.Payload)
	switch {
	case v.PayloadGen != nil:
		body = []byte(v.PayloadGen.Prefix + strings.Repeat(v.PayloadGen.Repeat, v.PayloadGen.Count) + v.PayloadGen.Suffix)
	case v.PayloadBase64 != "":
		var err error
		if body, err = base64.StdEncoding.DecodeString(v.PayloadBase64); err != nil {
			tb.Fatal(err)
		}
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != v.PayloadSHA256 || len(body) != v.PayloadLen {
		tb.Fatalf("%s: the payload is not the one that was signed", v.Name)
	}
	return body
}

// secret builds the key without Parse: some vectors are outside the spec's
// sizes, or without prefix, on purpose.
func (v vector) secret(tb testing.TB) Secret {
	tb.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(v.Secret, secretPrefix))
	if err != nil {
		tb.Fatal(err)
	}
	return newSecret(raw)
}

func TestVectors(t *testing.T) {
	t.Parallel()
	all := readVectors(t)
	signatures := map[string]string{}
	for _, v := range all.Vectors {
		body := v.body(t)
		at := time.Unix(v.Timestamp, 0)
		var got []byte
		var key Key
		switch v.Scheme {
		case "v1":
			secret := v.secret(t)
			got, key = Sign(nil, v.ID, v.Timestamp, body, secret), secret
		case "v1a":
			private, err := ParsePrivateKey(v.SecretKey)
			if err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
			public, err := ParsePublicKey(v.PublicKey)
			if err != nil || private.Public().String() != v.PublicKey {
				t.Fatalf("%s: %v", v.Name, err)
			}
			got, key = private.Sign(nil, v.ID, v.Timestamp, body), public
		default:
			t.Fatalf("%s: unknown scheme %q", v.Name, v.Scheme)
		}
		if string(got) != v.Signature {
			t.Errorf("%s: got %s, want %s", v.Name, got, v.Signature)
		}
		signatures[v.Name] = string(got)
		h := Headers{ID: v.ID, Timestamp: strconv.FormatInt(v.Timestamp, 10), Signature: v.Signature}
		if err := Verify([]Key{key}, h, body, at, 0); err != nil {
			t.Errorf("%s: its own signature is refused: %v", v.Name, err)
		}
		if err := Verify([]Key{key}, h, append(slices.Clone(body), '\n'), at, 0); !errors.Is(err, ErrNoMatch) {
			t.Errorf("%s: a changed body passes: %v", v.Name, err)
		}
	}
	for _, pair := range all.MustBeEqual {
		if signatures[pair[0]] != signatures[pair[1]] {
			t.Errorf("%v differ", pair)
		}
	}
}

func TestHeaderVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Headers {
		h := HeadersOf(header(v.Headers))
		for _, text := range v.Secrets {
			secret, err := Parse(text)
			if err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
			want, ok := v.Measured["go standard-webhooks v0.0.1"][text]
			if !ok {
				t.Fatalf("%s: no verdict for its secret", v.Name)
			}
			err = Verify([]Key{secret}, h, []byte(v.Payload), time.Unix(v.Timestamp, 0), 0)
			if (err == nil) != (want == true) {
				t.Errorf("%s: got %v, the official library says %v", v.Name, err, want)
			}
			if err != nil && !errors.Is(err, ErrNoMatch) {
				t.Errorf("%s: got %v, want ErrNoMatch", v.Name, err)
			}
		}
	}
}

func header(values map[string]string) http.Header {
	h := http.Header{}
	for name, value := range values {
		h.Set(name, value)
	}
	return h
}

func TestSecretVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Secrets {
		secret, err := Parse(v.Secret)
		if valid := v.Expect == "valid"; (err == nil) != valid {
			t.Errorf("%s: got %v, want %s", v.Name, err, v.Expect)
		} else if valid && secret.Reveal() != v.Secret {
			t.Errorf("%s: reveals another text", v.Name)
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrSecret) {
			t.Errorf("%s: %v does not match ErrSecret", v.Name, err)
		}
		if body := strings.TrimPrefix(v.Secret, secretPrefix); body != "" && strings.Contains(err.Error(), body) {
			t.Errorf("%s: the error repeats the secret: %v", v.Name, err)
		}
	}
	if _, err := Parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"); err == nil {
		t.Error("a secret without its prefix is accepted")
	}
}

// TestOfficialGoLibrary crosses both ways: it verifies what this package
// signs, and the other way round.
func TestOfficialGoLibrary(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, v := range readVectors(t).Vectors {
		if v.Scheme != "v1" {
			continue
		}
		body := v.body(t)
		hook, err := official.NewWebhook(v.Secret)
		is.NoErr(err)
		theirs, err := hook.Sign(v.ID, time.Unix(v.Timestamp, 0), body)
		is.NoErr(err)
		is.Equal(theirs, v.Signature)

		// Fresh, with a rotation: the library compares with its own clock.
		now := time.Now()
		old, err := Generate(0)
		is.NoErr(err)
		signature := Sign(nil, v.ID, now.Unix(), body, old, v.secret(t))
		h := http.Header{}
		h.Set("webhook-id", v.ID)
		h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		h.Set("webhook-signature", string(signature))
		is.NoErr(hook.Verify(body, h))
		is.True(hook.Verify(append(bytes.Clone(body), ' '), h) != nil)
	}
}
