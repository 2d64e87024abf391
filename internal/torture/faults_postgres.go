package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postlane-go/postlane/internal/torture/check"
)

// onPostgres runs a fault of the whole database, unless another is at work.
func (r *run) onPostgres(kind string, f func() error) error {
	if !r.database.TryLock() {
		return errBusy
	}
	defer r.database.Unlock()
	return r.during(kind, "", f)
}

// restartPostgres restarts it as an administrator does: fast, which ends all sessions.
func (r *run) restartPostgres(ctx context.Context, _ int, _ time.Duration) error {
	return r.onPostgres(check.PostgresRestart, func() error { return r.cluster.leader().restart(ctx) })
}

// crashPostgres ends it at once, and starts it again, which recovers.
func (r *run) crashPostgres(ctx context.Context, _ int, d time.Duration) error {
	return r.onPostgres(check.PostgresCrash, func() error {
		n := r.cluster.leader()
		if err := n.crash(); err != nil {
			return err
		}
		rest(ctx, d)
		return n.restart(ctx)
	})
}

// failover loses the primary; the standby, which has all that was committed, takes over.
// The place of the primary becomes that of a new standby.
func (r *run) failover(ctx context.Context, _ int, _ time.Duration) error {
	if !r.database.TryLock() {
		return errBusy
	}
	defer r.database.Unlock()
	if err := r.cluster.synchronous(ctx); err != nil {
		return err
	}
	err := r.during(check.Failover, "", func() error { return r.cluster.promote(ctx) })
	return errors.Join(err, r.cluster.attach(ctx))
}

func (r *run) terminateBackends(ctx context.Context, target int, _ time.Duration) error {
	return r.onPostgres(check.Terminate, func() error {
		// Some of them, or all.
		return r.cluster.exec(ctx, fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND pid %% %d = 0`, 1+target%3))
	})
}

// fillDisk leaves PostgreSQL no room on its disk. If it cannot write its log it ends,
// and is started again.
func (r *run) fillDisk(ctx context.Context, _ int, d time.Duration) error {
	n := r.cluster.leader()
	if !n.disk {
		return errNotHere
	}
	return r.onPostgres(check.DiskFull, func() error {
		if err := n.fill(d); err != nil {
			return err
		}
		// It may be about to end for what it met a moment ago.
		rest(ctx, 500*ms)
		select {
		case <-n.server.Done():
			return n.restart(ctx)
		default:
			return nil
		}
	})
}

var tables = []string{
	"postlane.deliveries", "postlane.leases", "postlane.settled", "postlane.attempts", "postlane.events", "postlane.subscriptions",
	"postlane.outbox_pending", "postlane.outbox_leases", "postlane.outbox_messages",
}

func (r *run) vacuumFull(ctx context.Context, target int, _ time.Duration) error {
	return r.maintain(ctx, check.VacuumFull, "VACUUM FULL "+tables[target%len(tables)])
}

func (r *run) reindex(ctx context.Context, target int, _ time.Duration) error {
	how := ""
	if target%2 == 0 {
		how = "CONCURRENTLY "
	}
	return r.maintain(ctx, check.Reindex, "REINDEX TABLE "+how+tables[target%len(tables)])
}

// maintain runs a statement that locks a table, which may lose a deadlock to the others.
func (r *run) maintain(ctx context.Context, kind, sql string) error {
	return r.onPostgres(kind, func() error {
		if err := r.cluster.exec(ctx, "SET lock_timeout = '3s'", sql); err != nil {
			r.say("%s: %v", sql, err)
		}
		return nil
	})
}
