// Package schema has the entities of the example for ent.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Invoice is one.
type Invoice struct{ ent.Schema }

// Fields are its columns.
func (Invoice) Fields() []ent.Field {
	return []ent.Field{field.String("id"), field.Bool("paid").Default(false)}
}
