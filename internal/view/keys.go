package view

import (
	"strconv"
	"time"

	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/keys"
)

// Key is keys.Key.
type Key struct {
	ID string `json:"id"`
	// Hint is how the key begins.
	Hint string `json:"hint" doc:"How it begins"`
	Name string `json:"name"`
	// Tenant is null for an operator's.
	Tenant     *string    `json:"tenant" doc:"null: an operator's"`
	Operator   bool       `json:"operator"`
	Scope      string     `json:"scope" enum:"read,write"`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at" doc:"To the minute"`
	RevokedAt  *time.Time `json:"revoked_at"`
}

// KeyWithText is the answer to creating one.
type KeyWithText struct {
	Key
	Text string `json:"key" doc:"Shown only here"`
}

// NewKey returns the view of a key.
func NewKey(k *keys.Key) Key {
	return Key{
		ID: k.ID, Hint: k.Hint, Name: k.Name, Tenant: some(k.Tenant), Operator: k.Tenant == "", Scope: string(k.Scope),
		CreatedAt: k.Created.UTC(), LastUsedAt: utc(k.LastUsed), RevokedAt: utc(k.Revoked),
	}
}

// Audit is audit.Entry.
type Audit struct {
	ID        string    `json:"id"`
	At        time.Time `json:"at"`
	Tenant    *string   `json:"tenant"`
	Actor     string    `json:"actor" doc:"The id of a key, operator, or cli for the command line"`
	ActorName string    `json:"actor_name"`
	Action    string    `json:"action"`
	Target    *string   `json:"target"`
	Detail    *string   `json:"detail"`
	Status    *int      `json:"status"`
	// Outcome is null where the process ended before it could tell.
	Outcome *string `json:"outcome" doc:"ok, or the code of the refusal; null: a process ended before it could tell"`
}

// NewAudit returns the view of an entry.
func NewAudit(e *audit.Entry) Audit {
	return Audit{
		ID: "aud_" + strconv.FormatInt(e.ID, 10), At: e.At.UTC(), Tenant: some(e.Tenant), Actor: e.Actor, ActorName: e.ActorName,
		Action: e.Action, Target: some(e.Target), Detail: some(e.Detail), Status: someInt(e.Status), Outcome: some(e.Outcome),
	}
}
