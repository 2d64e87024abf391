package delivery_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

func (b *bundle) conditions(texts ...string) func(*delivery.Settings) {
	b.t.Helper()
	conditions := make([]delivery.Condition, len(texts))
	for i, text := range texts {
		var err error
		conditions[i], err = delivery.ParseCondition(text)
		b.is.NoErr(err)
	}
	return func(s *delivery.Settings) { s.Conditions = conditions }
}

// reach is the number of deliveries that an event makes by each way of enqueueing it.
func (b *bundle) reach(e delivery.Event) (alone, among, fromSQL int) {
	b.t.Helper()
	count := func(enqueue func(tx pgx.Tx) error) (n int) {
		tx := b.begin()
		defer tx.Rollback(b.ctx)
		b.is.NoErr(enqueue(tx))
		b.is.NoErr(tx.QueryRow(b.ctx, "SELECT count(*) FROM postlane.deliveries WHERE event_type = $1", e.Type).Scan(&n))
		return n
	}
	enqueue := func(events ...delivery.Event) func(pgx.Tx) error {
		return func(tx pgx.Tx) error { _, err := delivery.Enqueue(b.ctx, tx, events...); return err }
	}
	other := delivery.Event{Tenant: e.Tenant, Type: "something.else", Payload: []byte("{}")}
	return count(enqueue(e)), count(enqueue(other, e, other)), count(func(tx pgx.Tx) error {
		_, err := tx.Exec(b.ctx, "SELECT postlane.enqueue($1, $2, $3::bytea, content_type => $4)", e.Tenant, e.Type, e.Payload, e.ContentType)
		return err
	})
}

func TestConditionsAreMetOrNot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const payload = `{"data":{"amount":100.5,"id":12345678901234567890,"below":-5,"country":"DE","note":null,"paid":true,"odd\"key":"a\"b\\",` +
		`"tags":["new","vip"],"items":[{"sku":"a1","n":1},{"sku":"b2","n":7}],"empty":[],"über":"Öl"}}`
	for condition, want := range map[string]bool{
		"data.amount eq 100.5": true, "data.amount eq 100.50": true, `data.amount eq "100.5"`: false, "data.amount eq 1": false,
		"data.id eq 12345678901234567890": true, "data.id eq 12345678901234567891": false,
		"data.amount gt 100": true, "data.amount gt 100.5": false, "data.amount gte 100.5": true, "data.amount lt 1e3": true, "data.amount lte 100": false,
		"data.below lt 0": true, "data.below eq -5": true, "data.below gte -5": true, "data.below gt -4.5": false, "data.below in [-5]": true,
		"data.amount gt a": false, "data.country gt CH": true, "data.country lt CH": false,
		"data.country eq DE": true, "data.country eq de": false, "data.country in [\"AT\",\"DE\"]": true, "data.country in [\"AT\", 7, null]": false,
		"data.country ne DE": false, "data.country ne AT": true, "data.missing ne AT": true, "data.missing eq null": false,
		"data.note eq null": true, "data.note ne null": false, "data.note exists": true, "data.note exists false": false,
		"data.missing exists": false, "data.missing exists false": true, "data.paid eq true": true, "data.paid eq false": false, "missing.deep exists false": true,
		"data.country prefix D": true, "data.country prefix E": false, `data.amount prefix "1"`: false,
		`data.odd"key eq "a\"b\\"`: true, "data.über eq Öl": true, `data.über prefix "\u00d6"`: true,
		"data.tags eq vip": true, "data.tags ne vip": false, "data.tags eq old": false, "data.tags in [\"old\",\"new\"]": true,
		"data.items.sku eq b2": true, "data.items.n gt 5": true, "data.items.n gt 7": false, "data.empty exists": true, "data.empty ne x": true,
		"data exists": true, "data eq null": false, "data.country.deeper exists": false,
	} {
		sub := b.subscribe(b.conditions(condition), func(s *delivery.Settings) { s.EventTypes = []string{"order.*", "order.paid", "x"} })
		alone, among, fromSQL := b.reach(delivery.Event{Tenant: tenant, Type: "order.paid", Payload: []byte(payload)})
		n := 0
		if want {
			n = 1
		}
		if !slices.Equal([]int{alone, among, fromSQL}, []int{n, n, n}) {
			t.Errorf("%s: %d alone, %d among others, %d from SQL, and not %d", condition, alone, among, fromSQL, n)
		}
		b.is.NoErr(b.store.DeleteSubscription(b.ctx, sub))
	}
}

