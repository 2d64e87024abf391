package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// signingKey is that of every peer but Postlane, which makes one a subscription.
const signingKey = "0123456789abcdef0123456789abcdef"

// poster posts bodies as peers without a sender of their own do.
type poster struct {
	client *http.Client
	url    string
}

func newPoster(url string, conns int) *poster {
	return &poster{url: url, client: &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: conns, IdleConnTimeout: 90 * time.Second, DisableCompression: true},
	}}
}

// post signs a body as Standard Webhooks has it, and sends it over a connection that
// is kept.
func (s *poster) post(ctx context.Context, body []byte) error {
	id := "msg_" + strconv.FormatInt(number(body, "seq"), 10)
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(signingKey))
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Webhook-Id", id)
	request.Header.Set("Webhook-Timestamp", at)
	request.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the endpoint answers %d", response.StatusCode)
	}
	return nil
}
