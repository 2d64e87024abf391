package eventschema

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/postlane-go/postlane/delivery"
)

// Load returns a Registry of the schemas of a tenant's event types that have Validate set, as
// they are in the store at this moment; of none, it lets everything through. Call it anew to
// see what was changed, or keep a Cache. The error is a *SchemaError if one of them cannot be
// used.
func Load(ctx context.Context, store *delivery.Store, tenant string) (*Registry, error) {
	return NewCache(store).Registry(ctx, tenant)
}

// maxCached bounds the schemas that a Cache keeps compiled, by their JSON values, which take
// up to a kilobyte each.
const maxCached = 100_000

// Cache returns Registries of the tenants of a Store, and compiles each version of a schema
// once. It is safe for concurrent use.
type Cache struct {
	store *delivery.Store
	heavy *sync.Mutex

	mu   sync.Mutex
	kept map[key]compiled
	size int // JSON values
}

type key struct{ tenant, name string }

type compiled struct {
	at     time.Time // of its version
	schema *jsonschema.Schema
	err    error // why there is none
	size   int
}

// SchemaError says that the schema of an event type which has Validate set cannot be used:
// it was stored without Check. Its events cannot be validated until it is written anew, or
// Validate is unset.
type SchemaError struct {
	// Tenant is whose event type it is, and Type its name.
	Tenant, Type string
	// Err is what Check says of the schema.
	Err error
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("eventschema: the schema of event type %q of tenant %q cannot be used: %v", e.Type, e.Tenant, e.Err)
}

// Unwrap returns Err.
func (e *SchemaError) Unwrap() error { return e.Err }

// NewCache returns a Cache that is empty.
func NewCache(store *delivery.Store) *Cache {
	return &Cache{store: store, heavy: &sync.Mutex{}, kept: map[key]compiled{}}
}

// Registry returns what a tenant's events are to be validated by, as it is at this moment: the
// schemas of the event types that have Validate set, of all types or of those that are named.
// It asks the database which these are, which costs one look at an index where there are none.
// The error is a *SchemaError if one of the schemas cannot be used.
func (c *Cache) Registry(ctx context.Context, tenant string, types ...string) (*Registry, error) {
	versions, err := c.store.ValidatedEventTypes(ctx, tenant)
	if err != nil {
		return nil, err
	}
	r := &Registry{schemas: map[string]*jsonschema.Schema{}, heavy: c.heavy}
	if len(versions) == 0 {
		return r, nil
	}
	if len(types) == 0 {
		for name := range versions {
			types = append(types, name)
		}
	}
	for _, name := range types {
		at, validated := versions[name]
		if !validated || r.schemas[name] != nil {
			continue
		}
		schema, err := c.schema(ctx, key{tenant, name}, at)
		if err != nil {
			return nil, err
		}
		if schema != nil {
			r.schemas[name] = schema
		}
	}
	return r, nil
}

// schema returns a version of a schema, or a later one; nil if it is there no more.
func (c *Cache) schema(ctx context.Context, k key, at time.Time) (*jsonschema.Schema, error) {
	if kept, found := c.known(k, at); found {
		return kept.schema, kept.err
	}
	compiling.Lock()
	defer compiling.Unlock()
	if kept, found := c.known(k, at); found {
		return kept.schema, kept.err
	}
	t, err := c.store.EventType(ctx, k.tenant, k.name)
	switch {
	case errors.Is(err, delivery.ErrNotFound), err == nil && !t.Validate:
		return nil, nil //nolint:nilnil // it is not validated any more
	case err != nil:
		return nil, err
	}
	schema, values, err := compile([]byte(t.Schema))
	if err != nil {
		schema, err = nil, &SchemaError{k.tenant, k.name, err}
	}
	c.keep(k, compiled{t.UpdatedAt, schema, err, max(values, 1)})
	return schema, err
}

func (c *Cache) known(k key, at time.Time) (compiled, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, found := c.kept[k]
	return kept, found && !kept.at.Before(at)
}

// keep adds a schema, and drops any others for it that it has no room beside.
func (c *Cache) keep(k key, n compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size += n.size - c.kept[k].size
	delete(c.kept, k)
	for other, old := range c.kept {
		if c.size <= maxCached {
			break
		}
		c.size -= old.size
		delete(c.kept, other)
	}
	c.kept[k] = n
}