func TestAPayloadThatIsNoDocumentMeetsNoConditionAndFailsNoTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	b.subscribe(b.conditions("missing exists false"))
	for _, c := range []struct {
		payload, contentType string
		reaches              int
	}{
		{`{}`, "", 2},
		{`[]`, "application/json; charset=utf-8", 2},
		{`7`, "Application/CloudEvents+JSON", 2},
		{`{}`, "text/plain", 1},
		{`{}`, "application/jsonp", 1},
		{``, "", 1},
		{`{`, "", 1},
		{"\xff", "", 1},
		{"{}\x00", "", 1},
		{`"\u0000"`, "", 1},
		{`"\ud800"`, "", 1},
		{`1e999999`, "", 1},
		{strings.Repeat("[", 1_000_000), "", 1},
		{strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), "", 1},
	} {
		alone, among, fromSQL := b.reach(delivery.Event{Tenant: tenant, Type: "a", Payload: []byte(c.payload), ContentType: c.contentType})
		if !slices.Equal([]int{alone, among, fromSQL}, []int{c.reaches, c.reaches, c.reaches}) {
			t.Errorf("%.20s of %s reaches %d, %d and %d, and not %d", c.payload, c.contentType, alone, among, fromSQL, c.reaches)
		}
	}
}

func TestAllConditionsHaveToHoldAndOthersFollowNoOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(b.conditions("n gt 1", "n lt 5"))
	b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"thing.*", "other"} })
	var events []delivery.Event
	for _, payload := range []string{`{"n":1}`, `{"n":2}`, `{"n":9}`, `{"n":4}`} {
		e := event("a")
		e.Payload = []byte(payload)
		events = append(events, e)
	}
	b.enqueueEvents(events...)
	of := func() string {
		return one[string](b, `SELECT string_agg(convert_from(e.payload, 'UTF8'), ' ' ORDER BY d.seq) FROM postlane.deliveries d JOIN postlane.events e ON e.id = d.event_id WHERE d.subscription_id = $1`, int64(sub))
	}
	b.is.Equal(of(), `{"n":2} {"n":4}`)
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.deliveries"), 6)
	// The first that matches is ready, though it is not the first of its asset.
	claims := b.claim(10)
	b.is.Equal(len(claims), 2)

	_, err := b.store.UpdateSubscription(b.ctx, sub, b.change(b.conditions("n eq 9")))
	b.is.NoErr(err)
	b.enqueueEvents(events...)
	b.is.Equal(of(), `{"n":2} {"n":4} {"n":9}`)
	updated, err := b.store.UpdateSubscription(b.ctx, sub, b.change(func(s *delivery.Settings) { s.MaxAttempts = 3 }))
	b.is.NoErr(err)
	b.is.Equal(updated.Conditions, []delivery.Condition{{Path: "n", Op: delivery.Eq, Value: json.Number("9")}})
	_, err = b.store.UpdateSubscription(b.ctx, sub, b.change(func(s *delivery.Settings) { s.Conditions = nil }))
	b.is.NoErr(err)
	b.enqueueEvents(events[0])
	b.is.Equal(of(), `{"n":2} {"n":4} {"n":9} {"n":1}`)
}

func (b *bundle) change(f func(*delivery.Settings)) func(*delivery.Settings) error {
	return func(s *delivery.Settings) error { f(s); return nil }
}

