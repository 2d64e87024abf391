package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
)

// ID is the anchor of a group.
func (g group) ID() string { return strings.ReplaceAll(g.Name, " ", "-") }

// newPage renders the description for people: one page that loads nothing and runs
// nothing, and the content security policy that holds it to that.
func newPage(doc *huma.OpenAPI) (page []byte, policy string, err error) {
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"Title": doc.Info.Title, "About": strings.Split(doc.Info.Description, "\n\n"), "Groups": groups(doc), "Codes": problems(),
		"Style": template.CSS(pageCSS), //nolint:gosec // our own file
	})
	sum := sha256.Sum256([]byte(pageCSS))
	policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return b.Bytes(), policy, err
}

type (
	group struct {
		Name, About string
		Operations  []shownOperation
	}
	shownOperation struct {
		ID, Method, Path, Summary, About string
		Parameters, Body, Answer         []field
		Status                           string
	}
	field struct {
		Name, Where, Type, About string
		Required                 bool
	}
	shownCode struct {
		Name, Title, About string
		Status             int
	}
)

func problems() []shownCode {
	list := make([]shownCode, len(codes))
	for i, c := range codes {
		list[i] = shownCode{c.name, c.title, c.about, c.status}
	}
	return list
}

func groups(doc *huma.OpenAPI) []group {
	list := make([]group, len(doc.Tags))
	for i, tag := range doc.Tags {
		list[i] = group{Name: tag.Name, About: tag.Description}
	}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		item := doc.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			i := slices.IndexFunc(list, func(g group) bool { return g.Name == op.Tags[0] })
			list[i].Operations = append(list[i].Operations, show(doc, op))
		}
	}
	return list
}

func show(doc *huma.OpenAPI, op *huma.Operation) shownOperation {
	o := shownOperation{ID: op.OperationID, Method: op.Method, Path: op.Path, Summary: op.Summary, About: op.Description}
	for _, p := range op.Parameters {
		o.Parameters = append(o.Parameters, field{p.Name, p.In, typeName(p.Schema), p.Description, p.Required})
	}
	if op.RequestBody != nil {
		o.Body = fieldsOf(doc, op.RequestBody.Content["application/json"].Schema)
	}
	status := strconv.Itoa(op.DefaultStatus)
	o.Status = status + " " + http.StatusText(op.DefaultStatus)
	if media := op.Responses[status].Content["application/json"]; media != nil {
		o.Answer = fieldsOf(doc, media.Schema)
	}
	return o
}

func fieldsOf(doc *huma.OpenAPI, s *huma.Schema) (list []field) {
	if s = resolve(doc, s); s == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		list = append(list, field{name, "", typeName(property), property.Description, slices.Contains(s.Required, name)})
	}
	return list
}

func resolve(doc *huma.OpenAPI, s *huma.Schema) *huma.Schema {
	if s != nil && s.Ref != "" {
		return doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	return s
}

func typeName(s *huma.Schema) string {
	if s.Ref != "" {
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	}
	name := s.Type
	switch {
	case s.Type == huma.TypeArray:
		name = "list of " + typeName(s.Items)
	case s.Type == "":
		name = "any"
	case s.Format == "date-time":
		name = "time"
	}
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i], _ = v.(string)
		}
		name = strings.Join(values, " | ")
	}
	if s.Nullable {
		name += " or null"
	}
	return name
}
