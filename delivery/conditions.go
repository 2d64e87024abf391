package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxConditions is how many conditions a subscription may have, and
	// maxConditionsBytes how large they may be together, as JSON.
	maxConditions      = 20
	maxConditionsBytes = 8000
	// maxConditionValues is how many values In may name.
	maxConditionValues = 100
	// maxPathParts is how deep a path may lead.
	maxPathParts = 16
)

// Op is what a Condition asks of what stands at its path.
type Op string

const (
	Eq     Op = "eq"     // equals the value: a string, a number, true, false or null
	Ne     Op = "ne"     // does not, or is not there
	In     Op = "in"     // equals one of the values, a list
	Exists Op = "exists" // is there, null too; with the value false: is not
	Gt     Op = "gt"     // is greater than the value: a number, or a string by code points
	Gte    Op = "gte"    // the same, or equal
	Lt     Op = "lt"     // is less than the value
	Lte    Op = "lte"    // the same, or equal
	Prefix Op = "prefix" // begins with the value: a string
)

// Condition is what the payload of an event has to meet to reach a subscription.
//
// A list on the way, or at the end, stands for each of its elements: one that meets the
// condition is enough (for Ne, one that is equal is too much). What is of another kind
// than the value, as "7" and 7 are, is neither equal to it nor greater nor less.
type Condition struct {
	// Path leads to a value of the payload: the keys of objects, with full stops
	// between, such as data.amount. Keys with a full stop or a space cannot be named.
	Path string `json:"path"`
	// Op is the question, and Value what it is asked with; nil with Eq and Ne is null.
	Op    Op  `json:"op"`
	Value any `json:"value"`
}

// String is the condition as ParseCondition reads it.
func (c Condition) String() string {
	value, err := json.Marshal(c.Value)
	if err != nil {
		return fmt.Sprintf("%s %s ?", c.Path, c.Op)
	}
	return fmt.Sprintf("%s %s %s", c.Path, c.Op, value)
}

// ParseCondition reads a condition that is written as path, op and value with spaces
// between: data.amount gte 100. The value is JSON; what is none is a string, so that
// data.country eq DE needs no quotes. Exists needs no value.
func ParseCondition(text string) (Condition, error) {
	path, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	op, value, valued := strings.Cut(strings.TrimSpace(rest), " ")
	c := Condition{Path: path, Op: Op(op)}
	if value = strings.TrimSpace(value); valued && value != "" {
		var err error
		if c.Value, err = decodeValue([]byte(value)); err != nil {
			c.Value = value
		}
	} else if c.Op == Exists {
		c.Value = true
	}
	if problem := c.normalize(); problem != "" {
		return c, &InvalidError{Index: -1, Field: "Conditions", Problem: problem}
	}
	return c, nil
}

// decodeValue reads JSON and keeps numbers as they are written.
func decodeValue(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&v); err == nil && d.InputOffset() != int64(len(bytes.TrimRight(text, " \t\r\n"))) {
		err = errors.New("more than one value")
	}
	return v, err
}

// normalize turns the value into what it is as JSON, and says what is wrong with the
// condition; "" if nothing.
func (c *Condition) normalize() string {
	if problem := pathProblem(c.Path); problem != "" {
		return problem
	}
	plain, err := json.Marshal(c.Value)
	if err == nil {
		c.Value, err = decodeValue(plain)
	}
	if err != nil {
		return fmt.Sprintf("has a value at %q that cannot be JSON", c.Path)
	}
	if c.Op == Exists && c.Value == nil {
		c.Value = true
	}
	if problem := c.Op.problem(c.Value); problem != "" {
		return fmt.Sprintf("asks at %q for %s", c.Path, problem)
	}
	return ""
}

func pathProblem(path string) string {
	switch {
	case len(path) > 256:
		return "has a path that is longer than 256 bytes"
	case !isText(path) || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' }):
		return fmt.Sprintf("has the path %q, with what cannot be in one: a space, or no UTF-8", path)
	}
	parts := strings.Split(path, ".")
	if len(parts) > maxPathParts {
		return fmt.Sprintf("has a path of more than %d parts", maxPathParts)
	}
	if slices.Contains(parts, "") {
		return fmt.Sprintf("has the path %q; name the keys that lead to the value, with full stops between, such as data.amount", path)
	}
	return ""
}

// problem says what is wrong with a value for the op; "" if nothing.
func (op Op) problem(v any) string {
	_, isString := v.(string)
	_, isNumber := v.(json.Number)
	_, isBool := v.(bool)
	switch op {
	case Eq, Ne:
		return scalarProblem(op, v)
	case In:
		list, isList := v.([]any)
		if !isList || len(list) == 0 || len(list) > maxConditionValues {
			return fmt.Sprintf("in, which needs a list of 1 to %d values", maxConditionValues)
		}
		for _, item := range list {
			if problem := scalarProblem(op, item); problem != "" {
				return problem
			}
		}
	case Exists:
		if !isBool {
			return "exists, which needs true, false or no value"
		}
	case Gt, Gte, Lt, Lte:
		if !isString && !isNumber {
			return string(op) + ", which needs a number or a string"
		}
		return scalarProblem(op, v)
	case Prefix:
		if !isString || v == "" {
			return "prefix, which needs a string"
		}
		return scalarProblem(op, v)
	default:
		return fmt.Sprintf("%q; use eq, ne, in, exists, gt, gte, lt, lte or prefix", string(op))
	}
	return ""
}

func scalarProblem(op Op, v any) string {
	switch v := v.(type) {
	case nil, bool:
	case string:
		if !isText(v) || len(v) > 1000 {
			return string(op) + " with a string that has NUL or more than 1000 bytes"
		}
	case json.Number:
		// What PostgreSQL's numeric holds in any case.
		f, err := strconv.ParseFloat(v.String(), 64)
		if err != nil || len(v) > 40 || f == 0 && strings.ContainsAny(v.String(), "123456789") {
			return string(op) + " with a number that is too large, too small or too long"
		}
	default:
		return string(op) + ", which needs a string, a number, true, false or null"
	}
	return ""
}

// checkConditions also leaves each value as it is as JSON.
func (s *Settings) checkConditions() error {
	bad := func(format string, args ...any) error {
		return &InvalidError{Index: -1, Field: "Conditions", Problem: fmt.Sprintf(format, args...)}
	}
	if len(s.Conditions) > maxConditions {
		return bad("has more than %d entries", maxConditions)
	}
	conditions := make([]Condition, len(s.Conditions))
	copy(conditions, s.Conditions)
	for i := range conditions {
		if problem := conditions[i].normalize(); problem != "" {
			return bad("%s", problem)
		}
	}
	if row := conditionsRow(conditions); row != nil && len(*row) > maxConditionsBytes {
		return bad("has more than %d bytes as JSON", maxConditionsBytes)
	}
	s.Conditions = conditions
	return nil
}

// conditionsRow is how checked conditions are stored: nil where there are none. Text,
// because bytes go as bytea in the query modes that do not ask the server for types.
func conditionsRow(conditions []Condition) *string {
	if len(conditions) == 0 {
		return nil
	}
	row, err := json.Marshal(conditions)
	if err != nil {
		panic(err) // they were JSON before
	}
	text := string(row)
	return &text
}

func conditionsOf(row []byte) (conditions []Condition) {
	if row == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(row))
	d.UseNumber()
	if err := d.Decode(&conditions); err != nil {
		return nil
	}
	return conditions
}
