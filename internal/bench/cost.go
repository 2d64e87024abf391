package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// cost is what something took of the machine and the database.
type cost struct {
	self, postgres time.Duration // CPU
	wal            int64         // bytes
	commits        int64
}

// cost returns what has been used so far; the difference of two tells of what lay
// between.
func (d *database) cost(ctx context.Context) (c cost, err error) {
	var pid int
	err = d.pool.QueryRow(ctx, `SELECT pg_stat_clear_snapshot()::text, pg_backend_pid(), (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, xact_commit
		FROM pg_stat_database WHERE datname = current_database()`).Scan(new(string), &pid, &c.wal, &c.commits)
	if err != nil {
		return c, err
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return c, err
	}
	c.self = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	c.postgres = cpuOfServer(pid)
	return c, nil
}

// per returns the difference to an earlier cost, for each of n.
func (c cost) per(before cost, n int) map[string]any {
	us := func(a, b time.Duration) float64 { return float64((a-b).Microseconds()*10/int64(n)) / 10 }
	return map[string]any{
		"client_cpu_us": us(c.self, before.self), "postgres_cpu_us": us(c.postgres, before.postgres),
		"wal_bytes": (c.wal - before.wal) / int64(n), "commits": float64((c.commits-before.commits)*1000/int64(n)) / 1000,
	}
}

// add adds what lay between two costs.
func (c *cost) add(after, before cost) {
	c.self += after.self - before.self
	c.postgres += after.postgres - before.postgres
	c.wal += after.wal - before.wal
	c.commits += after.commits - before.commits
}

// cpuOfServer returns the CPU time of the PostgreSQL server that has a backend pid, with
// all its processes; 0 where /proc does not tell.
func cpuOfServer(pid int) time.Duration {
	_, postmaster, ok := procStat(fmt.Sprint(pid))
	if !ok {
		return 0
	}
	var total time.Duration
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a constant pattern
	for _, dir := range dirs {
		if cpu, parent, ok := procStat(filepath.Base(dir)); ok && (parent == postmaster || filepath.Base(dir) == strconv.Itoa(postmaster)) {
			total += cpu
		}
	}
	return total
}

// procStat reads the CPU time and the parent of a process.
func procStat(pid string) (cpu time.Duration, parent int, ok bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, false
	}
	// The name, in parentheses, may hold spaces.
	_, rest, found := bytes.Cut(stat, []byte(") "))
	fields := bytes.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, 0, false
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
	system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
	const tick = time.Second / 100 // USER_HZ, the same on every Linux
	return time.Duration(user+system) * tick, parent, true
}
