package eventschema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/eventschema"
	"github.com/postlane-go/postlane/internal/pgtest"
)

const invoicePaid = `{
	"type": "object", "required": ["id", "total"], "additionalProperties": false,
	"properties": {
		"id": {"type": "string", "pattern": "^in_"}, "total": {"$ref": "#/$defs/money"},
		"lines/all": {"type": "array", "items": {"enum": ["a", "b"]}}
	},
	"$defs": {"money": {"type": "integer", "minimum": 1}}
}`

func registry(t *testing.T, strict bool) *eventschema.Registry {
	t.Helper()
	r, err := eventschema.New(eventschema.Config{Schemas: map[string][]byte{"invoice.paid": []byte(invoicePaid)}, Strict: strict})
	is.New(t).NoErr(err)
	return r
}

func TestAnEventFitsItsSchemaOrIsRefusedWithoutItsValues(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := registry(t, false)
	for payload, want := range map[string]string{
		`{"id":"in_1","total":12345678901234567890}`:     "",
		`{"id":"in_1","total":0}`:                        "/total does not meet minimum",
		`{"id":"s3cret","total":1}`:                      "/id does not meet pattern",
		`{"id":"in_1","total":"s3cret"}`:                 "/total does not meet type",
		`{"id":"in_1","total":1,"lines/all":["s3cret"]}`: "/lines~1all/0 does not meet enum",
		`{"id":"in_1","total":1,"more":"s3cret"}`:        "does not meet additionalProperties",
		`{"id":"s3cret","total":-1}`:                     "; ",
		`{}`:                                             "does not meet required",
		`s3cret`:                                         "the payload is not JSON",
		``:                                               "the payload is not JSON",
		`{"id":"in_1","total":1} {"id":"in_1","total":1}`: "the payload is not JSON",
	} {
		err := r.Validate(delivery.Event{Type: "other", Payload: []byte("any")}, delivery.Event{Type: "invoice.paid", Payload: []byte(payload)})
		if want == "" {
			is.NoErr(err)
			continue
		}
		var invalid *eventschema.Error
		is.True(errors.As(err, &invalid) && errors.Is(err, delivery.ErrInvalid))
		is.Equal(invalid.Index, 1)
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", payload, err)
		}
	}
	err := registry(t, true).Validate(delivery.Event{Type: "other", Payload: []byte("{}")})
	is.True(strings.Contains(fmt.Sprint(err), "has no schema"))
}

func TestASchemaThatCannotBeIsRefusedAndNothingIsLoaded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for text, want := range map[string]string{
		`{`: "unexpected", `{"type":"thing"}`: "type", `{"$ref":"file:///etc/passwd"}`: "nothing else is loaded",
		`{"$ref":"https://example.com/x.json"}`: "nothing else is loaded", `{"$ref":"#/$defs/missing"}`: "missing",
	} {
		_, err := eventschema.New(eventschema.Config{Schemas: map[string][]byte{"a.b": []byte(text), "fine": []byte("{}")}})
		if err == nil || !strings.Contains(err.Error(), `"a.b"`) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err := eventschema.New(eventschema.Config{})
	is.True(err != nil)
}

func TestOnlyWhatFitsIsEnqueued(t *testing.T) {
	t.Parallel()
	is, ctx, pool, r := is.New(t), t.Context(), pgtest.New(t), registry(t, false)
	good := delivery.Event{ID: "good", Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":"in_1","total":1}`)}
	bad := good
	bad.ID, bad.Payload = "bad", []byte(`{}`)
	is.NoErr(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := r.Enqueue(ctx, tx, good, bad)
		is.True(errors.Is(err, delivery.ErrInvalid))
		enqueued, err := r.Enqueue(ctx, tx, good) // the transaction goes on
		is.Equal(len(enqueued), 1)
		return err
	}))
	var ids string
	is.NoErr(pool.QueryRow(ctx, "SELECT string_agg(id, ' ') FROM postlane.events").Scan(&ids))
	is.Equal(ids, "good")
}
