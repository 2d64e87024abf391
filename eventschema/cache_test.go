package eventschema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/eventschema"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func newStore(t *testing.T, pool *pgxpool.Pool) *delivery.Store {
	t.Helper()
	g, err := guard.New(guard.Policy{Development: true})
	is.New(t).NoErr(err)
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: g})
	is.New(t).NoErr(err)
	return store
}

func TestACacheFollowsWhatIsStored(t *testing.T) {
	t.Parallel()
	is, ctx := is.New(t), t.Context()
	store := newStore(t, pgtest.New(t))
	cache := eventschema.NewCache(store)
	put := func(tenant, schema string, validate bool) {
		t.Helper()
		_, err := store.PutEventType(ctx, delivery.EventType{Tenant: tenant, Name: "a.b", Schema: schema, Validate: validate})
		is.NoErr(err)
	}
	refuses := func(tenant string, types ...string) bool {
		t.Helper()
		r, err := cache.Registry(ctx, tenant, types...)
		is.NoErr(err)
		loaded, err := eventschema.Load(ctx, store, tenant)
		is.NoErr(err)
		e := delivery.Event{Tenant: tenant, Type: "a.b", Payload: []byte(`"text"`)}
		if types == nil {
			is.Equal(loaded.Validate(e) != nil, r.Validate(e) != nil)
		}
		return r.Validate(e) != nil
	}
	is.True(!refuses("acme"))
	put("acme", `{"type":"integer"}`, true)
	put("other", `{"type":"string"}`, true)
	for range 2 { // then from memory
		is.True(refuses("acme"))
		is.True(refuses("acme", "x", "a.b"))
		is.True(!refuses("acme", "x")) // was not asked for
		is.True(!refuses("other"))
	}
	put("acme", `{"type":"string"}`, true)
	is.True(!refuses("acme"))
	put("acme", `{"type":"integer"}`, false)
	is.True(!refuses("acme"))
	put("acme", `{"type":"integer"}`, true)
	is.True(refuses("acme"))
	is.NoErr(store.DeleteEventType(ctx, "acme", "a.b"))
	is.True(!refuses("acme"))

	put("acme", `{"type":"thing"}`, true) // past the API
	for range 2 {
		_, err := cache.Registry(ctx, "acme")
		unusable, ok := errors.AsType[*eventschema.SchemaError](err)
		is.True(ok && !errors.Is(err, delivery.ErrInvalid))
		is.Equal([]string{unusable.Tenant, unusable.Type}, []string{"acme", "a.b"})
		is.True(strings.Contains(err.Error(), "/type"))
		_, err = cache.Registry(ctx, "acme", "x") // was not asked for
		is.NoErr(err)
	}
	put("acme", `{"type":"integer"}`, true)
	is.True(refuses("acme"))
}

// More schemas than fit are all right, one after another.
func TestACacheIsBounded(t *testing.T) {
	t.Parallel()
	is, ctx := is.New(t), t.Context()
	store := newStore(t, pgtest.New(t))
	cache := eventschema.NewCache(store)
	wide := `{"enum":[0` // 2,500 values each
	for i := range 2500 {
		wide += fmt.Sprintf(",%d", i)
	}
	for i := range 50 {
		_, err := store.PutEventType(ctx, delivery.EventType{Tenant: "acme", Name: fmt.Sprintf("a.t%d", i), Schema: wide + "]}", Validate: true})
		is.NoErr(err)
	}
	for range 2 {
		r, err := cache.Registry(ctx, "acme")
		is.NoErr(err)
		for i := range 50 {
			is.True(r.Validate(delivery.Event{Type: fmt.Sprintf("a.t%d", i), Payload: []byte(`-1`)}) != nil)
		}
		is.True(eventschema.Kept(cache) <= 100_000)
	}
}
