package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/view"
)

type createKey struct {
	Body struct {
		Name     string `json:"name" minLength:"1" maxLength:"200" doc:"Who or what will use it"`
		Tenant   string `json:"tenant,omitempty" doc:"Whose things it may see; this or operator"`
		Operator bool   `json:"operator,omitempty" doc:"It may see those of all tenants"`
		Scope    string `json:"scope" enum:"read,write" doc:"What it may do: read, or write, which includes it"`
	}
}

type listKeys struct {
	Page
	Tenant string `query:"tenant" doc:"Those of this tenant; absent: all"`
}

type byKey struct {
	KeyID string `path:"key_id" doc:"The key" example:"key_3141592653589793238"`
}

func (a *api) keyRoutes() {
	operators := func(op huma.Operation) huma.Operation {
		op.Metadata[forOperators] = true
		return op
	}
	create := operators(operation(http.MethodPost, "/v1/keys", "create-key", tagKeys, "Create a key", "The answer holds its text, which no other answer does."))
	create.DefaultStatus = http.StatusCreated
	register(a, create, a.createKey)
	register(a, operators(operation(http.MethodGet, "/v1/keys", "list-keys", tagKeys, "List keys", "In the order of their ids, revoked ones too, without their texts.")), a.listKeys)
	register(a, operators(operation(http.MethodPost, "/v1/keys/{key_id}/revoke", "revoke-key", tagKeys, "Revoke a key", "When this answers, no request with it begins any more.")), a.revokeKey)
}

func (a *api) createKey(ctx context.Context, in *createKey) (*answer[view.KeyWithText], error) {
	if (in.Body.Tenant == "") != in.Body.Operator {
		return nil, invalid.at("body.tenant", "is missing, or stands beside operator; say one of them")
	}
	note(ctx).Tenant = in.Body.Tenant
	key, text, err := a.keys.Create(ctx, in.Body.Name, in.Body.Tenant, keys.Scope(in.Body.Scope))
	if err != nil {
		return nil, err
	}
	note(ctx).Target, note(ctx).Detail = key.ID, in.Body.Scope
	return &answer[view.KeyWithText]{view.KeyWithText{Key: view.NewKey(&key), Text: text}}, nil
}

func (a *api) listKeys(ctx context.Context, in *listKeys) (*answer[view.List[view.Key]], error) {
	name := "keys\x00" + in.Tenant
	after, err := a.cursors.read(name, in.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := a.keys.List(ctx, in.Tenant, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return listed(a, name, in.Limit, list,
		func(k keys.Key) view.Key { return view.NewKey(&k) },
		func(k keys.Key) string { return k.ID }), nil
}

func (a *api) revokeKey(ctx context.Context, in *byKey) (*answer[view.Key], error) {
	key, err := a.keys.Revoke(ctx, in.KeyID)
	if err != nil {
		return nil, err
	}
	note(ctx).Tenant = key.Tenant
	return &answer[view.Key]{view.NewKey(&key)}, nil
}
