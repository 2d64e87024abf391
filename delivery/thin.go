package delivery

import (
	"context"
	"encoding/json"
	"net/url"
	"time"
)

// Thin is the body of what is sent to a subscription that is thin, as JSON.
type Thin struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Asset is nil where the event has none.
	Asset *string `json:"asset"`
	// Time is when the event was written, in UTC.
	Time time.Time `json:"time"`
	// Path is where the HTTP API has the payload, for a key of the event's tenant.
	Path string `json:"path"`
}

// thin returns what is sent in place of a claim's payload. It is the same at each attempt.
func (s *Store) thin(ctx context.Context, c *Claim) ([]byte, error) {
	e, err := s.Event(ctx, c.Tenant, c.EventID)
	if err != nil {
		return nil, err
	}
	return json.Marshal(Thin{
		ID: e.ID, Type: e.Type, Asset: some(e.Asset), Time: e.Created.UTC(), Path: "/v1/events/" + url.PathEscape(e.ID) + "/payload",
	})
}
