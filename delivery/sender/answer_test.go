package sender

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"
)

func TestCleanHeader(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	plain := http.Header{"A": {"1", "2"}, "Set-Cookie": {"session=hush"}}
	is.Equal(cleanHeader(plain), http.Header{"A": {"1", "2"}})
	is.Equal(cleanHeader(http.Header{"A": {"x\x00y\x1b[31m"}, "B\xff": {"caf\xe9"}, "Set-Cookie": {"a"}}),
		http.Header{"A": {"x\uFFFDy\uFFFD[31m"}, "B\uFFFD": {"caf\uFFFD"}})

	many := http.Header{}
	for _, name := range []string{"E", "C", "A", "D", "B"} {
		many[name] = []string{strings.Repeat("x", 3000)}
	}
	is.Equal(len(cleanHeader(many)), 2)
	for range 10 { // the same two each time
		_, a := cleanHeader(many)["A"]
		_, b := cleanHeader(many)["B"]
		is.True(a && b)
	}
}

func TestCleanTextIsFitForPostgres(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, s := range []string{"", "plain", "a\x00b", "\xff", "é"[:1], "\x7f\u0085", "日本"[:4]} {
		c := cleanText(s)
		is.True(utf8.ValidString(c) && !strings.Contains(c, "\x00"))
		is.Equal(cleanText(c), c)
	}
}
