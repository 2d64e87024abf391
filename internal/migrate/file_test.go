package migrate

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/matryer/is"
)

func TestStatementsAreCounted(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]int{
		"":                                    0,
		" ;; \n-- only; a comment\n/* ; */ ;": 0,
		"SELECT 1":                            1,
		"SELECT 1;":                           1,
		"SELECT 1; SELECT 2":                  2,
		"SELECT 1; -- done; really\n":         1,
		"SELECT 'a;b', \"c;d\"; SELECT ''';'": 2,
		`SELECT E'it\';s'; SELECT 2`:          2,
		`SELECT 'C:\'; SELECT 2`:              2,
		"SELECT /* a /* nested ; */ ; */ 1":   1,
		"DO $$ BEGIN a; b; END $$;":           1,
		"DO $x$ a; $$ b; $y$ c; $x$; SELECT":  2,
		"SELECT $1; SELECT a$b$; SELECT 3":    3,
		"SELECT 'never closed; ":              1,
		"/* never closed; ":                   0,
	} {
		if got := statements(sql); got != want {
			t.Errorf("%q: %d statements, want %d", sql, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, err := parse("0007_widgets.sql", "-- About widgets; more.\n\n-- migrate:up\nCREATE TABLE w ();\n\n-- migrate:down transaction:false\nDROP INDEX CONCURRENTLY w;\n")
	is.NoErr(err)
	is.Equal(f.version, "0007")
	is.Equal(strings.TrimSpace(f.up.sql), "CREATE TABLE w ();")
	is.Equal(f.up.line, 3)
	is.True(f.up.transaction)
	is.Equal(strings.TrimSpace(f.down.sql), "DROP INDEX CONCURRENTLY w;")
	is.True(!f.down.transaction)
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	const down = "\n-- migrate:down\n"
	for text, want := range map[string]string{
		"CREATE TABLE w ();":                        `needs one "-- migrate:up"`,
		"-- migrate:up\nSELECT 1":                   `needs one "-- migrate:up"`,
		"-- migrate:down\n\n-- migrate:up\nS":       `needs one "-- migrate:up"`,
		"SELECT 1;\n-- migrate:up\nS" + down:        `statement before`,
		"-- migrate:up\n-- nothing" + down:          `does nothing`,
		"-- migrate:up transactoin:false\nS" + down: `unknown option "transactoin:false"`,
		"-- migrate:up transaction:false\nCREATE INDEX CONCURRENTLY a ON w (a); CREATE INDEX CONCURRENTLY b ON w (b)" + down: `exactly one statement, not 2`,
	} {
		_, err := parse("0001_w.sql", text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestNamesThatAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text := &fstest.MapFile{Data: []byte("-- migrate:up\nSELECT 1\n-- migrate:down\n")}
	_, err := read(fstest.MapFS{"widgets.sql": text})
	is.True(strings.Contains(err.Error(), "widgets.sql: the name must be a version"))
	_, err = read(fstest.MapFS{"0001_a.sql": text, "0001_b.sql": text})
	is.True(strings.Contains(err.Error(), "0001_a.sql and 0001_b.sql have the same version"))
}
