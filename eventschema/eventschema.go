// Package eventschema holds payloads to a JSON Schema of their event type before they are
// enqueued, so that no receiver is the first to see what a producer got wrong.
//
//	schemas, err := eventschema.New(eventschema.Config{Schemas: map[string][]byte{"invoice.paid": invoicePaid}})
//	…
//	_, err = schemas.Enqueue(ctx, tx, event) // in place of delivery.Enqueue
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

	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/postlane-go/postlane/delivery"
)

// Config is what a Registry knows.
type Config struct {
	// Schemas are JSON Schemas by event type, exact ones such as invoice.paid. Without
	// $schema they are of draft 2020-12. A $ref leads within its own schema: nothing is
	// loaded, from a file or from anywhere. Required.
	Schemas map[string][]byte

	// Strict refuses events of a type that has no schema. Default: they are let through.
	Strict bool
}

// Registry validates events. It does not change, and is safe for concurrent use.
type Registry struct {
	schemas map[string]*jsonschema.Schema
	strict  bool
}

// New compiles the schemas, or says of each that cannot be what is wrong with it.
func New(config Config) (*Registry, error) {
	if len(config.Schemas) == 0 {
		return nil, errors.New("eventschema: there are no schemas")
	}
	r := &Registry{schemas: make(map[string]*jsonschema.Schema, len(config.Schemas)), strict: config.Strict}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(config.Schemas)) {
		schema, err := compile(config.Schemas[name])
		if err != nil {
			wrong = append(wrong, fmt.Errorf("eventschema: the schema of %q: %w", name, err))
		}
		r.schemas[name] = schema
	}
	return r, errors.Join(wrong...)
}

// own is the address of a schema while it is compiled, to which its references are relative.
const own = "postlane:///schema.json"

func compile(text []byte) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nothing{})
	if err := c.AddResource(own, document); err != nil {
		return nil, err
	}
	return c.Compile(own)
}

// nothing loads nothing: a schema that another party wrote must not make this process read
// a file or ask a host.
type nothing struct{}

func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not in the schema, and nothing else is loaded; put it into $defs", url)
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

// Validate returns an *Error for the first event that does not fit its schema.
func (r *Registry) Validate(events ...delivery.Event) error {
	for i := range events {
		if problems := r.problems(&events[i]); problems != nil {
			return &Error{Index: i, Type: events[i].Type, Problems: problems}
		}
	}
	return nil
}

func (r *Registry) problems(e *delivery.Event) []Problem {
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
		list = leaves(cause, list)
	}
	if len(e.Causes) == 0 && len(list) < maxProblems {
		list = append(list, Problem{At: pointer(e.InstanceLocation), Message: "does not meet " + strings.Join(e.ErrorKind.KeywordPath(), "/")})
	}
	return list
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is a place as a JSON Pointer.
func pointer(keys []string) string {
	var b strings.Builder
	for _, key := range keys {
		b.WriteString("/")
		b.WriteString(escape.Replace(key))
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
