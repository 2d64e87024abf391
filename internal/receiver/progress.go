package receiver

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Progress writes one line per second to w until ctx is over, then a last one:
// events, their rate, duplicates, and whether everything came in order. It is
// silent while nothing arrives.
func (r *Receiver) Progress(ctx context.Context, w io.Writer) {
	const every = time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before Verdict
	then := time.Now()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true
		}
		v, now := r.Verdict(), time.Now()
		if v.Requests != before.Requests {
			_, _ = fmt.Fprintln(w, v.line(before, now.Sub(then)))
		}
		before, then = v, now
	}
}

// line tells the state, and the rate since an earlier one.
func (v Verdict) line(before Verdict, elapsed time.Duration) string {
	what, n, d := "events", v.Events, v.Events-before.Events
	if v.Light {
		what, n, d = "requests", v.Requests, v.Requests-before.Requests
	}
	rate := 0.0
	if elapsed > 0 {
		rate = float64(d) / elapsed.Seconds()
	}
	line := fmt.Sprintf("%10s %s  %8s/s", thousands(n), what, thousands(int64(rate+0.5)))
	if v.Light {
		return line + "  not judged"
	}
	return line + fmt.Sprintf("  %s duplicates  %s", thousands(v.Duplicates), v.order())
}

// order names every broken promise, or says that there is none.
func (v Verdict) order() string {
	var broken []string
	for _, p := range []struct {
		n    int64
		name string
	}{
		{v.OutOfOrder, "OUT OF ORDER"}, {v.Gaps, "GAPS"}, {v.Overlaps, "OVERLAPS"}, {v.Conflicting, "CONFLICTING"},
		{v.BadSignatures, "BAD SIGNATURES"}, {v.BadTimestamps, "BAD TIMESTAMPS"}, {v.BadHeaders, "BAD HEADERS"}, {v.Unread, "UNREAD"},
	} {
		if p.n > 0 {
			broken = append(broken, thousands(p.n)+" "+p.name)
		}
	}
	if len(broken) == 0 {
		return "in order"
	}
	return strings.Join(broken, ", ")
}

// thousands writes a number that is not negative as 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
