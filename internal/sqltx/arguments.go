package sqltx

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// arguments returns values as every driver takes them. database/sql knows no arrays, so
// they go as the text that PostgreSQL reads them from; the statements say their types.
func arguments(args []any) []any {
	list := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case []string:
			list[i] = array(v, quote)
		case [][]byte:
			list[i] = array(v, func(b []byte) string { return `"\\x` + hex.EncodeToString(b) + `"` })
		case []int64:
			list[i] = array(v, func(n int64) string { return strconv.FormatInt(n, 10) })
		case []int32:
			list[i] = array(v, func(n int32) string { return strconv.FormatInt(int64(n), 10) })
		default:
			list[i] = arg
		}
	}
	return list
}

func array[T any](list []T, text func(T) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text(v))
	}
	b.WriteByte('}')
	return b.String()
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quote(s string) string { return `"` + escape.Replace(s) + `"` }