func TestConditionsThatCannotBeAreRefusedByName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	many := func(n int, c delivery.Condition) []delivery.Condition {
		return slices.Repeat([]delivery.Condition{c}, n)
	}
	for want, conditions := range map[string][]delivery.Condition{
		"more than 20 entries":     many(21, delivery.Condition{Path: "a", Op: delivery.Exists}),
		"more than 8000 bytes":     many(20, delivery.Condition{Path: "a", Op: delivery.Eq, Value: strings.Repeat("x", 900)}),
		"longer than 256":          {{Path: strings.Repeat("a", 257), Op: delivery.Exists}},
		"more than 16 parts":       {{Path: strings.Repeat("a.", 16) + "a", Op: delivery.Exists}},
		`path ""`:                  {{Op: delivery.Exists}},
		`path "a..b"`:              {{Path: "a..b", Op: delivery.Exists}},
		`path "a b"`:               {{Path: "a b", Op: delivery.Exists}},
		`path "\xff"`:              {{Path: "\xff", Op: delivery.Exists}},
		`"like"; use eq`:           {{Path: "a", Op: "like", Value: "x"}},
		"list of 1 to 100":         {{Path: "a", Op: delivery.In, Value: []string{}}},
		"in, which needs a string": {{Path: "a", Op: delivery.In, Value: []any{[]any{}}}},
		"eq, which needs a string": {{Path: "a", Op: delivery.Eq, Value: map[string]any{}}},
		"exists, which needs":      {{Path: "a", Op: delivery.Exists, Value: 1}},
		"gt, which needs a number": {{Path: "a", Op: delivery.Gt, Value: true}},
		"prefix, which needs":      {{Path: "a", Op: delivery.Prefix, Value: 7}},
		"eq with a string":         {{Path: "a", Op: delivery.Eq, Value: "\x00"}},
		"gte with a number":        {{Path: "a", Op: delivery.Gte, Value: json.Number("1e400")}},
		"lt with a number":         {{Path: "a", Op: delivery.Lt, Value: json.Number("1e-400000")}},
		`value at "a" that cannot`: {{Path: "a", Op: delivery.Eq, Value: func() {}}},
	} {
		_, err := b.store.UpdateSubscription(b.ctx, sub, func(s *delivery.Settings) error { s.Conditions = conditions; return nil })
		var invalid *delivery.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "Conditions" || !strings.Contains(invalid.Problem, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestAConditionIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for text, want := range map[string]string{
		" data.amount  gte  100 ": "data.amount gte 100", "a eq DE": `a eq "DE"`, `a eq "7"`: `a eq "7"`, "a exists": "a exists true", "a eq": "a eq null",
		"a eq two words": `a eq "two words"`, "a eq 1 2": `a eq "1 2"`, `a in ["x", 1]`: `a in ["x",1]`,
		"a eq 5]": `a eq "5]"`, `a eq "x"}`: `a eq "\"x\"}"`,
	} {
		c, err := delivery.ParseCondition(text)
		b.is.NoErr(err)
		b.is.Equal(c.String(), want)
		again, err := delivery.ParseCondition(c.String())
		b.is.NoErr(err)
		b.is.Equal(again, c)
	}
	_, err := delivery.ParseCondition("data.amount over 100")
	b.is.True(errors.Is(err, delivery.ErrInvalid))
}

// What nobody asked for costs nothing: no payload is read, whatever it is.
func TestWithoutConditionsNoPayloadIsRead(t *testing.T) {
	t.Parallel()
	b, _, w := setupPlans(t)
	b.subscribe()
	b.subscribe(b.conditions("a exists"), func(s *delivery.Settings) { s.EventTypes = []string{"another.type"} })
	b.exec(`CREATE OR REPLACE FUNCTION postlane.event_json(payload bytea, content_type text) RETURNS jsonb LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'a payload is read'; END $$`)
	seen := w.During(func() {
		b.enqueueEvents(event("a"))
		b.enqueueEvents(event("a"), event("b"))
	})
	b.is.Equal(len(seen), 2)
	b.exec("SELECT postlane.enqueue('acme', 'thing.changed', '{}', asset => 'c')")
	for i := range seen {
		ran := 0
		for _, n := range seen[i].Root.All() {
			if n.Relation == "subscription_patterns" && n.Loops > 0 {
				ran++
			}
		}
		b.is.Equal(ran, 1) // the fan-out, and no look for conditions
	}
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.deliveries"), 4)
	other := event("a")
	other.Type = "another.type"
	_, err := delivery.Enqueue(b.ctx, b.begin(), other)
	b.is.True(err != nil && strings.Contains(err.Error(), "a payload is read"))
}
