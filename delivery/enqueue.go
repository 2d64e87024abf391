package delivery

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/lockwait"
	"github.com/postlane-go/postlane/internal/traceparent"
	"github.com/postlane-go/postlane/internal/wake"
)

// Enqueued tells what became of an event of an Enqueue.
type Enqueued struct {
	// ID is the event's id, the generated one where none was given.
	ID string
	// Seq is its place in the order of all events.
	Seq int64
	// Duplicate says that the event was stored before, and nothing new was.
	Duplicate bool
}

// Enqueue writes events, and a delivery for each subscription that they match, in
// the caller's transaction: they exist if and only if it commits. However many
// events there are, it is one round trip to the database (a second one only to
// look at an id that was used before).
//
// The order of the events of a call, and of the calls of a transaction, is the order
// in which each stream receives them. Between concurrent transactions order is best
// effort; see Serialize.
//
// The answer is parallel to events. An event whose id was enqueued before, with the
// same type, asset, content type and payload, is that event: it is not stored or
// sent again. With a different content the error is a *ConflictError (ErrConflict).
// An event that cannot be stored is an *InvalidError (ErrInvalid), found before
// anything is sent to the database. After either error, and after ErrBusy, the call
// has stored nothing and the transaction is as it was before: the caller may go on
// and commit. Any other error comes from the database or the connection and has
// ended the transaction.
//
// Enqueue waits for nobody but another open transaction that enqueues the very same
// id, and for that at most half a second (ErrBusy), which is less than PostgreSQL
// takes to look for a deadlock. It reads nothing that a dispatcher writes.
func Enqueue(ctx context.Context, tx pgx.Tx, events ...Event) ([]Enqueued, error) {
	if len(events) == 1 && events[0].ID == "" {
		one, err := enqueueNew(ctx, tx, &events[0])
		if err != nil {
			return nil, err
		}
		return []Enqueued{one}, nil
	}
	c, err := newEnqueueCall(traceparent.Of(ctx), events)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	stored, err := c.store(ctx, tx)
	if err != nil {
		return nil, err
	}
	before := map[eventKey]int64{}
	if len(stored) < len(c.params.Ids) {
		if before, err = c.resolve(ctx, tx, stored); err != nil {
			return nil, errors.Join(err, undo(ctx, tx, stored))
		}
	}
	return c.answer(stored, before), nil
}

// enqueueNew enqueues an event to which it gives an id. Nobody else has that, so nothing
// is waited for and nothing is in its way: the shortest way for what is most frequent.
func enqueueNew(ctx context.Context, tx pgx.Tx, e *Event) (Enqueued, error) {
	if err := e.check(0); err != nil {
		return Enqueued{}, err
	}
	arg := dbgen.EventEnqueueNewParams{
		Tenant: e.Tenant, ID: newEventID(), Type: e.Type, Asset: some(e.Asset),
		ContentType: cmp.Or(e.ContentType, DefaultContentType), Payload: e.payload(),
		Traceparent: some(cmp.Or(e.Traceparent, traceparent.Of(ctx))),
		Wake:        wake.Allow(), Patterns: patternsOf(e.Type),
	}
	if !e.DeliverAfter.IsZero() {
		at := e.DeliverAfter.UTC()
		arg.DueAt = &at
	}
	stored, err := queries.EventEnqueueNew(ctx, tx, &arg)
	if err != nil {
		return Enqueued{}, fmt.Errorf("delivery: enqueue: %w", err)
	}
	return Enqueued{ID: arg.ID, Seq: stored.Seq}, nil
}

// Serialize makes transactions that write about the same assets take turns: it waits
// until no other open transaction has serialized one of them, and holds them until
// this transaction ends. Called before the change is read and written, it makes the
// order of the assets' events exactly the order of the commits.
//
// Name all assets of a transaction in one call: separate calls in different orders
// can deadlock, as any two locks can. The events without an asset are "".
func Serialize(ctx context.Context, tx pgx.Tx, assets ...string) error {
	if len(assets) == 0 {
		return nil
	}
	for _, a := range assets {
		if !isText(a) {
			return &InvalidError{Index: -1, Field: "asset", Problem: "is not UTF-8 without NUL"}
		}
	}
	if err := queries.AssetSerialize(ctx, tx, assets); err != nil {
		return fmt.Errorf("delivery: serialize: %w", err)
	}
	return nil
}

