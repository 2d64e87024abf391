package eventschema

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// How much work a payload may take: a step is a few tenths of a microsecond, and 200 bytes
// where it fails. The validator itself has no bound, and a schema of a hundred bytes can have
// it try every one of 2^n branches. So every step that it may take is counted before it takes
// the first.
const (
	baseWork     = 50_000  // of a call
	workPerByte  = 5       // of its payloads
	maxWork      = 500_000 // of one payload, which bounds the memory of what is wrong with it
	heavyPayload = 50_000  // from here one at a time
)

// meter is the work that is left.
type meter struct{ left int }

// pay takes n steps, and reports whether there were as many.
func (m *meter) pay(n int) bool {
	m.left -= n
	return m.left >= 0
}

// value pays for validating v by s, through every branch. It mirrors what jsonschema does,
// and stops when nothing is left.
func (m *meter) value(s *jsonschema.Schema, v any, depth int) bool {
	if s == nil {
		return true
	}
	if !m.pay(1+depth/8) || s.Bool != nil {
		return m.left >= 0
	}
	if !m.pay(equalCost(s, v)) {
		return false
	}
	for next := range inPlace(s) {
		if !m.value(next, v, depth) {
			return false
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return m.object(s, v, depth)
	case []any:
		return m.array(s, v, depth)
	case string:
		return m.text(s, v)
	case json.Number:
		return m.pay(numberCost(v))
	}
	return true
}

func (m *meter) object(s *jsonschema.Schema, v map[string]any, depth int) bool {
	if !m.pay(len(v) + len(s.Required)/4 + len(s.Dependencies) + len(s.DependentRequired)) {
		return false
	}
	for _, required := range s.DependentRequired {
		if !m.pay(len(required) / 4) {
			return false
		}
	}
	additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for key, e := range v {
		named := s.Properties[key]
		for re, sub := range s.PatternProperties {
			if !m.pay(patternCost(re, key)) || !m.value(sub, e, depth+1) {
				return false
			}
		}
		if named == nil && !m.value(additional, e, depth+1) {
			return false
		}
		if !m.value(named, e, depth+1) || !m.value(s.PropertyNames, key, depth) || !m.value(s.UnevaluatedProperties, e, depth+1) {
			return false
		}
	}
	return true
}

func (m *meter) array(s *jsonschema.Schema, v []any, depth int) bool {
	if !m.pay(1 + len(v)/4) {
		return false
	}
	if s.UniqueItems && !m.pay(5*min(len(v), 20)*size(v)) {
		return false
	}
	for i, e := range v {
		for sub := range items(s, i) {
			if !m.value(sub, e, depth+1) {
				return false
			}
		}
	}
	return true
}

// items are the schemas of an element.
func items(s *jsonschema.Schema, i int) iter.Seq[*jsonschema.Schema] {
	return func(yield func(*jsonschema.Schema) bool) {
		list := s.PrefixItems
		if old, ok := s.Items.([]*jsonschema.Schema); ok {
			list = old
		}
		rest := s.Items2020
		for _, of := range []any{s.Items, s.AdditionalItems} {
			if sub, ok := of.(*jsonschema.Schema); ok {
				rest = sub
			}
		}
		if i < len(list) {
			rest = list[i]
		}
		_ = yield(rest) && yield(s.Contains) && yield(s.UnevaluatedItems)
	}
}

func (m *meter) text(s *jsonschema.Schema, v string) bool {
	n := len(v) / 64
	if s.Pattern != nil {
		n += patternCost(s.Pattern, v)
	}
	if s.Format != nil {
		n += 2 + len(v)/8
		if s.Format.Name == "regex" { // v is compiled
			n += 200 * min(len(v), maxPattern)
		}
	}
	return m.pay(n)
}

func patternCost(re jsonschema.Regexp, v string) int {
	p, _ := re.(pattern)
	return 1 + p.steps*len(v)/8
}

// numberCost is that of a number as a fraction of large integers.
func numberCost(v json.Number) int {
	n := 4 + len(v)/8
	if strings.ContainsAny(v.String(), "eE") {
		n += 50
	}
	return n
}

// equalCost is that of comparing v to what const and enum allow.
func equalCost(s *jsonschema.Schema, v any) int {
	n := 0
	count := func(allowed any) {
		switch v := v.(type) {
		case map[string]any, []any:
			n += 5 * size(allowed)
		case json.Number:
			if other, ok := allowed.(json.Number); ok {
				n += numberCost(v) + numberCost(other)
			}
		default:
			n++
		}
	}
	if s.Const != nil {
		count(*s.Const)
	}
	if s.Enum != nil {
		for _, allowed := range s.Enum.Values {
			count(allowed)
		}
	}
	if _, text := v.(string); text {
		n /= 8
	}
	return n
}

// size is how much a JSON value holds.
func size(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for key, e := range v {
			n += len(key)/64 + size(e)
		}
	case []any:
		for _, e := range v {
			n += size(e)
		}
	case string:
		n += len(v) / 64
	case json.Number:
		n = numberCost(v)
	}
	return n
}

// inPlace are the schemas that apply to the value that s applies to.
func inPlace(s *jsonschema.Schema) iter.Seq[*jsonschema.Schema] {
	return func(yield func(*jsonschema.Schema) bool) {
		for _, sub := range []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else} {
			if sub != nil && !yield(sub) {
				return
			}
		}
		for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
			for _, sub := range list {
				if !yield(sub) {
					return
				}
			}
		}
		for _, sub := range s.DependentSchemas {
			if !yield(sub) {
				return
			}
		}
		for _, of := range s.Dependencies {
			if sub, ok := of.(*jsonschema.Schema); ok && !yield(sub) {
				return
			}
		}
	}
}

// subschemas are all that s leads to in one step.
func subschemas(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Collect(inPlace(s))
	list = slices.AppendSeq(list, maps.Values(s.Properties))
	list = slices.AppendSeq(list, maps.Values(s.PatternProperties))
	list = append(list, s.PrefixItems...)
	list = append(list, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
	for _, of := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch of := of.(type) {
		case *jsonschema.Schema:
			list = append(list, of)
		case []*jsonschema.Schema:
			list = append(list, of...)
		}
	}
	return list
}
