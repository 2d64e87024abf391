package sender_test

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/sender"
)

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const most = sender.MaxRetryAfter
	for _, c := range []struct {
		values []string
		want   time.Duration
		ok     bool
	}{
		{nil, 0, false},
		{[]string{"120"}, 2 * time.Minute, true},
		{[]string{"0"}, 0, true},
		{[]string{"007"}, 7 * time.Second, true},
		{[]string{"-5"}, 0, false},
		{[]string{"+5"}, 0, false},
		{[]string{"1.5"}, 0, false},
		{[]string{" 7 "}, 0, false},
		{[]string{"1e3"}, 0, false},
		{[]string{"0x10"}, 0, false},
		{[]string{"９"}, 0, false},
		{[]string{"soon"}, 0, false},
		{[]string{""}, 0, false},
		{[]string{"120, 240"}, 0, false},
		{[]string{"9223372036"}, most, true},
		{[]string{"9223372037"}, most, true},
		{[]string{"9223372036854775807"}, most, true},
		{[]string{"9223372036854775808"}, 0, false},
		{[]string{"99999999999999999999999"}, 0, false},
		{[]string{"Sun, 01 Mar 2026 12:02:00 GMT"}, 2 * time.Minute, true},
		{[]string{"Sunday, 01-Mar-26 12:02:00 GMT"}, 2 * time.Minute, true},
		{[]string{"Sun Mar  1 12:02:00 2026"}, 2 * time.Minute, true},
		{[]string{"Sun, 01 Mar 2026 11:59:59 GMT"}, 0, false},
		{[]string{"Sun, 01 Mar 2026 12:00:00 GMT"}, 0, false},
		{[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, most, true},
		{[]string{"Sun, 01 Mar 2026 12:02:00 +0000"}, 0, false},
		{[]string{"2026-03-01T12:02:00Z"}, 0, false},
		{[]string{"soon", "60", "120"}, time.Minute, true},
		{[]string{"-1", "Sun, 01 Mar 2026 11:00:00 GMT", "9"}, 9 * time.Second, true},
	} {
		is := is.New(t)
		got, ok := sender.ParseRetryAfter(c.values, now)
		if got != c.want || ok != c.ok {
			t.Errorf("%q: got %v, %v, want %v, %v", c.values, got, ok, c.want, c.ok)
		}
		is.True(got >= 0 && got <= most)
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"120", "9223372037", "Fri, 31 Dec 9999 23:59:59 GMT", "-1"} {
		f.Add(s, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, value string, now int64) {
		got, ok := sender.ParseRetryAfter([]string{value}, time.Unix(now, 0))
		if got < 0 || got > sender.MaxRetryAfter || !ok && got != 0 {
			t.Fatalf("%q at %d: %v, %v", value, now, got, ok)
		}
	})
}
