package receiver

import (
	"io"
	"strconv"
	"sync"
)

// requestLog writes one line per answered request: what was delivered where
// and how it was judged, and never what it said or was signed with.
type requestLog struct {
	w   io.Writer
	mu  sync.Mutex
	buf []byte
}

func (l *requestLog) write(a *Arrival, status int) {
	if l.w == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = appendLine(l.buf[:0], a, status)
	_, _ = l.w.Write(l.buf) // a log that cannot be written stops no judgement
}

// appendLine formats
//
//	15:04:05.000 POST /orders order.paid asset=A-17 seq=12 attempt=1 200 duplicate
func appendLine(b []byte, a *Arrival, status int) []byte {
	b = a.At.AppendFormat(b, "15:04:05.000")
	b = append(b, " POST "...)
	b = append(b, printable(a.Path)...)
	b = append(b, ' ')
	b = append(b, printable(a.Type)...)
	b = append(b, " asset="...)
	if a.HasAsset {
		b = append(b, printable(a.Asset)...)
	} else {
		b = append(b, '-')
	}
	b = append(b, " seq="...)
	b = strconv.AppendInt(b, a.Seq, 10)
	b = append(b, " attempt="...)
	b = strconv.AppendInt(b, int64(a.Attempt), 10)
	b = append(b, ' ')
	if status == Drop {
		b = append(b, "dropped"...)
	} else {
		b = strconv.AppendInt(b, int64(status), 10)
	}
	if f := a.Findings &^ Unverified; f != 0 { // said once by the verdict, not by every line
		b = append(b, ' ')
		b = append(b, f.String()...)
	}
	return append(b, '\n')
}
