package delivery

import "strings"

// text makes any string one that PostgreSQL's text can hold: UTF-8, without NUL. An
// attempt's record must not fail for what an endpoint or a resolver said.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
