package eventschema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/eventschema"
)

// nested is text n times within itself, where it says INNER.
func nested(text, innermost string, n int) string {
	for range n {
		innermost = strings.Replace(text, "INNER", innermost, 1)
	}
	return innermost
}

// doubling is a schema of n definitions that each refer twice to the next: 2^n paths.
func doubling(n int) string {
	defs := []string{fmt.Sprintf(`"d%d":{"type":"null"}`, n)}
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	return `{"$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `}}`
}

func TestASchemaThatWouldBurnIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ schema, want string }{
		"exponential":   {doubling(40), "branches into more than"},
		"itself":        {`{"$ref":"#"}`, "comes back to itself"},
		"itself around": {`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"not":{"$ref":"#"}}}}`, "comes back to itself"},
		"below":         {strings.Replace(doubling(40), `{"$ref":"#/$defs/d0"`, `{"properties":{"a":{"$ref":"#/$defs/d0"}}`, 1), "branches into more than"},
		"deep":          {nested(`{"not":INNER}`, "true", 7000), "nested more than 64 levels"},
		"many":          {`{"enum":[` + strings.Repeat("1,", 10000) + `1]}`, "10003 JSON values"},
		"pattern":       {`{"pattern":"` + strings.Repeat("(a{1000})?", 90) + `"}`, "too large together"},
		"patterns":      {`{"properties":{"a":{"pattern":"(a{1000})"},"b":{"pattern":"b{1000}"},"c":{"pattern":"c{1000}"},"d":{"pattern":"d{1000}"}}}`, "too large together"},
		"long pattern":  {`{"pattern":"` + strings.Repeat("a", 1001) + `"}`, "1001 bytes"},
		"dynamic":       {`{"$dynamicRef":"#a","$dynamicAnchor":"a"}`, "use $ref"},
		"metaschema":    {`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "use $ref"},
		"number":        {`{"minimum":1e999999999}`, "digits"},
		"dialect":       {`{"$schema":"https://example.com/mine.json"}`, "nothing else is loaded"},
		"large":         {`{"title":"` + strings.Repeat("a", delivery.MaxSchema) + `"}`, "more than 65536"},
	} {
		err := eventschema.Check([]byte(c.schema))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "postlane:") {
			t.Errorf("%s: %.300v does not say %q", name, err, c.want)
		}
	}
}

// tree is a schema that is right for trees, and hostile for what is a tree almost: each level
// is tried as often as the one above, twice.
const tree = `{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#"}},"required":["x"]},{"type":"object","properties":{"a":{"$ref":"#"}},"required":["y"]}]}`

func TestAPayloadThatWouldBurnIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 100_000)
	numbers := "[" + strings.Repeat("1,", 20_000) + "2]"
	for name, c := range map[string]struct{ schema, payload, want string }{
		"branches":       {tree, nested(`{"a":INNER}`, `{}`, 50), "too much work"},
		"a few branches": {tree, nested(`{"a":INNER}`, `{}`, 5), "does not meet required"},
		"deep":           {`{"items":{"$ref":"#"}}`, nested("[INNER]", "[]", 9000), "more than 64 levels"},
		"pattern":        {`{"pattern":"(a|a|a){300}$"}`, `"` + long + `b"`, "too much work"},
		"enum":           {`{"items":{"enum":[` + strings.Repeat("3,", 2000) + `4]}}`, numbers, "too much work"},
		"unique":         {`{"items":{"uniqueItems":true}}`, "[" + strings.Repeat(numbers+",", 19) + "[]]", "too much work"},
		"a format":       {`{"$schema":"http://json-schema.org/draft-07/schema#","items":{"format":"regex"}}`, `["` + strings.Repeat(strings.Repeat(`(a{1000})`, 100)+`","`, 100) + `"]`, "too much work"},
		"number":         {`{"minimum":1}`, `1e99999999`, "digits"},
		"digits":         {`{"minimum":1}`, strings.Repeat("9", 10_000), "digits"},
		"many errors":    {`{"items":{"anyOf":[` + strings.Repeat(`{"type":"string"},`, 30) + `false]}}`, "[" + strings.Repeat("1,", 1_000_000) + "2]", "too much work"},
	} {
		is := is.New(t)
		r, err := eventschema.New(eventschema.Config{Schemas: map[string][]byte{"a": []byte(c.schema)}})
		is.NoErr(err)
		err = r.Validate(delivery.Event{Type: "a", Payload: []byte(c.payload)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v does not say %q", name, err, c.want)
		}
	}
}

// The work of a call is bounded, however many events share it.
func TestManyEventsShareTheirWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r, err := eventschema.New(eventschema.Config{Schemas: map[string][]byte{"a": []byte(`{"enum":[` + strings.Repeat(`0,`, 1000) + `1]}`)}})
	is.NoErr(err)
	e := delivery.Event{Type: "a", Payload: []byte("1")}
	is.NoErr(r.Validate(e))
	events := make([]delivery.Event, 100)
	for i := range events {
		events[i] = e
	}
	err = r.Validate(events...)
	is.True(err != nil && strings.Contains(err.Error(), "too much work"))
}

// What people really describe is validated: wide, deep, large, recursive.
func TestHonestSchemasHaveRoom(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	line := `{"sku":"b2","quantity":3,"price":{"currency":"EUR","amount":"12.50"},"tags":["a","b"]}`
	schemas := map[string][]byte{
		"order": []byte(`{"type":"object","required":["id","lines"],"unevaluatedProperties":false,"properties":{"id":{"type":"string","pattern":"^[a-z]+_[0-9A-Za-z]{1,32}$"},
			"lines":{"type":"array","items":{"$ref":"#/$defs/line"}}},
			"$defs":{"line":{"type":"object","required":["sku"],"additionalProperties":false,"properties":{"sku":{"type":"string","maxLength":40},"quantity":{"type":"integer","minimum":1},
			"price":{"$ref":"#/$defs/money"},"tags":{"type":"array","uniqueItems":true,"items":{"type":"string"}}}},
			"money":{"type":"object","properties":{"currency":{"enum":["EUR","USD","CHF"]},"amount":{"type":"string"}}}}}`),
		"comment": []byte(`{"type":"object","properties":{"text":{"type":"string"},"replies":{"type":"array","items":{"$ref":"#"}}}}`),
	}
	r, err := eventschema.New(eventschema.Config{Schemas: schemas})
	is.NoErr(err)
	order := func(lines int) []byte {
		return []byte(`{"id":"order_7","lines":[` + strings.TrimSuffix(strings.Repeat(line+",", lines), ",") + `]}`)
	}
	is.NoErr(r.Validate(delivery.Event{Type: "order", Payload: order(5000)})) // 430 kB
	many := make([]delivery.Event, 1000)
	for i := range many {
		many[i] = delivery.Event{Type: "order", Payload: order(1 + i%20)}
	}
	is.NoErr(r.Validate(many...))
	is.NoErr(r.Validate(delivery.Event{Type: "comment", Payload: []byte(nested(`{"text":"a","replies":[{"text":"b"},INNER]}`, `{}`, 20))}))
}
