package delivery

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// reencryptBatch is how many rows one transaction encrypts anew.
const reencryptBatch = 200

// errNoKeyring is the error of what only makes sense with keys.
var errNoKeyring = errors.New("delivery: the store has no keyring (StoreConfig.Keyring); there is no key to encrypt with")

// Reencrypted is what Reencrypt did.
type Reencrypted struct {
	// Done counts the signing secrets and headers that are encrypted with the keyring's
	// first key now and were not before.
	Done int64 `json:"reencrypted"`
	// Left counts those that are not yet: unreadable ones, and those that somebody wrote
	// meanwhile whose first key is another. An old key may be removed when it is 0.
	Left int64 `json:"left"`
}

// StaleSecrets counts the signing secrets and headers that are not encrypted with the
// keyring's first key.
func (s *Store) StaleSecrets(ctx context.Context) (int64, error) {
	if s.keyring == nil {
		return 0, errNoKeyring
	}
	n, err := queries.StaleCount(ctx, s.pool, s.keyring.current)
	if err != nil {
		return 0, fmt.Errorf("delivery: count secrets: %w", err)
	}
	return n, nil
}

// Reencrypt encrypts with the keyring's first key what another encrypts, or none: signing
// secrets, and the headers of subscriptions. It works in small transactions beside
// anything else, and what it has done when it is interrupted stays done. What cannot be
// read is left, and named by the error.
//
// Keys are changed without downtime in four steps: give every process the new key behind
// the old one; then the new one first; Reencrypt until nothing is left; and take the old
// one away. In the first step everybody learns to read what in the second somebody writes.
func (s *Store) Reencrypt(ctx context.Context) (Reencrypted, error) {
	if s.keyring == nil {
		return Reencrypted{}, errNoKeyring
	}
	r := reencryption{store: s}
	err := r.secrets(ctx)
	if err == nil {
		err = r.headers(ctx)
	}
	did := Reencrypted{Done: r.done}
	if err == nil {
		did.Left, err = s.StaleSecrets(ctx)
	}
	if err == nil && r.unreadable > 0 {
		err = fmt.Errorf("delivery: %d could not be read and were left, among them: %w", r.unreadable, r.why)
	}
	return did, err
}

type reencryption struct {
	store      *Store
	done       int64
	unreadable int
	// why the first of them could not be read.
	why error
}

// reseal encrypts a value anew with write, unless it cannot be read.
func (r *reencryption) reseal(id SubscriptionID, sealed []byte, keyID string, write func(sealed []byte, keyID *string) (int64, error)) error {
	plain, err := r.store.keyring.open(id, sealed, keyID)
	if err != nil {
		if r.unreadable++; r.why == nil {
			r.why = err
		}
		return nil
	}
	n, err := write(r.store.keyring.seal(id, plain))
	r.done += n
	return err
}

// batches runs f, which says how many rows it met, in transactions until it meets no more.
// What a transaction did counts once it is committed.
func (r *reencryption) batches(ctx context.Context, f func(pgx.Tx) (int, error)) error {
	for met := reencryptBatch; met == reencryptBatch; {
		before := *r
		err := r.store.transaction(ctx, func(tx pgx.Tx) (err error) {
			met, err = f(tx)
			return err
		})
		if err != nil {
			*r = before
			return fmt.Errorf("delivery: reencrypt: %w", err)
		}
	}
	return nil
}

func (r *reencryption) secrets(ctx context.Context) error {
	after := &dbgen.SecretStaleParams{CurrentKey: r.store.keyring.current, Max: reencryptBatch}
	return r.batches(ctx, func(tx pgx.Tx) (int, error) {
		rows, err := queries.SecretStale(ctx, tx, after)
		if err != nil {
			return 0, err
		}
		for _, row := range rows {
			after.After, after.AfterNumber = row.SubscriptionID, row.Number
			err := r.reseal(SubscriptionID(row.SubscriptionID), row.Secret, row.KeyID, func(sealed []byte, keyID *string) (int64, error) {
				return queries.SecretReencrypt(ctx, tx, &dbgen.SecretReencryptParams{
					SubscriptionID: row.SubscriptionID, Number: row.Number, Was: row.Secret, Sealed: sealed, KeyID: keyID,
				})
			})
			if err != nil {
				return 0, err
			}
		}
		return len(rows), nil
	})
}

func (r *reencryption) headers(ctx context.Context) error {
	after := &dbgen.HeadersStaleParams{CurrentKey: r.store.keyring.current, Max: reencryptBatch}
	return r.batches(ctx, func(tx pgx.Tx) (int, error) {
		rows, err := queries.HeadersStale(ctx, tx, after)
		if err != nil {
			return 0, err
		}
		for _, row := range rows {
			after.After = row.ID
			err := r.reseal(SubscriptionID(row.ID), row.Headers, row.KeyID, func(sealed []byte, keyID *string) (int64, error) {
				return queries.HeadersReencrypt(ctx, tx, &dbgen.HeadersReencryptParams{ID: row.ID, Was: row.Headers, Sealed: sealed, KeyID: keyID})
			})
			if err != nil {
				return 0, err
			}
		}
		return len(rows), nil
	})
}
