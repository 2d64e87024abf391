package console

import (
	"github.com/postlane-go/postlane/internal/keys"
)

type keysView struct {
	Rows []keys.Key
	Next string
	// Made is a key that was just made, with its text: nothing shows it again.
	Made *keys.Key
	Text string
}

// keyList shows the keys to an operator.
func (v *visit) keyList() error {
	body, err := v.keysView()
	if err != nil {
		return err
	}
	return v.page("keys", "keys", "Keys", body)
}

func (v *visit) keysView() (*keysView, error) {
	if !v.operator() {
		return nil, errOperator
	}
	list, err := v.keys.List(v.ctx, v.tenant(), v.query("after"), rowsPerPage+1)
	if err != nil {
		return nil, err
	}
	body := &keysView{}
	if len(list) > rowsPerPage {
		list = list[:rowsPerPage]
		body.Next = v.path("keys", "after", list[rowsPerPage-1].ID)
	}
	body.Rows = list
	return body, nil
}

// createKey answers with the page and the key's text on it.
func (v *visit) createKey() error {
	if !v.operator() {
		return errOperator
	}
	tenant := v.form("for")
	switch v.form("whose") {
	case "tenant":
		if tenant == "" {
			return invalid("Say which tenant the key is for.")
		}
	case "operator":
		tenant = ""
	default:
		return invalid("Choose whether the key is a tenant's or an operator's.")
	}
	v.entry.Tenant = tenant
	key, text, err := v.keys.Create(v.ctx, v.form("name"), tenant, keys.Scope(v.form("scope")))
	if err != nil {
		return err
	}
	v.entry.Target, v.entry.Detail = key.ID, string(key.Scope)
	body, err := v.keysView()
	if err != nil {
		return err
	}
	body.Made, body.Text = &key, text
	return v.page("keys", "keys", "Keys", body)
}

func (v *visit) revokeKey() error {
	if !v.operator() {
		return errOperator
	}
	key, err := v.keys.Revoke(v.ctx, v.r.PathValue("key_id"))
	if err != nil {
		return err
	}
	v.entry.Tenant = key.Tenant
	return v.see(v.back(Root+"keys"), "Revoked. No request with it begins any more, and whoever was signed in with it is signed out.")
}
