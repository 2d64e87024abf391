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
// see what was changed, or keep a Cache.
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
	size   int
}

// NewCache returns a Cache that is empty.
func NewCache(store *delivery.Store) *Cache {
	return &Cache{store: store, heavy: &sync.Mutex{}, kept: map[key]compiled{}}
}

// Registry returns what a tenant's events are to be validated by, as it is at this moment: the
// schemas of the event types that have Validate set, of all types or of those that are named.
// It asks the database which these are, which costs one look at an index where there are none.
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
	if schema := c.known(k, at); schema != nil {
		return schema, nil
	}
	compiling.Lock()
	defer compiling.Unlock()
	if schema := c.known(k, at); schema != nil {
		return schema, nil
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
		return nil, fmt.Errorf("eventschema: the schema of %q: %w", k.name, err)
	}
	c.keep(k, compiled{t.UpdatedAt, schema, values})
	return schema, nil
}

func (c *Cache) known(k key, at time.Time) *jsonschema.Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, found := c.kept[k]; found && !kept.at.Before(at) {
		return kept.schema
	}
	return nil
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
