package verify_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/verify"
)

// FuzzRead holds, for any headers and body: no panic, an error has a status that asks for
// nothing wrong, and what is accepted is what the secret's owner signed, in time, with
// numbers that make sense.
func FuzzRead(f *testing.F) {
	raw := bytes.Repeat([]byte{7}, 32)
	text := "whsec_" + base64.StdEncoding.EncodeToString(raw)
	secret, err := signing.Parse(text)
	if err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	const maxBody = 1000
	v, err := verify.New(verify.Config{Secrets: []string{text}, MaxBody: maxBody, Now: func() time.Time { return now }})
	if err != nil {
		f.Fatal(err)
	}
	good := string(signing.Sign(nil, "evt_1", now.Unix(), []byte("{}"), secret))
	f.Add("evt_1", "1700000000", good, []byte("{}"), "invoice.paid", "a%20b", "1", "2", "1")
	f.Add("evt_1", "1700000000", "v9,x "+good, []byte("{}"), "%", "%zz", "-1", "9223372036854775807", "9223372036854775807")
	f.Add("evt_1", "01700000000", good, []byte("{}"), "", "", "", "", "")
	f.Add("", "", "", bytes.Repeat([]byte("x"), maxBody+1), "", "", "", "0", "-1")
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte, kind, asset, attempt, seq, prev string) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		for name, value := range map[string]string{
			signing.HeaderID: id, signing.HeaderTimestamp: timestamp, signing.HeaderSignature: signature, verify.HeaderEventType: kind,
			verify.HeaderAsset: asset, verify.HeaderAttempt: attempt, verify.HeaderStreamSeq: seq, verify.HeaderStreamPrev: prev,
		} {
			r.Header.Set(name, value)
		}
		d, err := v.Read(r)
		if err != nil {
			if s := verify.Status(err); s != 400 && s != 401 && s != 413 || d != nil {
				t.Fatalf("%d, %+v: %v", s, d, err)
			}
			return
		}
		if len(body) > maxBody || !bytes.Equal(d.Body, body) || d.ID != id || fmt.Sprint(d.Timestamp.Unix()) != timestamp {
			t.Fatalf("%q %q became %+v", id, timestamp, d)
		}
		if off := now.Sub(d.Timestamp).Abs(); off > signing.DefaultTolerance {
			t.Fatalf("%v off is accepted", off)
		}
		mac := hmac.New(sha256.New, raw)
		fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
		if !strings.Contains(signature, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))) {
			t.Fatalf("%q is accepted", signature)
		}
		if d.Attempt < 0 || d.StreamSeq < 0 || d.StreamPrev < 0 || d.StreamSeq > 0 && d.StreamPrev >= d.StreamSeq {
			t.Fatalf("%q, %q, %q became %+v", attempt, seq, prev, d)
		}
	})
}
