package console

import (
	"strconv"
	"strings"

	"github.com/postlane-go/postlane/delivery"
)

// curl is a command that makes a request like those of a delivery, for trying an endpoint
// by hand. It holds no secret, so the signature is left to be filled in, and no payload,
// which is to be in a file.
func curl(sub *delivery.Subscription, d *delivery.Delivery, e *delivery.StoredEvent, attempt int) string {
	kind := "application/json"
	if e != nil {
		kind = e.ContentType
	}
	lines := []string{"curl --request POST " + quote(sub.URL)}
	header := func(name, value string) { lines = append(lines, "  --header "+quote(name+": "+value)) }
	header("content-type", kind)
	header("webhook-id", d.EventID)
	lines = append(lines, `  --header "webhook-timestamp: $(date +%s)"`)
	header("webhook-signature", "v1,SIGNATURE")
	header("postlane-event-type", d.EventType)
	header("postlane-attempt", strconv.Itoa(attempt))
	if d.Asset != "" {
		header("postlane-asset", d.Asset)
	}
	header("postlane-stream-seq", strconv.FormatInt(int64(d.ID), 10))
	for _, name := range sub.HeaderNames {
		header(name, "VALUE")
	}
	lines = append(lines, "  --data-binary @payload.json")
	return strings.Join(lines, " \\\n")
}

// quote makes a word for a POSIX shell of any text: inside single quotes nothing has a
// meaning but the quote itself. A line break would end a header, and becomes a space.
func quote(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
