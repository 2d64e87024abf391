package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// file is one migration.
type file struct {
	name     string // such as 0004_webhooks.sql
	version  string // such as 0004
	up, down section
}

// section is one direction of a migration.
type section struct {
	sql         string // empty where there is nothing to do
	line        int    // of its first character in the file, from 1
	transaction bool
}

var (
	namePattern      = regexp.MustCompile(`^(\d+).*\.sql$`)
	directivePattern = regexp.MustCompile(`(?m)^--\s*migrate:(\w+)[ \t]*([^\n]*)$`)
)

// read returns the migrations in the order of their versions.
func read(files fs.FS) ([]file, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []file
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		parsed, err := parse(path.Base(name), string(text))
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
		if len(all) > 0 && all[len(all)-1].version == parsed.version {
			return nil, fmt.Errorf("migrations %s and %s have the same version", all[len(all)-1].name, name)
		}
		all = append(all, parsed)
	}
	return all, nil
}

// parse reads a file as dbmate does, and refuses what dbmate would run into
// only at its statements.
func parse(name, text string) (file, error) {
	match := namePattern.FindStringSubmatch(name)
	if match == nil {
		return file{}, errors.New("the name must be a version in digits, then anything, then .sql")
	}
	f := file{name: name, version: match[1]}
	found := directivePattern.FindAllStringSubmatchIndex(text, -1)
	var kinds []string
	for i, at := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		kind, options := text[at[2]:at[3]], strings.Fields(text[at[4]:at[5]])
		part, err := newSection(text[at[1]:end], options)
		if err != nil {
			return file{}, fmt.Errorf("migrate:%s: %w", kind, err)
		}
		part.line = 1 + strings.Count(text[:at[1]], "\n")
		switch kind {
		case "up":
			f.up = part
		case "down":
			f.down = part
		}
		kinds = append(kinds, kind)
	}
	if !slices.Equal(kinds, []string{"up", "down"}) {
		return file{}, fmt.Errorf(`needs one "-- migrate:up" and then one "-- migrate:down", has %q`, kinds)
	}
	if statements(text[:found[0][0]]) > 0 {
		return file{}, errors.New(`has a statement before "-- migrate:up"`)
	}
	if f.up.sql == "" {
		return file{}, errors.New("does nothing")
	}
	return f, nil
}

func newSection(sql string, options []string) (section, error) {
	s := section{sql: sql, transaction: true}
	for _, option := range options {
		switch option {
		case "transaction:true":
		case "transaction:false":
			s.transaction = false
		default:
			return section{}, fmt.Errorf("unknown option %q", option)
		}
	}
	switch count := statements(sql); {
	case count == 0:
		s.sql = ""
	case count > 1 && !s.transaction:
		return section{}, fmt.Errorf("transaction:false takes exactly one statement, not %d: PostgreSQL runs several in one transaction", count)
	}
	return s, nil
}

// statements counts the statements in a piece of SQL: what lies between
// semicolons, outside of strings, quoted names and comments, and is not blank.
func statements(sql string) int {
	count, blank := 0, true
	for i := 0; i < len(sql); {
		rest := sql[i:]
		length := 1
		switch c := rest[0]; {
		case strings.HasPrefix(rest, "--"):
			length = through(rest, 2, "\n")
		case strings.HasPrefix(rest, "/*"):
			length = comment(rest)
		case c == ';':
			blank = true
		case strings.ContainsRune(" \t\r\n\f", rune(c)):
		default:
			if blank {
				count, blank = count+1, false
			}
			length = token(rest, i > 0 && word(sql[i-1]))
		}
		i += length
	}
	return count
}

// token returns the length of what begins a piece of SQL: a quoted thing as a
// whole, anything else as one byte. inWord says that it follows a letter.
func token(sql string, inWord bool) int {
	switch sql[0] {
	case '\'', '"':
		// A doubled quote reads as two strings in a row, which is as good.
		return through(sql, 1, sql[:1])
	case 'e', 'E':
		if len(sql) > 1 && sql[1] == '\'' && !inWord {
			return escapeString(sql)
		}
	case '$':
		end := 1
		for end < len(sql) && word(sql[end]) {
			end++
		}
		if end < len(sql) && sql[end] == '$' && !inWord {
			tag := sql[:end+1]
			return through(sql, len(tag), tag)
		}
	}
	return 1
}

// escapeString returns the length of a string such as E'it\'s'.
func escapeString(sql string) int {
	for i := 2; i < len(sql); i++ {
		switch sql[i] {
		case '\\':
			i++
		case '\'':
			return i + 1
		}
	}
	return len(sql)
}

// comment returns the length of a block comment, which may hold others.
func comment(sql string) int {
	depth := 0
	for i := 0; i < len(sql)-1; i++ {
		switch sql[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(sql)
}

// through returns the length of text up to and with the next end after from.
func through(text string, from int, end string) int {
	at := strings.Index(text[from:], end)
	if at < 0 {
		return len(text)
	}
	return from + at + len(end)
}

func word(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
