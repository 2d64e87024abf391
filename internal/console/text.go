package console

import (
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
)

// functions are those that templates may call.
var functions = template.FuncMap{
	"asset":    func(name string) string { return Root + "assets/" + name + "?v=" + version },
	"when":     when,
	"number":   func(n any) string { return number(reflect.ValueOf(n).Int()) },
	"upTo":     upTo,
	"state":    stateOf,
	"duration": duration,
	"age":      func(ms int64) string { return duration(time.Duration(ms) * time.Millisecond) },
	"percent":  percent,
	"endpoint": endpointPath,
	"delivery": deliveryPath,
	"short":    short,
	"address":  addressOf,
	"meaning":  meaning,
	"status":   statusText,
	"plural":   plural,
	"args":     args,
}

// moment is a time as a page shows it: Clock is Absolute without the day, if it is today,
// and in a narrow column breaks after the day only.
type moment struct{ ISO, Absolute, Clock, Relative string }

// when makes a moment of a time.Time or *time.Time; nil and the zero time are not set.
func when(t any) *moment {
	var at time.Time
	switch t := t.(type) {
	case time.Time:
		at = t
	case *time.Time:
		if t != nil {
			at = *t
		}
	}
	if at.IsZero() || at.Year() < 1971 {
		return nil
	}
	at = at.UTC()
	m := &moment{ISO: at.Format(time.RFC3339Nano), Absolute: at.Format("2006-01-02 15:04:05 UTC"), Relative: relative(time.Since(at))}
	m.Clock = at.Format("2006-01-02 15:04:05\u00a0UTC")
	if at.Format(time.DateOnly) == time.Now().UTC().Format(time.DateOnly) {
		m.Clock = at.Format("15:04:05\u00a0UTC")
	}
	return m
}

// relative says how long ago something was, or in what time it will be.
func relative(ago time.Duration) string {
	switch {
	case ago > -time.Second && ago < 2*time.Second:
		return "now"
	case ago < 0:
		return "in " + span(-ago)
	}
	return span(ago) + " ago"
}

// span is a time in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " d"
}

// duration is a measured time, to three digits; "–" where it is not known.
func duration(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d < 0:
		return "–"
	case ms < 1:
		return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return span(d)
}

// number writes an integer with separators.
func number[T int | int32 | int64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// upTo writes a count that stopped at one more than most: "1,000+".
func upTo(most int, n int64) string {
	if n > int64(most) {
		return number(most) + "+"
	}
	return number(n)
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// percent is a share in words that never round something to nothing.
func percent(part, whole int64) string {
	switch {
	case whole == 0:
		return "–"
	case part == 0:
		return "0 %"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case p < 0.1:
		return "<0.1 %"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	case p > 99.9 && part < whole:
		return ">99.9 %"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + " %"
}

// short cuts a text for a table; the whole of it stands in a title beside.
func short(most int, s string) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := []rune(s)
	head := most * 2 / 3
	return string(runes[:head]) + "…" + string(runes[len(runes)-(most-head-1):])
}

// addressOf is a URL for a table: short, without the usual scheme, and broken into lines
// where its parts end.
func addressOf(most int, url string) template.HTML {
	var b strings.Builder
	for _, r := range short(most, strings.TrimPrefix(url, "https://")) {
		b.WriteString(template.HTMLEscapeString(string(r)))
		if strings.ContainsRune("/?&=", r) {
			b.WriteString("<wbr>")
		}
	}
	return template.HTML(b.String()) //nolint:gosec // escaped, rune by rune
}

// mark is a state as a page shows it: by a sign and a word, with a colour beside.
type mark struct{ Class, Sign, Label string }

func stateOf(state any) mark {
	name := fmt.Sprint(state)
	switch name {
	case "delivered", "active", "ok":
		return mark{"good", "✓", name}
	case "delivering", "in_flight":
		return mark{"busy", "▶", "in flight"}
	case "retrying":
		return mark{"warn", "↻", name}
	case "dead", "disabled", "failed":
		return mark{"bad", "✕", name}
	case "held":
		return mark{"hold", "■", name}
	case "paused", "stopped":
		return mark{"hold", "‖", name}
	case "discarded", "revoked":
		return mark{"idle", "⊘", name}
	}
	return mark{"idle", "○", name}
}

// deliveryMark is the state of a delivery, told apart where one word stands for two.
func deliveryMark(d *delivery.Delivery) mark {
	switch {
	case d.Held:
		return mark{"hold", "■", "dead, holds its stream"}
	case d.State == delivery.Pending && d.Due != nil && d.Attempts > 0:
		return stateOf("retrying")
	}
	return stateOf(d.State)
}

// meaning is an outcome in words.
func meaning(outcome string) string {
	if outcome == "stalled" {
		return "the worker went silent; whether the request arrived is not known"
	}
	return sender.Outcome(outcome).Text()
}

// statusText is an answer's status with its own phrase, never the peer's.
func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// args makes what a template hands on to a part that needs several things.
func args(pairs ...any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}
