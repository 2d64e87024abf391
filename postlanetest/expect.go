package postlanetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/outbox"
)

// ExpectEvents fails the test unless tx has enqueued these events and no others, in this
// order; without any, unless it has enqueued none.
//
// A field that is left at its zero value may be anything. Payloads that are both JSON are
// compared as such: by what they say, not by their spaces.
func ExpectEvents(t testing.TB, tx pgx.Tx, want ...delivery.Event) {
	t.Helper()
	expect(t, "enqueued", "event", Events(t, tx), want)
}

// ExpectMessages is ExpectEvents for the outbox: tx has staged these messages and no others.
func ExpectMessages(t testing.TB, tx pgx.Tx, want ...outbox.Message) {
	t.Helper()
	expect(t, "staged", "message", Messages(t, tx), want)
}

// expect reports all that differs at once.
func expect[T any](t testing.TB, did, what string, got, want []T) {
	t.Helper()
	var problems []string
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			problems = append(problems, fmt.Sprintf("%s %d is missing: want %s", what, i, describe(want[i])))
		case i >= len(want):
			problems = append(problems, fmt.Sprintf("%s %d is one too many: %s", what, i, describe(got[i])))
		default:
			for _, d := range differences(got[i], want[i]) {
				problems = append(problems, fmt.Sprintf("%s %d: %s", what, i, d))
			}
		}
	}
	if len(problems) > 0 {
		t.Errorf("the transaction has %s %d, not as expected:\n\t%s", did, len(got), strings.Join(problems, "\n\t"))
	}
}

// differences compares the fields that want sets.
func differences[T any](got, want T) (problems []string) {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range w.NumField() {
		if w.Field(i).IsZero() {
			continue
		}
		a, b := g.Field(i).Interface(), w.Field(i).Interface()
		if !same(a, b) {
			problems = append(problems, fmt.Sprintf("%s is %s, want %s", w.Type().Field(i).Name, show(a), show(b)))
		}
	}
	return problems
}

func same(got, want any) bool {
	switch want := want.(type) {
	case []byte:
		return samePayload(got.([]byte), want)
	case time.Time:
		return want.Equal(got.(time.Time))
	}
	return reflect.DeepEqual(got, want)
}

func samePayload(got, want []byte) bool {
	if bytes.Equal(got, want) {
		return true
	}
	var g, w any
	return decode(got, &g) && decode(want, &w) && reflect.DeepEqual(g, w)
}

// decode keeps numbers as they are written: a float64 would make two long ones equal.
func decode(payload []byte, into *any) bool {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	return d.Decode(into) == nil && d.InputOffset() == int64(len(bytes.TrimRight(payload, " \t\r\n")))
}

// describe shows the fields that are set.
func describe(v any) string {
	var fields []string
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		if f := s.Field(i); !f.IsZero() {
			fields = append(fields, s.Type().Field(i).Name+": "+show(f.Interface()))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

func show(v any) string {
	switch v := v.(type) {
	case []byte:
		const most = 500
		if len(v) > most {
			return fmt.Sprintf("%q… (%d bytes)", v[:most], len(v))
		}
		return fmt.Sprintf("%q", v)
	case string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v)
}