var queries = dbgen.New()

type eventKey struct{ tenant, id string }

// enqueueCall is one call of Enqueue.
type enqueueCall struct {
	params dbgen.EventEnqueueParams
	// keys is parallel to the caller's events; some may be equal.
	keys []eventKey
	// position is where in params an event stands.
	position map[eventKey]int
	// contested says that an id was given by the caller, so that another
	// transaction may hold it.
	contested bool
}

func newEnqueueCall(parent string, events []Event) (*enqueueCall, error) {
	n := len(events)
	c := &enqueueCall{keys: make([]eventKey, n), position: make(map[eventKey]int, n)}
	c.params = dbgen.EventEnqueueParams{
		Tenants: make([]string, 0, n), Ids: make([]string, 0, n), Types: make([]string, 0, n),
		Assets: make([]string, 0, n), ContentTypes: make([]string, 0, n), Payloads: make([][]byte, 0, n), Traceparents: make([]string, 0, n),
		Wake: wake.Allow(),
	}
	types := make(map[string]bool, 1)
	for i := range events {
		e := &events[i]
		if err := e.check(i); err != nil {
			return nil, err
		}
		key := eventKey{e.Tenant, e.ID}
		if key.id == "" {
			key.id = newEventID()
		} else {
			c.contested = true
		}
		c.keys[i] = key
		contentType := cmp.Or(e.ContentType, DefaultContentType)
		if j, again := c.position[key]; again {
			if differs := c.differs(j, e.Type, e.Asset, contentType, bytes.Equal(c.params.Payloads[j], e.Payload)); differs != nil {
				return nil, &ConflictError{Tenant: key.tenant, ID: key.id, Differs: differs}
			}
			continue
		}
		c.position[key] = len(c.params.Ids)
		c.params.Tenants = append(c.params.Tenants, key.tenant)
		c.params.Ids = append(c.params.Ids, key.id)
		c.params.Types = append(c.params.Types, e.Type)
		c.params.Assets = append(c.params.Assets, e.Asset)
		c.params.ContentTypes = append(c.params.ContentTypes, contentType)
		c.params.Payloads = append(c.params.Payloads, e.payload())
		c.params.Traceparents = append(c.params.Traceparents, cmp.Or(e.Traceparent, parent))
		if !e.DeliverAfter.IsZero() {
			c.params.DelayedTenants = append(c.params.DelayedTenants, key.tenant)
			c.params.DelayedIds = append(c.params.DelayedIds, key.id)
			c.params.DueUs = append(c.params.DueUs, e.DeliverAfter.UnixMicro())
		}
		if !types[e.Type] {
			types[e.Type] = true
			for _, p := range patternsOf(e.Type) {
				c.params.TypeOf = append(c.params.TypeOf, e.Type)
				c.params.Patterns = append(c.params.Patterns, p)
			}
		}
	}
	return c, nil
}

// store writes the events and returns the seq of those that were new.
func (c *enqueueCall) store(ctx context.Context, tx pgx.Tx) (map[eventKey]int64, error) {
	sql, args := c.statement()
	stored := make(map[eventKey]int64, len(c.params.Ids))
	err := lockwait.Query(ctx, tx, c.contested, sql, args, func(rows pgx.Rows) error { return c.read(rows, stored) })
	switch {
	case errors.Is(err, lockwait.ErrBusy):
		return nil, ErrBusy
	case err != nil:
		return nil, fmt.Errorf("delivery: enqueue: %w", err)
	}
	return stored, nil
}

