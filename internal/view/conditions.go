package view

import (
	"encoding/json"

	"github.com/postlane-go/postlane/delivery"
)

// Condition is delivery.Condition.
type Condition struct {
	Path  string          `json:"path" maxLength:"256" doc:"Leads to a value of the payload: keys with full stops between" example:"data.amount"`
	Op    string          `json:"op" enum:"eq,ne,in,exists,gt,gte,lt,lte,prefix" doc:"What is asked of it" example:"gte"`
	Value json.RawMessage `json:"value,omitempty" doc:"What it is asked with: a list of values for in, true or false for exists, otherwise a string, a number, a boolean or null. Absent: null, or true for exists"`
}

// newConditions returns the views of conditions; none are [] and not null.
func newConditions(conditions []delivery.Condition) []Condition {
	list := make([]Condition, len(conditions))
	for i, c := range conditions {
		value, err := json.Marshal(c.Value)
		if err != nil {
			value = nil // a value that was read is JSON
		}
		list[i] = Condition{Path: c.Path, Op: string(c.Op), Value: value}
	}
	return list
}

// Condition returns what it is the view of.
func (c Condition) Condition() delivery.Condition {
	condition := delivery.Condition{Path: c.Path, Op: delivery.Op(c.Op)}
	if c.Value != nil {
		condition.Value = c.Value
	}
	return condition
}
