package torture

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"github.com/postlane-go/postlane/internal/torture/check"
	"github.com/postlane-go/postlane/internal/torture/endpoint"
	"github.com/postlane-go/postlane/internal/torture/journal"
	"github.com/postlane-go/postlane/internal/torture/worker"
)

// withOne runs f with the chosen one, or the next that no other fault is at work on.
func withOne(list []*child, target int, f func(*child) error) error {
	for i := range list {
		if c := list[(target+i)%len(list)]; c.busy.TryLock() {
			defer c.busy.Unlock()
			return f(c)
		}
	}
	return errBusy
}

func (r *run) killWorker(ctx context.Context, target int, d time.Duration) error {
	return withOne(r.workers, target, func(c *child) error { return r.killed(ctx, check.Kill, c, d) })
}

func (r *run) killProducer(ctx context.Context, target int, d time.Duration) error {
	return withOne(r.producers, target, func(c *child) error { return r.killed(ctx, check.ProducerKill, c, d) })
}

// killed kills a process, and starts another in its place after d.
func (r *run) killed(ctx context.Context, kind string, c *child, d time.Duration) error {
	err := r.during(kind, c.name, func() error {
		c.kill()
		return nil
	})
	rest(ctx, d)
	return errors.Join(err, c.start())
}

func (r *run) freezeWorker(ctx context.Context, target int, d time.Duration) error {
	return withOne(r.workers, target, func(c *child) error {
		return r.during(check.Freeze, c.name, func() error {
			err := c.signal(syscall.SIGSTOP)
			rest(ctx, d)
			return errors.Join(err, c.signal(syscall.SIGCONT))
		})
	})
}

func (r *run) freezeHung(ctx context.Context, target int, d time.Duration) error {
	s := r.subscriptions.lock(target)
	if s == nil {
		return errBusy
	}
	defer s.busy.Unlock()
	return r.during(check.ReceiverHang, s.path, func() error {
		s.set(endpoint.Hang)
		rest(ctx, timeout/2) // for requests to be open
		err := r.freezeWorker(ctx, target, d)
		rest(ctx, timeout) // for the verdicts on them to do harm
		s.set(endpoint.Well)
		return err
	})
}

// stopWorker stops one as a deployment does. With the database away it may say that
// something could not be given back; it must end all the same.
func (r *run) stopWorker(ctx context.Context, target int, d time.Duration) error {
	return withOne(r.workers, target, func(c *child) error {
		err := r.during(check.Stop, c.name, func() error { return c.stop(stopPatience) })
		if _, ended := errors.AsType[*exec.ExitError](err); ended {
			r.say("%s stopped with %v", c.name, err)
			err = nil
		}
		rest(ctx, d)
		return errors.Join(err, c.start())
	})
}

// shiftClock sets a worker's wall clock up to a day off.
func (r *run) shiftClock(ctx context.Context, target int, d time.Duration) error {
	if !r.config.Shift {
		return errNotHere
	}
	return withOne(r.workers, target, func(c *child) error {
		return r.during(check.ClockShift, c.name, func() error {
			off := time.Duration(target%86400) * time.Second
			if target%2 == 0 {
				off = -off
			}
			c.tell("%s %v", worker.Shift, off)
			rest(ctx, d)
			c.tell("%s 0s", worker.Shift)
			return nil
		})
	})
}

func (r *run) exhaustPool(ctx context.Context, target int, d time.Duration) error {
	return withOne(r.workers, target, func(c *child) error {
		return r.during(check.PoolExhausted, c.name, func() error {
			c.tell("%s %v", worker.Exhaust, d)
			rest(ctx, d)
			return nil
		})
	})
}

// receiverAway kills a receiver and lets it come back. It was gone between the two
// times that are written down.
func (r *run) receiverAway(ctx context.Context, target int, d time.Duration) error {
	return withOne(r.receivers, target, func(c *child) error {
		began := journal.Now()
		c.kill()
		rest(ctx, d)
		if err := r.note(check.ReceiverAway, c.name, began); err != nil {
			return err
		}
		if err := c.start(); err != nil {
			return err
		}
		r.subscriptions.remind(c)
		return nil
	})
}