// statement returns what stores the events: one event has a cheaper statement.
func (c *enqueueCall) statement() (sql string, args []any) {
	p := &c.params
	if len(p.Ids) > 1 {
		return dbgen.EventEnqueue, []any{
			p.Wake, p.Ids, p.Tenants, p.Types, p.Assets, p.ContentTypes, p.Payloads, p.Traceparents, p.TypeOf, p.Patterns,
			p.DelayedTenants, p.DelayedIds, p.DueUs,
		}
	}
	var due *time.Time
	if len(p.DueUs) > 0 {
		at := time.UnixMicro(p.DueUs[0]).UTC()
		due = &at
	}
	return dbgen.EventEnqueueOne, []any{p.Wake, p.Tenants[0], p.Ids[0], p.Types[0], some(p.Assets[0]), p.ContentTypes[0], p.Payloads[0], some(p.Traceparents[0]), due, p.Patterns}
}

// some returns what is stored of an optional text: NULL for "".
func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// read notes the seq of each event that the statement answers with.
func (c *enqueueCall) read(rows pgx.Rows, stored map[eventKey]int64) error {
	key := c.keys[0]
	var seq, fanned int64
	var woken string
	into := []any{&seq, &woken}
	if len(c.params.Ids) > 1 {
		into = []any{&key.id, &key.tenant, &seq, &fanned, &woken}
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		stored[key] = seq
	}
	return rows.Err()
}

// undo takes back what a call stored before it found an id taken.
func undo(ctx context.Context, tx pgx.Tx, stored map[eventKey]int64) error {
	if len(stored) == 0 {
		return nil
	}
	var arg dbgen.EventUndoParams
	for key, seq := range stored {
		arg.Tenants = append(arg.Tenants, key.tenant)
		arg.Ids = append(arg.Ids, key.id)
		arg.Seqs = append(arg.Seqs, seq)
	}
	if err := queries.EventUndo(ctx, tx, &arg); err != nil {
		return fmt.Errorf("delivery: enqueue: %w", err)
	}
	return nil
}

// resolve returns the events that were stored before under the ids that are not in
// stored, or an error if one of them is another event.
func (c *enqueueCall) resolve(ctx context.Context, tx pgx.Tx, stored map[eventKey]int64) (map[eventKey]int64, error) {
	var arg dbgen.EventGetManyParams
	for i, id := range c.params.Ids {
		if _, ok := stored[eventKey{c.params.Tenants[i], id}]; !ok {
			arg.Tenants = append(arg.Tenants, c.params.Tenants[i])
			arg.Ids = append(arg.Ids, id)
		}
	}
	rows, err := queries.EventGetMany(ctx, tx, &arg)
	if err != nil {
		return nil, fmt.Errorf("delivery: enqueue: %w", err)
	}
	before := make(map[eventKey]int64, len(rows))
	for _, e := range rows {
		key := eventKey{e.Tenant, e.ID}
		i := c.position[key]
		digest := sha256.Sum256(c.params.Payloads[i])
		asset := ""
		if e.Asset != nil {
			asset = *e.Asset
		}
		if differs := c.differs(i, e.Type, asset, e.ContentType, bytes.Equal(digest[:], e.Digest)); differs != nil {
			return nil, &ConflictError{Tenant: e.Tenant, ID: e.ID, Differs: differs}
		}
		before[key] = e.Seq
	}
	if len(before) < len(arg.Ids) {
		// Under repeatable read: committed meanwhile, and not visible here.
		return nil, ErrBusy
	}
	return before, nil
}

func (c *enqueueCall) differs(i int, eventType, asset, contentType string, samePayload bool) (fields []string) {
	p := &c.params
	for _, f := range []struct {
		name string
		same bool
	}{
		{"type", p.Types[i] == eventType},
		{"asset", p.Assets[i] == asset},
		{"content type", p.ContentTypes[i] == contentType},
		{"payload", samePayload},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	return fields
}

func (c *enqueueCall) answer(stored, before map[eventKey]int64) []Enqueued {
	answer := make([]Enqueued, len(c.keys))
	for i, key := range c.keys {
		seq, fresh := stored[key]
		if fresh {
			// Given twice in this call, it is new once.
			stored[key] = -seq
			fresh, seq = seq > 0, max(seq, -seq)
		} else {
			seq = before[key]
		}
		answer[i] = Enqueued{ID: key.id, Seq: seq, Duplicate: !fresh}
	}
	return answer
}
