package console

import (
	"strconv"

	"github.com/postlane-go/postlane/internal/audit"
)

type auditView struct {
	Rows  []auditRow
	Next  string
	First string
}

type auditRow struct {
	audit.Entry
	Mark mark
}

// auditLog shows who changed what, and what came of it.
func (v *visit) auditLog() error {
	before := int64(0)
	if text := v.query("before"); text != "" {
		var err error
		if before, err = strconv.ParseInt(text, 10, 64); err != nil || before < 1 {
			return invalid("The address of this page is damaged. Begin again at the first page.")
		}
	}
	list, err := v.audit.List(v.ctx, v.tenant(), before, rowsPerPage+1)
	if err != nil {
		return err
	}
	var body auditView
	if len(list) > rowsPerPage {
		list = list[:rowsPerPage]
		body.Next = v.path("audit", "before", strconv.FormatInt(list[rowsPerPage-1].ID, 10))
	}
	if before > 0 {
		body.First = v.path("audit")
	}
	for _, e := range list {
		row := auditRow{Entry: e}
		switch e.Outcome {
		case "":
			row.Mark = mark{"warn", "?", "not known"}
		case "ok":
			row.Mark = mark{"good", "✓", "ok"}
		default:
			row.Mark = mark{"bad", "✕", e.Outcome}
		}
		body.Rows = append(body.Rows, row)
	}
	return v.page("audit", "audit", "Audit log", body)
}
