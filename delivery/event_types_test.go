package delivery_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
)

func TestEventTypesAreATenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	put := func(tenant, name string, change ...func(*delivery.EventType)) *delivery.EventType {
		t.Helper()
		e := delivery.EventType{Tenant: tenant, Name: name, Schema: `{ "type" : "object" }`}
		for _, f := range change {
			f(&e)
		}
		written, err := b.store.PutEventType(b.ctx, e)
		b.is.NoErr(err)
		return written
	}
	first := put("acme", "b.b", func(e *delivery.EventType) { e.Validate, e.Description = true, "of b" })
	put("acme", "a.a", func(e *delivery.EventType) { e.Schema, e.Deprecated = "", true })
	put("acme", "B.a")
	put("other", "c.c", func(e *delivery.EventType) { e.Validate = true })

	read, err := b.store.EventType(b.ctx, "acme", "b.b")
	b.is.NoErr(err)
	b.is.Equal(read, first)
	b.is.Equal(read.Schema, `{ "type" : "object" }`) // as it was written
	names := func(tenant string, page delivery.EventTypePage) (names []string) {
		t.Helper()
		list, err := b.store.EventTypes(b.ctx, tenant, page)
		b.is.NoErr(err)
		for _, e := range list {
			b.is.Equal(e.Schema != "", page.Schemas && e.Name != "a.a")
			names = append(names, e.Name)
		}
		return names
	}
	b.is.Equal(names("acme", delivery.EventTypePage{Schemas: true}), []string{"B.a", "a.a", "b.b"}) // by bytes
	b.is.Equal(names("acme", delivery.EventTypePage{Limit: 2}), []string{"B.a", "a.a"})
	b.is.Equal(names("acme", delivery.EventTypePage{Limit: 2, After: "a.a"}), []string{"b.b"})
	b.is.Equal(names("nobody", delivery.EventTypePage{}), nil)

	// A version is told from the one before, though the clock stands still or goes back.
	b.exec(`UPDATE postlane.event_types SET updated_at = now() + interval '1 hour' WHERE name = 'b.b'`)
	before, err := b.store.EventType(b.ctx, "acme", "b.b")
	b.is.NoErr(err)
	validated, err := b.store.ValidatedEventTypes(b.ctx, "acme")
	b.is.NoErr(err)
	b.is.Equal(len(validated), 1)
	b.is.Equal(validated["b.b"], before.UpdatedAt)
	b.is.True(put("acme", "b.b").UpdatedAt.After(before.UpdatedAt))
	validated, err = b.store.ValidatedEventTypes(b.ctx, "acme")
	b.is.NoErr(err)
	b.is.Equal(len(validated), 0)

	b.is.True(errors.Is(b.store.DeleteEventType(b.ctx, "other", "b.b"), delivery.ErrNotFound))
	b.is.NoErr(b.store.DeleteEventType(b.ctx, "acme", "b.b"))
	b.is.True(errors.Is(b.store.DeleteEventType(b.ctx, "acme", "b.b"), delivery.ErrNotFound))
	_, err = b.store.EventType(b.ctx, "acme", "b.b")
	b.is.True(errors.Is(err, delivery.ErrNotFound))
	b.is.Equal(names("acme", delivery.EventTypePage{}), []string{"B.a", "a.a"})
}

func TestOnlyTheVersionThatWasSeenIsReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replace := func(name, description string, version time.Time) (*delivery.EventType, error) {
		return b.store.ReplaceEventType(b.ctx, delivery.EventType{Tenant: "acme", Name: name, Description: description}, version)
	}
	first, err := replace("a.b", "first", time.Time{})
	b.is.NoErr(err)
	_, err = replace("a.b", "another first", time.Time{})
	b.is.True(errors.Is(err, delivery.ErrChanged))
	second, err := replace("a.b", "second", first.UpdatedAt)
	b.is.NoErr(err)
	_, err = replace("a.b", "another second", first.UpdatedAt)
	b.is.True(errors.Is(err, delivery.ErrChanged))
	read, err := b.store.EventType(b.ctx, "acme", "a.b")
	b.is.NoErr(err)
	b.is.Equal(read, second)
	b.is.NoErr(b.store.DeleteEventType(b.ctx, "acme", "a.b"))
	_, err = replace("a.b", "third", second.UpdatedAt)
	b.is.True(errors.Is(err, delivery.ErrNotFound))
	_, err = b.store.ReplaceEventType(b.ctx, delivery.EventType{Tenant: "acme", Name: "a b"}, time.Time{})
	b.is.True(errors.Is(err, delivery.ErrInvalid))

	b.exec(`INSERT INTO postlane.event_types (tenant, name) SELECT 'acme', 'a.' || n FROM generate_series(1, $1) n`, delivery.MaxEventTypes)
	_, err = replace("b", "", time.Time{})
	b.is.True(errors.Is(err, delivery.ErrInvalid)) // one too many
}

func TestATenantHasSoManyEventTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`INSERT INTO postlane.event_types (tenant, name) SELECT 'acme', 'a.' || n FROM generate_series(1, $1) n`, delivery.MaxEventTypes)
	_, err := b.store.PutEventType(b.ctx, delivery.EventType{Tenant: "acme", Name: "b"})
	b.is.True(errors.Is(err, delivery.ErrInvalid))
	for tenant, name := range map[string]string{"acme": "a.7", "other": "b"} { // there already, or another's
		_, err := b.store.PutEventType(b.ctx, delivery.EventType{Tenant: tenant, Name: name})
		b.is.NoErr(err)
	}
}

func TestEventTypesAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for field, change := range map[string]func(*delivery.EventType){
		"Tenant is":          func(e *delivery.EventType) { e.Tenant = "" },
		"Tenant is not":      func(e *delivery.EventType) { e.Tenant = strings.Repeat("x", 129) },
		"Name is empty":      func(e *delivery.EventType) { e.Name = "" },
		"Name \"a.*\"":       func(e *delivery.EventType) { e.Name = "a.*" },
		"begins with":        func(e *delivery.EventType) { e.Name = "postlane.a" },
		"Description":        func(e *delivery.EventType) { e.Description = "\x00" },
		"Schema has 65537":   func(e *delivery.EventType) { e.Schema = "{}" + strings.Repeat(" ", delivery.MaxSchema-1) },
		"Schema is not JSON": func(e *delivery.EventType) { e.Schema = "{} {}" },
		"Schema is":          func(e *delivery.EventType) { e.Schema = "\"\xff\"" },
		"Validate needs":     func(e *delivery.EventType) { e.Validate = true },
	} {
		is := is.New(t)
		e := delivery.EventType{Tenant: "acme", Name: "a.b"}
		change(&e)
		_, err := b.store.PutEventType(b.ctx, e)
		is.True(errors.Is(err, delivery.ErrInvalid))
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not say %q", err, field)
		}
	}
}
