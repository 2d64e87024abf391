package sender

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ErrHeader is matched by every error of CheckHeader.
var ErrHeader = errors.New("sender: custom header refused")

// reservedHeaders are names, in lower case, that a subscription cannot set.
// Each belongs to the product, or to the connection, or changes how the
// request is sent. Idempotency-Key would make net/http repeat a request by
// itself; webhook-id does that job here.
var reservedHeaders = map[string]bool{
	"accept-encoding":     true,
	"connection":          true,
	"content-encoding":    true,
	"content-length":      true,
	"content-type":        true,
	"expect":              true,
	"host":                true,
	"http2-settings":      true,
	"idempotency-key":     true,
	"keep-alive":          true,
	"proxy-authorization": true,
	"proxy-connection":    true,
	"te":                  true,
	"trailer":             true,
	"transfer-encoding":   true,
	"upgrade":             true,
	"user-agent":          true,
	"x-idempotency-key":   true,
}

// ReservedHeader reports whether a subscription's header must not have this
// name, whatever its case: webhook-*, postlane-*, and those of the connection
// and the body.
func ReservedHeader(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "webhook-") || strings.HasPrefix(lower, "postlane-") || reservedHeaders[lower]
}

// CheckHeader reports whether a subscription may have this header. It is what
// an API calls before it stores one: a header that cannot be sent would fail
// every attempt. The error matches ErrHeader; it names the header and never
// repeats the value, which may be a credential.
func CheckHeader(name, value string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("%w: %q is not a header name; use letters, digits and hyphens", ErrHeader, name)
	case ReservedHeader(name):
		return fmt.Errorf("%w: %q is reserved; choose another name", ErrHeader, name)
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("%w: the value of %q holds a line break or control character", ErrHeader, name)
	}
	return nil
}

// EncodeText returns text as a header can carry it: every byte outside visible
// ASCII (0x21 to 0x7E), and the percent sign itself, becomes %XX, as in a URL.
// Text without any of those is unchanged. url.PathUnescape reverses it.
func EncodeText(text string) string {
	plain := 0
	for plain < len(text) && visible(text[plain]) {
		plain++
	}
	if plain == len(text) {
		return text
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(text) + 16)
	b.WriteString(text[:plain])
	for i := plain; i < len(text); i++ {
		c := text[i]
		if visible(c) {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return b.String()
}

func visible(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }
