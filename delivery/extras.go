package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/internal/dbgen"
)

const (
	// maxHeaders is how many headers of its own a subscription may have, and
	// maxHeaderBytes how large each may be, name and value.
	maxHeaders     = 20
	maxHeaderBytes = 2000
)

func (s *Settings) checkHeaders() error {
	bad := func(format string, args ...any) error {
		return &InvalidError{Index: -1, Field: "Headers", Problem: fmt.Sprintf(format, args...)}
	}
	if len(s.Headers) > maxHeaders {
		return bad("has more than %d entries", maxHeaders)
	}
	seen := make(map[string]bool, len(s.Headers))
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if err := sender.CheckHeader(name, s.Headers[name]); err != nil {
			return bad("cannot be: %v", err)
		}
		if len(name)+len(s.Headers[name]) > maxHeaderBytes {
			return bad("has %q with more than %d bytes", name, maxHeaderBytes)
		}
		canonical := http.CanonicalHeaderKey(name)
		if seen[canonical] {
			return bad("has %q twice, in different letters", name)
		}
		seen[canonical] = true
	}
	return nil
}

// writeExtras writes what settings say beyond what row holds already, and returns the
// row as it is then.
func (s *Store) writeExtras(ctx context.Context, tx pgx.Tx, row *dbgen.PostlaneSubscriptions, settings *Settings) (*dbgen.PostlaneSubscriptions, error) {
	id := SubscriptionID(row.ID)
	written := false
	if settings.Headers != nil {
		arg := &dbgen.SubscriptionSetHeadersParams{ID: row.ID}
		if len(settings.Headers) > 0 {
			plain, err := json.Marshal(settings.Headers)
			if err != nil {
				return nil, err
			}
			arg.Headers, arg.KeyID = s.keyring.seal(id, plain)
			arg.Names = slices.Sorted(maps.Keys(settings.Headers))
		}
		if err := queries.SubscriptionSetHeaders(ctx, tx, arg); err != nil {
			return nil, err
		}
		written = true
	}
	if has := row.PublicKey != nil; has != settings.V1a {
		write := s.addKey
		if has {
			write = queries.SubscriptionDropKeys
		}
		if err := write(ctx, tx, row.ID); err != nil {
			return nil, err
		}
		written = true
	}
	if settings.RateLimit != rateOf(row) {
		if err := s.writeRate(ctx, tx, row.ID, settings.RateLimit); err != nil {
			return nil, err
		}
		written = true
	}
	if !written {
		return row, nil
	}
	return queries.SubscriptionGet(ctx, tx, row.ID)
}

// addKey gives a subscription a new key for v1a signatures.
func (s *Store) addKey(ctx context.Context, db dbgen.DBTX, id int64) error {
	key := signing.GeneratePrivateKey()
	sealed, keyID := s.keyring.seal(SubscriptionID(id), []byte(key.Reveal()))
	return queries.SubscriptionAddKey(ctx, db, &dbgen.SubscriptionAddKeyParams{ID: id, Key: sealed, KeyID: keyID, PublicKey: key.Public().String()})
}

func (s *Store) openHeaders(id SubscriptionID, sealed []byte, keyID string) (http.Header, error) {
	if sealed == nil {
		return nil, nil
	}
	plain, err := s.keyring.open(id, sealed, keyID)
	if err != nil {
		return nil, err
	}
	var values map[string]string
	if err := json.Unmarshal(plain, &values); err != nil {
		return nil, fmt.Errorf("delivery: the headers of %v are damaged; set them again", id)
	}
	header := make(http.Header, len(values))
	for name, value := range values {
		header.Set(name, value)
	}
	return header, nil
}
