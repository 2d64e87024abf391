package eventschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/postlane-go/postlane/delivery"
)

// What a schema may have. Whoever writes one may mean harm: what is within these costs
// little to compile and to keep, and validating by it is bounded by the meter.
const (
	maxDepth    = 64   // levels of nesting, of a schema and of a payload
	maxValues   = 3000 // JSON values of a schema
	maxPattern  = 1000 // bytes of a regular expression
	maxPatterns = 4000 // steps of all regular expressions together
	maxInPlace  = 1000 // schemas that are applied to one value, by $ref, allOf, anyOf and the like
	maxDigits   = 400  // of a number, and of what its exponent says
)

// compiling is held by whoever compiles what another party wrote, so that it takes one
// processor at most.
var compiling sync.Mutex

// Check returns why a schema cannot be one, or nil: it is what New says of it. It works on one
// schema at a time.
func Check(schema []byte) error {
	compiling.Lock()
	defer compiling.Unlock()
	_, _, err := compile(schema)
	return err
}

// own is the address of a schema while it is compiled, to which its references are relative.
const own = "postlane:///schema.json"

// compile returns a schema, and how many JSON values it has.
func compile(text []byte) (*jsonschema.Schema, int, error) {
	if len(text) > delivery.MaxSchema {
		return nil, 0, fmt.Errorf("it has %d bytes, more than %d", len(text), delivery.MaxSchema)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, 0, fmt.Errorf("it is not JSON: %w", err)
	}
	values := 0
	if problem := oversize(document, 0, &values); problem != "" {
		return nil, 0, errors.New("it " + problem)
	}
	if values > maxValues {
		return nil, 0, fmt.Errorf("it has %d JSON values, more than %d", values, maxValues)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nothing{})
	engine := &patterns{left: 2 * maxPatterns} // each is compiled twice: as a string that is a pattern, and as one that is used
	c.UseRegexpEngine(engine.compile)
	if err := c.AddResource(own, document); err != nil {
		return nil, 0, plain(err)
	}
	schema, err := c.Compile(own)
	if err != nil {
		return nil, 0, plain(err)
	}
	return schema, values, checkBranches(schema)
}

// plain is an error without the address that only the compiler knows.
func plain(err error) error { return errors.New(strings.ReplaceAll(err.Error(), own, "")) }

// nothing loads nothing: a schema that another party wrote must not make this process read
// a file or ask a host.
type nothing struct{}

func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not in the schema, and nothing else is loaded; put it into $defs", url)
}

// oversize says what of a JSON value is too deep or too long to work with, or "", and counts
// its values.
func oversize(v any, depth int, values *int) string {
	*values++
	if depth > maxDepth {
		return fmt.Sprintf("is nested more than %d levels deep", maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if problem := oversize(e, depth+1, values); problem != "" {
				return problem
			}
		}
	case []any:
		for _, e := range v {
			if problem := oversize(e, depth+1, values); problem != "" {
				return problem
			}
		}
	case json.Number:
		mantissa, exponent, _ := strings.Cut(strings.ToLower(v.String()), "e")
		if len(mantissa) > maxDigits || len(strings.TrimLeft(exponent, "+-0")) > 3 || exponentOf(exponent) > maxDigits {
			return fmt.Sprintf("has a number of more than %d digits", maxDigits)
		}
	}
	return ""
}

// exponentOf is the size of an exponent of up to three digits.
func exponentOf(text string) int {
	n := 0
	for _, digit := range strings.TrimLeft(text, "+-0") {
		n = 10*n + int(digit-'0')
	}
	return n
}

// patterns compiles the regular expressions of a schema.
type patterns struct{ left int }

// pattern is a regular expression and what a byte of a string costs it.
type pattern struct {
	*regexp.Regexp
	steps int
}

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	n := steps(parsed)
	if p.left -= n; p.left < 0 {
		return nil, errors.New("the regular expressions are too large together; have fewer, or shorter and less often repeated ones")
	}
	compiled, err := regexp.Compile(text)
	return pattern{compiled, n}, err
}

// steps is about how many instructions an expression compiles to.
func steps(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/16
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return n
}

// checkBranches refuses a schema that validation could not be bounded by: one with references
// whose targets are known only while a payload is validated, or one that comes back to
// itself, or to too many others, at one value.
func checkBranches(root *jsonschema.Schema) error {
	counts := map[*jsonschema.Schema]int{}
	seen := map[*jsonschema.Schema]bool{nil: true, root: true}
	for list := []*jsonschema.Schema{root}; len(list) > 0; {
		s := list[0]
		list = list[1:]
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return fmt.Errorf("at %q: $dynamicRef and $recursiveRef are not supported; use $ref", place(s))
		}
		if branches(s, counts) > maxInPlace {
			return fmt.Errorf("at %q: it comes back to itself, or branches into more than %d schemas, at one value", place(s), maxInPlace)
		}
		for _, next := range subschemas(s) {
			if !seen[next] {
				seen[next] = true
				list = append(list, next)
			}
		}
	}
	return nil
}

// branches counts the schemas that apply to a value that s applies to: more than maxInPlace if
// s is among them itself.
func branches(s *jsonschema.Schema, counts map[*jsonschema.Schema]int) int {
	if n, counted := counts[s]; counted {
		return n
	}
	counts[s] = maxInPlace + 1 // what is found again before it is counted is a cycle
	n := 0
	for next := range inPlace(s) {
		n = min(n+1+branches(next, counts), maxInPlace+1)
	}
	counts[s] = n
	return n
}

// place is where in its document a schema is.
func place(s *jsonschema.Schema) string {
	_, pointer, _ := strings.Cut(s.Location, "#")
	return "#" + pointer
}
