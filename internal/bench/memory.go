package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// memory measures how much memory a server uses while it works on a large backlog.
func memory(ctx context.Context, r *run) (map[string]any, error) {
	n := cmp.Or(r.N, 1_000_000)
	duration := cmp.Or(r.Duration, 30*time.Second)
	endpoint, err := r.receive(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.ready(ctx, r.database, endpoint, n); err != nil {
		return nil, err
	}
	pid, err := r.serve(ctx, []*database{r.database})
	if err != nil {
		return nil, err
	}
	var most, last float64
	for began := time.Now(); time.Since(began) < duration; {
		if err := pause(ctx, min(duration/10, time.Second)); err != nil {
			return nil, err
		}
		if last, err = residentMB(pid); err != nil {
			return nil, err
		}
		most = max(most, last)
	}
	delivered, err := received(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	if delivered == 0 {
		return nil, errors.New("nothing was delivered")
	}
	var failed int
	if err := r.pool.QueryRow(ctx, "SELECT count(*) FROM postlane.attempts WHERE outcome <> 'delivered'").Scan(&failed); err != nil {
		return nil, err
	}
	if failed > 0 {
		return nil, fmt.Errorf("%d attempts failed", failed)
	}
	return map[string]any{
		"rss_mb": most, "last_rss_mb": last, "n": n, "streams": streamsOf(n, r.Streams), "subscriptions": throughputSubscriptions,
		"delivered": delivered, "seconds": duration.Seconds(), "payload_bytes": len(body),
	}, nil
}

// residentMB returns how much memory a process occupies.
func residentMB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("the memory of process %d cannot be read: %w", pid, err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	kb, err := strconv.ParseFloat(string(fields[0]), 64)
	return float64(round(kb/102.4)) / 10, err
}
