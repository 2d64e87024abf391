package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/postlane-go/postlane/db"
)

var (
	tableLine   = regexp.MustCompile(`^--   (\w+) {2,}(\S.*)$`)
	moreLine    = regexp.MustCompile(`^--    +(\S.*)$`)
	tableMade   = regexp.MustCompile(`CREATE TABLE postlane\.(\w+)`)
	interfaceOf = regexp.MustCompile(`(?s)CREATE (?:OR REPLACE )?FUNCTION (postlane\.(?:enqueue|stage))\((.*?)\) RETURNS (\S+)`)
)

// sqlInterface describes the functions for callers and the tables for readers, from the
// migrations.
func sqlInterface(w *bytes.Buffer) error {
	schema := db.Schema()
	files, err := fs.Glob(schema, "*.sql")
	if err != nil {
		return err
	}
	functions := map[string]string{}
	var names []string
	var tables [][2]string
	for _, file := range files {
		text, err := fs.ReadFile(schema, file)
		if err != nil {
			return err
		}
		up, _, _ := strings.Cut(string(text), "-- migrate:down")
		made := map[string]bool{}
		for _, m := range tableMade.FindAllStringSubmatch(up, -1) {
			made[m[1]] = true
		}
		for _, t := range described(up) {
			if made[t[0]] {
				tables = append(tables, t)
			}
		}
		for _, m := range interfaceOf.FindAllStringSubmatch(up, -1) {
			if !strings.Contains(m[2], "payload bytea") {
				continue
			}
			if functions[m[1]] == "" {
				names = append(names, m[1])
			}
			functions[m[1]] = fmt.Sprintf("%s(%s)\n    RETURNS %s", m[1], "\n    "+strings.Join(strings.Fields(m[2]), " ")+"\n", m[3])
		}
	}
	fmt.Fprint(w, `# SQL

Everything lives in the PostgreSQL schema `+"`postlane`"+`. The functions are an interface: see [from SQL](../from-sql.md) for what they
check and which errors they raise. The tables are not: read them as you like, and expect a change with any minor release.

## Functions

The payload may be bytea, text, jsonb or json. Call them with named parameters.

`)
	for _, name := range names {
		call := strings.ReplaceAll(functions[name], ", ", ",\n    ")
		fmt.Fprintf(w, "```sql\n%s\n```\n\n", call)
	}
	fmt.Fprint(w, "## Tables\n\n| table | |\n|---|---|\n")
	for _, t := range tables {
		fmt.Fprintf(w, "| `%s` | %s |\n", t[0], strings.ReplaceAll(t[1], "|", `\|`))
	}
	return nil
}

// described are the tables that the comment at the head of a migration lists.
func described(text string) (tables [][2]string) {
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "--") {
			break
		}
		if m := tableLine.FindStringSubmatch(line); m != nil {
			tables = append(tables, [2]string{m[1], m[2]})
		} else if m := moreLine.FindStringSubmatch(line); m != nil && len(tables) > 0 {
			tables[len(tables)-1][1] += " " + m[1]
		}
	}
	return tables
}
