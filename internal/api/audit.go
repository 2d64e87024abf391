package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/view"
)

type listAudit struct {
	Page
	Tenant string `query:"tenant" doc:"What was done to this tenant's things; for an operator, who sees all without it"`
}

func (a *api) auditRoutes() {
	registerList(a, operation(http.MethodGet, "/v1/audit", "list-audit", tagAudit, "List what people and programs changed",
		"Newest first: who, what, when, and what came of it. An outcome of null means that a process ended before it could tell."), (*api).listAudit)
}

func (a *api) listAudit(ctx context.Context, in *listAudit) (*answer[view.List[view.Audit]], error) {
	tenant, err := filterTenant(ctx, in.Tenant)
	if err != nil {
		return nil, err
	}
	name := "audit\x00" + tenant
	position, err := a.cursors.read(name, in.Cursor)
	if err != nil {
		return nil, err
	}
	var before int64
	if position != "" {
		if before, err = strconv.ParseInt(position, 10, 64); err != nil {
			return nil, err
		}
	}
	list, err := a.audit.List(ctx, tenant, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return listed(a, name, in.Limit, list,
		func(e audit.Entry) view.Audit { return view.NewAudit(&e) },
		func(e audit.Entry) string { return strconv.FormatInt(e.ID, 10) }), nil
}
