package torture

import (
	"context"
	"slices"
	"time"

	"github.com/postlane-go/postlane/internal/torture/check"
)

// onLine runs f with one process's line to the database, unless another fault is at work
// on that process.
func (r *run) onLine(kind string, target int, f func(*proxy) error) error {
	return withOne(slices.Concat(r.workers, r.producers), target, func(c *child) error {
		return r.during(kind, c.name, func() error { return f(r.lines[c.name]) })
	})
}

func (r *run) swallow(ctx context.Context, target int, d time.Duration) error {
	return r.onLine(check.Blackhole, target, func(p *proxy) error {
		end := p.swallow()
		rest(ctx, d)
		end()
		return nil
	})
}

func (r *run) cut(_ context.Context, target int, _ time.Duration) error {
	return r.onLine(check.CutConnections, target, func(p *proxy) error {
		p.cut()
		return nil
	})
}

// slow delays each packet by 50 to 850 ms.
func (r *run) slow(ctx context.Context, target int, d time.Duration) error {
	return r.onLine(check.Delay, target, func(p *proxy) error {
		p.slow(time.Duration(50+target%800) * ms)
		rest(ctx, d)
		p.slow(0)
		return nil
	})
}
