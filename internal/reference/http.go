package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

type schema struct {
	Ref         string            `json:"$ref"`
	Type        any               `json:"type"`
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Required    []string          `json:"required"`
	Items       *schema           `json:"items"`
}

type media struct {
	Schema schema `json:"schema"`
}

type content struct {
	Content map[string]media `json:"content"`
}

type operation struct {
	Summary     string             `json:"summary"`
	Description string             `json:"description"`
	RequestBody content            `json:"requestBody"`
	Responses   map[string]content `json:"responses"`
	Parameters  []struct {
		Name        string `json:"name"`
		In          string `json:"in"`
		Description string `json:"description"`
	} `json:"parameters"`
}

type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

func httpAPI(w *bytes.Buffer) error {
	text, err := os.ReadFile("docs/openapi.json")
	if err != nil {
		return err
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	fmt.Fprint(w, `# HTTP API

From the API's own description, [openapi.json](../openapi.json), which a server has at `+"`/openapi.json` and, for people, at `/docs`"+`.
Requests carry `+"`Authorization: Bearer KEY`"+`. Errors are `+"`application/problem+json`"+`; lists are
`+"`{\"data\":[…],\"next_cursor\":…}`"+`; times are RFC 3339 in UTC, or null.

`)
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			doc.operation(w, strings.ToUpper(method)+" "+path, doc.Paths[path][method])
		}
	}
	return nil
}

func (d *document) operation(w *bytes.Buffer, name string, op operation) {
	fmt.Fprintf(w, "## %s\n\n**%s.** %s\n\n", name, op.Summary, op.Description)
	var rows [][3]string
	for _, p := range op.Parameters {
		if p.In == "query" {
			rows = append(rows, [3]string{p.Name, p.In, p.Description})
		}
	}
	for _, m := range op.RequestBody.Content {
		rows = append(rows, d.fields(m.Schema, "body")...)
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		if status == "default" {
			continue
		}
		for _, m := range op.Responses[status].Content {
			rows = append(rows, d.fields(m.Schema, status)...)
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprint(w, "| field | of | |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", r[0], r[1], strings.ReplaceAll(r[2], "|", `\|`))
	}
	fmt.Fprintln(w)
}

// fields are those of an object, one deep.
func (d *document) fields(s schema, of string) (rows [][3]string) {
	if s.Ref != "" {
		s = d.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if name == "$schema" {
			continue
		}
		rows = append(rows, [3]string{name, of, s.Properties[name].Description})
	}
	return rows
}
