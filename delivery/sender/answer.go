package sender

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// maxStoredHeader bounds the names and values of Result.Header, in bytes.
	maxStoredHeader = 8 << 10
	// maxLocation bounds Result.Location, in bytes.
	maxLocation = 2 << 10
	// maxDrain is how much of a body beyond MaxBodyBytes is read and thrown
	// away to keep the connection: less than a TLS handshake costs. A longer
	// body costs its connection.
	maxDrain = 64 << 10
)

// read takes the verdict from the status, then what may be stored from the
// rest. cancel ends the attempt's context, and with it a read of the body.
func (s *Sender) read(resp *http.Response, result *Result, cancel context.CancelFunc) {
	result.Status, result.Answered = resp.StatusCode, true
	result.Outcome = HTTPStatus
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		result.Outcome = Delivered
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		if after, ok := ParseRetryAfter(resp.Header.Values("Retry-After"), result.Started); ok {
			result.RetryAfter = after
		}
	}
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		result.Location = cleanText(cut(resp.Header.Get("Location"), maxLocation))
	}
	result.Header = cleanHeader(resp.Header)

	// After 101 the body is the bare connection, which no deadline of a
	// context interrupts (https://go.dev/issue/71325).
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == http.NoBody {
		resp.Body.Close()
		return
	}
	timer := time.AfterFunc(s.config.BodyTimeout, cancel)
	defer timer.Stop()
	result.Body, result.BodyTruncated = readBody(resp, s.config.MaxBodyBytes)
}

// bodies are buffers for reading; most answers are a few bytes long.
var bodies = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}

// readBody returns up to limit bytes of the body, and whether there was more.
// It closes the body.
func readBody(resp *http.Response, limit int) (body []byte, truncated bool) {
	defer resp.Body.Close()
	buf := bodies.Get().(*[]byte)
	defer bodies.Put(buf)
	left := limit + maxDrain
	if resp.ContentLength > int64(left) {
		left = limit // the connection is lost anyway
	}
	for left > 0 {
		n, err := resp.Body.Read((*buf)[:min(left, len(*buf))])
		left -= n
		keep := min(n, limit-len(body))
		body = append(body, (*buf)[:keep]...)
		if keep < n {
			truncated = true
		}
		if err != nil {
			return body, truncated || err != io.EOF
		}
	}
	return body, true
}

// cleanHeader returns what is kept of an answer's header: without cookies,
// which are credentials, in valid UTF-8 without controls, up to
// maxStoredHeader bytes, in the order of the names so that the cut is the same
// each time. It takes h over.
func cleanHeader(h http.Header) http.Header {
	delete(h, "Set-Cookie")
	delete(h, "Set-Cookie2")
	if storable(h) {
		return h // nearly always
	}
	kept := make(http.Header, len(h))
	left := maxStoredHeader
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			if left -= len(name) + len(value); left < 0 {
				return kept
			}
			clean := cleanText(name)
			kept[clean] = append(kept[clean], cleanText(value))
		}
	}
	return kept
}

func storable(h http.Header) bool {
	size := 0
	for name, values := range h {
		if !isClean(name) {
			return false
		}
		for _, value := range values {
			size += len(name) + len(value)
			if !isClean(value) {
				return false
			}
		}
	}
	return size <= maxStoredHeader
}

// cleanText replaces what PostgreSQL's text type refuses (NUL, bytes that are
// not UTF-8) and what acts on a terminal (other controls).
func cleanText(s string) string {
	if isClean(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

func isClean(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

func cut(s string, limit int) string { return s[:min(len(s), limit)] }
