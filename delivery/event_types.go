package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

const (
	// MaxEventTypes is how many event types a tenant may describe.
	MaxEventTypes = 1000
	// MaxSchema bounds a schema, in bytes.
	MaxSchema = 64 << 10
)

// EventType describes a tenant's events of one type. Events need no description: those of
// a type that has none are enqueued all the same.
type EventType struct {
	// Tenant is whose it is. Required.
	Tenant string

	// Name is an event type as in Event: invoice.paid. Required.
	Name string

	// Description is for people: UTF-8 without NUL, up to 1000 bytes. Default: "".
	Description string

	// Schema is the JSON Schema of payloads, byte for byte as it was written, up to
	// MaxSchema bytes. Whether it is more than JSON is for package eventschema to say.
	// Default: "", there is none.
	Schema string

	// Validate has the HTTP API refuse payloads that do not meet the schema. Go
	// applications validate with package eventschema; SQL functions do not.
	// Default: false. Needs a schema.
	Validate bool

	// Deprecated says that no new subscriber should want it. It changes nothing about
	// events. Default: false.
	Deprecated bool

	// UpdatedAt is when it was written: no two versions have the same.
	UpdatedAt time.Time
}

// EventTypePage chooses event types of a list.
type EventTypePage struct {
	// After is the name that the page begins behind. Default: "", the first page.
	After string

	// Limit is the most to list. Default and maximum: MaxEventTypes.
	Limit int

	// Schemas wants their schemas too, which may be large together.
	// Default: false, Schema is "" in all.
	Schemas bool
}

// EventTypes lists a tenant's event types in the order of their names.
func (s *Store) EventTypes(ctx context.Context, tenant string, page EventTypePage) ([]*EventType, error) {
	limit := page.Limit
	if limit <= 0 || limit > MaxEventTypes {
		limit = MaxEventTypes
	}
	rows, err := queries.EventTypeList(ctx, s.pool, &dbgen.EventTypeListParams{Tenant: tenant, After: page.After, Schemas: page.Schemas, Max: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("delivery: list the event types of %q: %w", tenant, err)
	}
	list := make([]*EventType, len(rows))
	for i, row := range rows {
		list[i] = newEventType((*dbgen.PostlaneEventTypes)(row))
	}
	return list, nil
}

// ValidatedEventTypes returns which of a tenant's event types have Validate set, and when
// each was written. It is cheap to ask often.
func (s *Store) ValidatedEventTypes(ctx context.Context, tenant string) (map[string]time.Time, error) {
	rows, err := queries.EventTypeValidated(ctx, s.pool, tenant)
	if err != nil {
		return nil, fmt.Errorf("delivery: the validated event types of %q: %w", tenant, err)
	}
	validated := make(map[string]time.Time, len(rows))
	for _, row := range rows {
		validated[row.Name] = row.UpdatedAt.UTC()
	}
	return validated, nil
}

// EventType returns a tenant's event type, or ErrNotFound.
func (s *Store) EventType(ctx context.Context, tenant, name string) (*EventType, error) {
	row, err := queries.EventTypeGet(ctx, s.pool, &dbgen.EventTypeGetParams{Tenant: tenant, Name: name})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("%w: no event type %q", ErrNotFound, name)
	case err != nil:
		return nil, fmt.Errorf("delivery: the event type %q: %w", name, err)
	}
	return newEventType(row), nil
}

// PutEventType writes an event type, new or in place of the one of its name, and returns
// it as it is stored. UpdatedAt of t is not looked at. The error is an *InvalidError if it
// cannot be stored, or if it would be new and the tenant has MaxEventTypes.
func (s *Store) PutEventType(ctx context.Context, t EventType) (*EventType, error) {
	return s.putEventType(ctx, t, &dbgen.EventTypePutParams{AnyVersion: true})
}

// ReplaceEventType is PutEventType for somebody who has seen the event type: it is written
// only in place of the version whose UpdatedAt is given or, with the zero time, if there is
// none. The error is ErrChanged if there is another, and ErrNotFound if it was deleted.
func (s *Store) ReplaceEventType(ctx context.Context, t EventType, version time.Time) (*EventType, error) {
	params := &dbgen.EventTypePutParams{}
	if !version.IsZero() {
		params.Version = &version
	}
	return s.putEventType(ctx, t, params)
}

func (s *Store) putEventType(ctx context.Context, t EventType, params *dbgen.EventTypePutParams) (*EventType, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	params.Tenant, params.Name, params.Description, params.Schema = t.Tenant, t.Name, t.Description, t.Schema
	params.Validate, params.Deprecated, params.Max = t.Validate, t.Deprecated, MaxEventTypes
	at, err := queries.EventTypePut(ctx, s.pool, params)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, s.notPut(ctx, &t, params)
	case err != nil:
		return nil, fmt.Errorf("delivery: write the event type %q: %w", t.Name, err)
	}
	t.UpdatedAt = at.UTC()
	return &t, nil
}

// notPut is why an event type was not written.
func (s *Store) notPut(ctx context.Context, t *EventType, params *dbgen.EventTypePutParams) error {
	if !params.AnyVersion {
		_, err := s.EventType(ctx, t.Tenant, t.Name)
		switch {
		case err == nil:
			return ErrChanged
		case params.Version != nil || !errors.Is(err, ErrNotFound):
			return err
		}
	}
	return &InvalidError{Index: -1, Field: "Name", Problem: fmt.Sprintf("is one more than the %d event types that a tenant may have; delete others", MaxEventTypes)}
}

// DeleteEventType deletes a tenant's event type, or returns ErrNotFound. Its events stay,
// and more may come.
func (s *Store) DeleteEventType(ctx context.Context, tenant, name string) error {
	deleted, err := queries.EventTypeDelete(ctx, s.pool, &dbgen.EventTypeDeleteParams{Tenant: tenant, Name: name})
	switch {
	case err != nil:
		return fmt.Errorf("delivery: delete the event type %q: %w", name, err)
	case deleted == 0:
		return fmt.Errorf("%w: no event type %q", ErrNotFound, name)
	}
	return nil
}

func (t *EventType) check() error {
	invalid := func(field, format string, args ...any) error {
		return &InvalidError{Index: -1, Field: field, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case t.Tenant == "" || len(t.Tenant) > MaxTenant || !isText(t.Tenant):
		return invalid("Tenant", "is not UTF-8 without NUL of 1 to %d bytes; say whose it is", MaxTenant)
	case len(t.Description) > 1000 || !isText(t.Description):
		return invalid("Description", "is not UTF-8 without NUL of at most 1000 bytes")
	case len(t.Schema) > MaxSchema:
		return invalid("Schema", "has %d bytes, more than %d", len(t.Schema), MaxSchema)
	case t.Schema != "" && (!isText(t.Schema) || !json.Valid([]byte(t.Schema))):
		return invalid("Schema", "is not JSON")
	case t.Validate && t.Schema == "":
		return invalid("Validate", "needs a schema")
	case strings.HasPrefix(t.Name, ReservedPrefix):
		return invalid("Name", "%q begins with %s, which is kept for Postlane's own events; choose another name", t.Name, ReservedPrefix)
	}
	if problem := eventTypeProblem(t.Name); problem != "" {
		return invalid("Name", "%s", problem)
	}
	return nil
}

func newEventType(row *dbgen.PostlaneEventTypes) *EventType {
	return &EventType{
		Tenant: row.Tenant, Name: row.Name, Description: row.Description, Schema: row.Schema, Validate: row.Validate, Deprecated: row.Deprecated,
		UpdatedAt: row.UpdatedAt.UTC(),
	}
}
