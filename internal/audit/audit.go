// Package audit keeps who changed what, and what came of it.
package audit

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Entry is one change that somebody asked for.
type Entry struct {
	ID int64
	At time.Time
	// Tenant is whose thing it was, "" where nobody's.
	Tenant string
	// Actor is the id of the key, "operator", or "cli"; ActorName is for people.
	Actor, ActorName string
	// Action names the operation, Target the id of what it was done to.
	Action, Target string
	// Detail is what was asked for, without any secret or payload.
	Detail string
	// Status and Outcome are the answer's: "ok", or the code of the refusal. Status is 0
	// where there was no HTTP. Outcome "" means that the process ended before it could
	// tell.
	Status  int
	Outcome string
}

// Target is what an HTTP request is about: the ids in its path.
func Target(r *http.Request) string {
	var ids []string
	for _, name := range []string{"id", "delivery_id", "key_id", "name"} {
		if id := r.PathValue(name); id != "" && len(id) <= 100 {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids, "/")
}

// Log keeps entries. It is safe for concurrent use.
type Log struct{ pool *pgxpool.Pool }

// New returns the log of a database.
func New(pool *pgxpool.Pool) *Log { return &Log{pool} }

var queries = dbgen.New()

// Begin records that a change is about to be made, and sets the entry's ID.
func (l *Log) Begin(ctx context.Context, e *Entry) (err error) {
	e.ID, err = queries.AuditBegin(ctx, l.pool, &dbgen.AuditBeginParams{
		Tenant: some(e.Tenant), Actor: e.Actor, ActorName: e.ActorName, Action: e.Action, Target: some(e.Target),
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// End records what came of it.
func (l *Log) End(ctx context.Context, e *Entry) error {
	err := queries.AuditEnd(ctx, l.pool, &dbgen.AuditEndParams{
		ID: e.ID, Status: someInt(e.Status), Outcome: some(e.Outcome), Tenant: some(e.Tenant), Target: some(e.Target), Detail: some(e.Detail),
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Record is Begin and End in one, afterwards.
func (l *Log) Record(ctx context.Context, e *Entry) error {
	err := queries.AuditRecord(ctx, l.pool, &dbgen.AuditRecordParams{
		Tenant: some(e.Tenant), Actor: e.Actor, ActorName: e.ActorName, Action: e.Action, Target: some(e.Target), Detail: some(e.Detail),
		Status: someInt(e.Status), Outcome: some(e.Outcome),
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// List returns up to max entries of a tenant ("": of all), newest first, before the
// given one (0: from the newest).
func (l *Log) List(ctx context.Context, tenant string, before int64, max int) ([]Entry, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	var rows []*dbgen.PostlaneAudit
	var err error
	if tenant == "" {
		rows, err = queries.AuditList(ctx, l.pool, &dbgen.AuditListParams{Before: before, Max: int32(max)})
	} else {
		rows, err = queries.AuditListTenant(ctx, l.pool, &dbgen.AuditListTenantParams{Tenant: tenant, Before: before, Max: int32(max)})
	}
	if err != nil {
		return nil, fmt.Errorf("audit: list: %w", err)
	}
	list := make([]Entry, len(rows))
	for i, r := range rows {
		list[i] = Entry{
			ID: r.ID, At: r.At, Tenant: deref(r.Tenant), Actor: r.Actor, ActorName: r.ActorName, Action: r.Action, Target: deref(r.Target),
			Detail: deref(r.Detail), Outcome: deref(r.Outcome),
		}
		if r.Status != nil {
			list[i].Status = int(*r.Status)
		}
	}
	return list, nil
}

// Prune removes those of the next max entries after the given one that are older than
// keep, and returns how many, and where the next batch begins. The log is in the order of
// time: a batch of which nothing was removed is the last with a reason to be looked at.
func (l *Log) Prune(ctx context.Context, keep time.Duration, after int64, max int) (removed, last int64, err error) {
	row, err := queries.PruneAudit(ctx, l.pool, &dbgen.PruneAuditParams{KeepMs: keep.Milliseconds(), After: after, Max: int32(max)})
	if err != nil {
		return 0, after, fmt.Errorf("audit: prune: %w", err)
	}
	return row.Entries, row.Last, nil
}

// some makes a text that PostgreSQL can hold, or NULL of an empty one.
func some(s string) *string {
	if s == "" {
		return nil
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	return &s
}

// someInt is NULL for 0.
func someInt(n int) *int32 {
	if n == 0 {
		return nil
	}
	small := int32(n)
	return &small
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
