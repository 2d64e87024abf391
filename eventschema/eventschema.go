// Package eventschema holds payloads to a JSON Schema of their event type before they are
// enqueued, so that no receiver is the first to see what a producer got wrong.
//
//	schemas, err := eventschema.New(eventschema.Config{Schemas: map[string][]byte{"invoice.paid": invoicePaid}})
//	…
//	_, err = schemas.Enqueue(ctx, tx, event) // in place of delivery.Enqueue
//
// Load takes the schemas that a tenant's event types have in a delivery.Store, and a Cache
// those of many tenants. PostgreSQL validates nothing: an event that is enqueued with
// delivery.Enqueue or by a SQL function is not held to a schema.
//
// It is a package of its own, so that who does without does not compile a validator in.
package eventschema

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/postlane-go/postlane/delivery"
)

// Config is what a Registry knows.
type Config struct {
	// Schemas are JSON Schemas by event type, exact ones such as invoice.paid. Without
	// $schema they are of draft 2020-12. A $ref leads within its own schema: nothing is
	// loaded, from a file or from anywhere. Each has up to delivery.MaxSchema bytes and
	// branches within bounds; see Check. Required.
	Schemas map[string][]byte

	// Strict refuses events of a type that has no schema. Default: they are let through.
	Strict bool
}

// Registry validates events. It does not change, and is safe for concurrent use.
type Registry struct {
	schemas map[string]*jsonschema.Schema
	strict  bool
	// heavy is held while much is validated, so that what it takes is taken once.
	heavy *sync.Mutex
}

// New compiles the schemas, or says of each that cannot be what is wrong with it.
func New(config Config) (*Registry, error) {
	if len(config.Schemas) == 0 {
		return nil, errors.New("eventschema: there are no schemas")
	}
	r := &Registry{schemas: make(map[string]*jsonschema.Schema, len(config.Schemas)), strict: config.Strict, heavy: &sync.Mutex{}}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(config.Schemas)) {
		schema, _, err := compile(config.Schemas[name])
		if err != nil {
			wrong = append(wrong, fmt.Errorf("eventschema: the schema of %q: %w", name, err))
		}
		r.schemas[name] = schema
	}
	return r, errors.Join(wrong...)
}

// Enqueue is delivery.Enqueue for events that fit their schemas. If one does not, the error
// is an *Error, and nothing was sent to the database. With database/sql, call Validate
// before deliverysql.Enqueue.
func (r *Registry) Enqueue(ctx context.Context, tx pgx.Tx, events ...delivery.Event) ([]delivery.Enqueued, error) {
	if err := r.Validate(events...); err != nil {
		return nil, err
	}
	return delivery.Enqueue(ctx, tx, events...)
}

// Validate returns an *Error for the first event that does not fit its schema. What it may
// take is bounded by the size of the payloads, whatever the schemas are: a payload that would
// take more does not fit.
func (r *Registry) Validate(events ...delivery.Event) error {
	left := baseWork
	for i := range events {
		if problems := r.problems(&events[i], &left); problems != nil {
			return &Error{Index: i, Type: events[i].Type, Problems: problems}
		}
	}
	return nil
}

// problems are those of an event; left is the work that the call may still take.
func (r *Registry) problems(e *delivery.Event, left *int) []Problem {
	schema := r.schemas[e.Type]
	if schema == nil {
		if r.strict {
			return []Problem{{Message: "the type has no schema"}}
		}
		return nil
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Payload))
	if err != nil {
		return []Problem{{Message: "the payload is not JSON"}}
	}
	if problem := oversize(document, 0, new(int)); problem != "" {
		return []Problem{{Message: "the payload " + problem}}
	}
	*left += workPerByte * len(e.Payload)
	allowed := min(*left, maxWork)
	work := meter{allowed}
	if !work.value(schema, document, 0) {
		return []Problem{{Message: "the payload takes too much work to validate by its schema; make either smaller, or the schema branch less"}}
	}
	taken := allowed - work.left
	*left -= taken
	if taken > heavyPayload {
		r.heavy.Lock()
		defer r.heavy.Unlock()
	}
	err = schema.Validate(document)
	if err == nil {
		return nil
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return leaves(invalid, nil)
	}
	return []Problem{{Message: "the payload cannot be validated"}}
}

// maxProblems is how many problems of an event are told.
const maxProblems = 20

// leaves adds what an error comes down to.
func leaves(e *jsonschema.ValidationError, list []Problem) []Problem {
	for _, cause := range e.Causes {
		if len(list) == maxProblems {
			return list
		}
		list = leaves(cause, list)
	}
	if len(e.Causes) == 0 && len(list) < maxProblems {
		list = append(list, Problem{At: pointer(e.InstanceLocation), Message: message(e.ErrorKind)})
	}
	return list
}

// message says what is not met, in words of the schema.
func message(of jsonschema.ErrorKind) string {
	text := "does not meet " + strings.Join(of.KeywordPath(), "/")
	switch of := of.(type) {
	case *kind.Type:
		text += " (" + strings.Join(of.Want, ", ") + ")"
	case *kind.Required:
		text += " (" + strings.Join(of.Missing[:min(len(of.Missing), maxProblems)], ", ") + ")"
	case *kind.FalseSchema:
		text = "is not allowed"
	}
	return text
}

// maxPointer is the longest place that is told, in bytes.
const maxPointer = 300

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is a place as a JSON Pointer, or the beginning of a long one and a "…".
func pointer(keys []string) string {
	var b strings.Builder
	for _, key := range keys {
		b.WriteString("/")
		b.WriteString(escape.Replace(key))
	}
	if text := b.String(); len(text) > maxPointer {
		return strings.ToValidUTF8(text[:maxPointer], "") + "…"
	}
	return b.String()
}

// Error says why an event does not fit. It matches delivery.ErrInvalid. It names places of the
// payload and keywords of the schema, never a value: it may be logged.
type Error struct {
	// Index is the event's, in the order of the call, and Type its type.
	Index int
	Type  string
	// Problems are what is wrong with it, up to 20.
	Problems []Problem
}

// Problem is one thing that is wrong.
type Problem struct {
	// At is where in the payload, a JSON Pointer; "" for the whole.
	At string
	// Message is what is wrong there.
	Message string
}

func (e *Error) Error() string {
	list := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		list[i] = p.Message
		if p.At != "" {
			list[i] = p.At + " " + p.Message
		}
	}
	return fmt.Sprintf("eventschema: event %d of type %q: %s", e.Index, e.Type, strings.Join(list, "; "))
}

// Is reports delivery.ErrInvalid.
func (e *Error) Is(target error) bool { return target == delivery.ErrInvalid }
