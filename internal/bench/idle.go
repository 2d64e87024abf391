package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// idle measures what a server with one subscription and nothing to send costs.
func idle(ctx context.Context, r *run) (map[string]any, error) {
	duration := cmp.Or(r.Duration, 30*time.Second)
	if _, err := r.subscribe(ctx, 1, "http://127.0.0.1:8099"); err != nil {
		return nil, err
	}
	pid, err := r.serve(ctx, []*database{r.database})
	if err != nil {
		return nil, err
	}
	// What a start costs is over by then.
	if err := pause(ctx, min(duration, 6*time.Second)); err != nil {
		return nil, err
	}
	before, err := r.cpu(ctx, pid)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	statements, by, err := r.statementRate(ctx, duration)
	if err != nil {
		return nil, err
	}
	after, err := r.cpu(ctx, pid)
	if err != nil {
		return nil, err
	}
	share := func(used time.Duration) float64 {
		return math.Round(used.Seconds()/time.Since(began).Seconds()*1e5) / 1e3
	}
	return map[string]any{
		"statements_per_s": statements, "statements_counted_by": by, "cpu_percent": share(after[0] - before[0]),
		"postgres_cpu_percent": share(after[1] - before[1]), "seconds": duration.Seconds(),
	}, nil
}

// cpu returns the CPU time of a process and of the PostgreSQL server.
func (d *database) cpu(ctx context.Context, pid int) (used [2]time.Duration, err error) {
	var backend int
	if err := d.pool.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return used, err
	}
	self, _, ok := procStat(fmt.Sprint(pid))
	if !ok {
		return used, fmt.Errorf("the CPU time of process %d cannot be read from /proc", pid)
	}
	return [2]time.Duration{self, cpuOfServer(backend)}, nil
}

// statementRate returns how many statements a second the database is asked for a while,
// and what counted them: pg_stat_statements, each statement of the database; without it
// pg_stat_database, whose transactions may have several.
func (r *run) statementRate(ctx context.Context, while time.Duration) (rate float64, by string, err error) {
	by, sql := "pg_stat_statements", "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = $1)"
	// Asked from another database, so that asking is not counted.
	conn, err := pgx.Connect(ctx, r.server)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT count(*) FROM pg_stat_statements"); err != nil {
		by, sql = "pg_stat_database", "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"
	}
	var before, after int64
	name := r.pool.Config().ConnConfig.Database
	if err := conn.QueryRow(ctx, sql, name).Scan(&before); err != nil {
		return 0, "", err
	}
	if err := pause(ctx, while); err != nil {
		return 0, "", err
	}
	if err := conn.QueryRow(ctx, sql, name).Scan(&after); err != nil {
		return 0, "", err
	}
	return math.Round(float64(after-before)/while.Seconds()*100) / 100, by, nil
}
