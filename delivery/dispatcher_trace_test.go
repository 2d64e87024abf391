package delivery_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// tracer counts the statements of a pool by name.
type tracer struct {
	mu         sync.Mutex
	counts     map[string]int
	withTimes  []string
	statements chan string // those that nobody reads are dropped
	// before, where set, is called with the name of each statement before it is sent.
	before func(name string)
}

func newTracer() *tracer {
	return &tracer{counts: map[string]int{}, withTimes: []string{}, statements: make(chan string, 10_000)}
}

// count returns how often a statement ran.
func (t *tracer) count(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

// times lists the statements that were given a point in time.
func (t *tracer) times() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.withTimes
}

func (t *tracer) note(sql string, args []any) {
	name := sql
	if rest, ok := strings.CutPrefix(sql, "-- name: "); ok {
		name, _, _ = strings.Cut(rest, " ")
	}
	if t.before != nil {
		t.before(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[name]++
	for _, arg := range args {
		switch x := arg.(type) {
		case time.Time, []time.Time:
			t.withTimes = append(t.withTimes, fmt.Sprint(name, x))
		case *time.Time:
			if !reflect.ValueOf(x).IsNil() {
				t.withTimes = append(t.withTimes, fmt.Sprint(name, x))
			}
		}
	}
	tell(t.statements, name)
}

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.note(data.SQL, data.Args)
	return ctx
}

func (t *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		t.note(q.SQL, q.Arguments)
	}
	return ctx
}

func (t *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (t *tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
