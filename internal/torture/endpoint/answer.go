package endpoint

import (
	"net"
	"net/http"
	"time"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// answer is that to one request.
type answer struct {
	w      http.ResponseWriter
	r      *http.Request
	end    journal.End
	finish func(journal.End)
}

// give answers as the mode has it.
func (a *answer) give(m Mode, n int64, timeout time.Duration) {
	switch m {
	case Hang:
		if a.wait(time.Minute) {
			a.reset()
		}
	case Reset:
		a.reset()
	case Drip:
		a.drip()
	case Late:
		if a.wait(timeout + 700*time.Millisecond) {
			a.status(http.StatusOK)
		}
	case Error:
		a.status(http.StatusInternalServerError)
	case Gone:
		a.status(http.StatusGone)
	case Flaky:
		a.status([]int{http.StatusServiceUnavailable, http.StatusOK, http.StatusOK, http.StatusFound}[n%4])
	default:
		d := time.Duration(n%16) * time.Millisecond
		if n%31 == 0 {
			d *= 40 // and sometimes much longer
		}
		if a.wait(d) {
			a.status(http.StatusOK)
		}
	}
}

// done writes down the end: before the last byte, since what follows it may be here
// before the line is.
func (a *answer) done(how string) {
	a.end.At, a.end.How = journal.Now(), how
	a.finish(a.end)
}

func (a *answer) status(code int) {
	a.end.Status = code
	a.done(journal.Answered)
	a.w.WriteHeader(code)
}

// wait reports whether the sender is still there after d.
func (a *answer) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.r.Context().Done():
		a.done(journal.Left)
		return false
	}
}

func (a *answer) reset() {
	conn, _, err := a.w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	a.done(journal.Cut)
	conn.Close()
}

// drip answers 200 with a body that takes longer than anybody waits.
func (a *answer) drip() {
	a.end.Status = http.StatusOK
	a.done(journal.Begun)
	a.w.WriteHeader(http.StatusOK)
	for range 50 {
		_, _ = a.w.Write([]byte("."))
		_ = http.NewResponseController(a.w).Flush()
		if !a.wait(100 * time.Millisecond) {
			return
		}
	}
	a.done(journal.Answered)
}
