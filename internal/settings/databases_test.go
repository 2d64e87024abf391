package settings_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/settings"
)

func TestParseDatabases(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://app:x@db1.example/postlane":                                             "db1.example/postlane",
		"postgres://app:x@db1.example:6432/postlane":                                        "db1.example:6432/postlane",
		"postgres://app:x@a,b:5433/postlane?target_session_attrs=primary":                   "a/postlane", // one server with several hosts
		" postgres://a@h/one\n\tpostgresql://b@h/two \n":                                    "h/one h/two",
		"postgres://a@h1,h2/one?sslmode=disable postgres://b@h:5433/two?application_name=x": "h1/one h:5433/two",
		"host=127.0.0.1 port=5432 dbname=postlane user=app password='a b'":                  "127.0.0.1/postlane", // no list: one string with spaces
		"postgres://app@h":            "h/app",
		"postgres://app@[::1]:5433/x": "[::1]:5433/x",
	} {
		list, err := settings.ParseDatabases(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := strings.Join(settings.Names(list), " "); got != want {
			t.Errorf("%q is %q and not %q", text, got, want)
		}
	}
}

// What is refused is not repeated: it may hold a password.
func TestParseDatabasesRefuses(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"postgres://a:secret@h/one postgres://a:secret@[::1/two": "number 2",
		"postgres://a:secret@[::1/two":                           "is not a PostgreSQL URL",
		"postgres://a:secret@h/one postgres://b:secret@h/one":    "names the database h/one twice",
		"postgres://a:secret@h/one, postgres://b:secret@h:x/two": "is not a PostgreSQL URL",
		"host=h port=x password=secret":                          "is not a PostgreSQL URL",
	} {
		is := is.New(t)
		_, err := settings.ParseDatabases(text)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
		is.True(err != nil)
	}
}
