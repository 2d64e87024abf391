package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/internal/dbgen"
)

// MaxSecretOverlap is the longest time that a rotated secret goes on signing.
const MaxSecretOverlap = 7 * 24 * time.Hour

// CreateSubscription adds a subscription of a tenant and returns it with its signing
// secret, which nothing returns again. Events that are enqueued from now on reach it.
// A URL that the guard refuses is an error that matches guard.ErrRefused; other
// settings that cannot be are an *InvalidError.
func (s *Store) CreateSubscription(ctx context.Context, tenant string, settings Settings) (*Subscription, signing.Secret, error) {
	none := signing.Secret{}
	if tenant == "" || len(tenant) > MaxTenant || !isText(tenant) {
		return nil, none, &InvalidError{Index: -1, Field: "Tenant", Problem: fmt.Sprintf("is not 1 to %d bytes of UTF-8 without NUL", MaxTenant)}
	}
	if err := s.checkSettings(&settings); err != nil {
		return nil, none, err
	}
	secret, err := signing.Generate(0)
	if err != nil {
		return nil, none, fmt.Errorf("delivery: create subscription: %w", err)
	}
	id := newSubscriptionID()
	sealed, keyID := s.keyring.seal(id, []byte(secret.Reveal()))
	w := settings.written()
	var row *dbgen.PostlaneSubscriptions
	err = s.transaction(ctx, func(tx pgx.Tx) (err error) {
		row, err = queries.SubscriptionCreate(ctx, tx, &dbgen.SubscriptionCreateParams{
			ID: int64(id), Tenant: tenant, Url: w.url, Description: w.description, EventTypes: w.eventTypes, OnDead: w.onDead,
			MaxAttempts: w.maxAttempts, MaxInFlight: w.maxInFlight, DisableAfter: w.disableAfter, Conditions: w.conditions, Thin: settings.Thin,
		})
		if err != nil {
			return err
		}
		err = queries.SubscriptionAddSecret(ctx, tx, &dbgen.SubscriptionAddSecretParams{SubscriptionID: row.ID, Secret: sealed, KeyID: keyID})
		if err != nil {
			return err
		}
		if row, err = s.writeExtras(ctx, tx, row, &settings); err != nil {
			return err
		}
		return queries.SubscriptionNotify(ctx, tx)
	})
	if err != nil {
		return nil, none, fmt.Errorf("delivery: create subscription: %w", err)
	}
	return newSubscription(row), secret, nil
}

// Subscription returns a subscription, or ErrNotFound.
func (s *Store) Subscription(ctx context.Context, id SubscriptionID) (*Subscription, error) {
	row, err := queries.SubscriptionGet(ctx, s.pool, int64(id))
	if err != nil {
		return nil, s.notFound(err, "read", id)
	}
	list, err := s.withBreakers(ctx, []*dbgen.PostlaneSubscriptions{row})
	if err != nil {
		return nil, s.notFound(err, "read", id)
	}
	return list[0], nil
}

// Subscriptions returns up to max subscriptions of a tenant ("": of all), in the order
// of their ids, after the given one (0: from the first).
func (s *Store) Subscriptions(ctx context.Context, tenant string, after SubscriptionID, max int) ([]*Subscription, error) {
	rows, err := queries.SubscriptionList(ctx, s.pool, &dbgen.SubscriptionListParams{Tenant: tenant, After: int64(after), Max: int32(max)})
	if err != nil {
		return nil, fmt.Errorf("delivery: list subscriptions: %w", err)
	}
	list, err := s.withBreakers(ctx, rows)
	if err != nil {
		return nil, fmt.Errorf("delivery: list subscriptions: %w", err)
	}
	return list, nil
}

// UpdateSubscription reads a subscription, lets change edit its settings, and writes
// them, if nobody else did meanwhile. It returns when no request with the old settings
// starts any more (see Pause).
func (s *Store) UpdateSubscription(ctx context.Context, id SubscriptionID, change func(*Settings) error) (*Subscription, error) {
	const tries = 5
	for range tries {
		sub, err := s.Subscription(ctx, id)
		if err != nil {
			return nil, err
		}
		settings := sub.Settings
		if err := change(&settings); err != nil {
			return nil, err
		}
		if err := s.checkSettings(&settings); err != nil {
			return nil, err
		}
		w := settings.written()
		var row *dbgen.PostlaneSubscriptions
		err = s.transaction(ctx, func(tx pgx.Tx) (err error) {
			row, err = queries.SubscriptionUpdate(ctx, tx, &dbgen.SubscriptionUpdateParams{
				ID: int64(id), Revision: sub.Revision, Url: w.url, Description: w.description, EventTypes: w.eventTypes, OnDead: w.onDead,
				MaxAttempts: w.maxAttempts, MaxInFlight: w.maxInFlight, DisableAfter: w.disableAfter, Conditions: w.conditions, Thin: settings.Thin,
			})
			if err != nil {
				return err
			}
			if settings.URL != sub.URL {
				if err := queries.BreakerClose(ctx, tx, int64(id)); err != nil {
					return err
				}
			}
			row, err = s.writeExtras(ctx, tx, row, &settings)
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("delivery: update subscription %v: %w", id, err)
		}
		return newSubscription(row), s.quiesce(ctx, id)
	}
	return nil, ErrChanged
}

// Pause stops a subscription; reason is for people. When it returns, no request to the
// endpoint starts any more, whichever process would send it; requests that are open go
// on and are settled. Nothing pending is lost.
func (s *Store) Pause(ctx context.Context, id SubscriptionID, reason string) (*Subscription, error) {
	sub, err := s.setState(ctx, id, Paused, reason)
	if err != nil {
		return nil, err
	}
	return sub, s.quiesce(ctx, id)
}

// Enable starts a paused or disabled subscription again, with no failures counted and its
// Breaker closed.
// What is pending goes out in order.
func (s *Store) Enable(ctx context.Context, id SubscriptionID) (*Subscription, error) {
	return s.setState(ctx, id, Active, "")
}

// DeleteSubscription deletes a subscription. When it returns, no request to the endpoint
// starts any more. What is pending is discarded in the background and stays in the log
// with that reason; a delivery in flight is settled as its answer has it.
func (s *Store) DeleteSubscription(ctx context.Context, id SubscriptionID) error {
	if _, err := queries.SubscriptionDelete(ctx, s.pool, int64(id)); err != nil {
		return s.notFound(err, "delete", id)
	}
	return s.quiesce(ctx, id)
}

// RotateSecret gives a subscription a new secret and returns it; nothing returns it
// again. Where it signs with v1a too, it gets a new key for that. The ones before go on signing beside it for overlap, at most
// MaxSecretOverlap, so that the receiver can change over without missing an event.
func (s *Store) RotateSecret(ctx context.Context, id SubscriptionID, overlap time.Duration) (signing.Secret, error) {
	none := signing.Secret{}
	if overlap < 0 || overlap > MaxSecretOverlap {
		return none, &InvalidError{Index: -1, Field: "overlap", Problem: fmt.Sprintf("is %v; use 0 to %v", overlap, MaxSecretOverlap)}
	}
	secret, err := signing.Generate(0)
	if err != nil {
		return none, fmt.Errorf("delivery: rotate the secret of %v: %w", id, err)
	}
	sealed, keyID := s.keyring.seal(id, []byte(secret.Reveal()))
	err = s.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := queries.SubscriptionLock(ctx, tx, int64(id)); err != nil {
			return err
		}
		_, err := queries.SubscriptionRotateSecret(ctx, tx, &dbgen.SubscriptionRotateSecretParams{
			ID: int64(id), OverlapMs: overlap.Milliseconds(), Secret: sealed, KeyID: keyID,
		})
		if err != nil {
			return err
		}
		row, err := queries.SubscriptionGet(ctx, tx, int64(id))
		if err != nil || row.PublicKey == nil {
			return err
		}
		return s.addKey(ctx, tx, row.ID)
	})
	if err != nil {
		return none, s.notFound(err, "rotate the secret of", id)
	}
	return secret, nil
}

func (s *Store) setState(ctx context.Context, id SubscriptionID, state State, reason string) (*Subscription, error) {
	arg := &dbgen.SubscriptionSetStateParams{ID: int64(id), State: string(state)}
	if reason != "" {
		arg.Reason = &reason
	}
	var row *dbgen.PostlaneSubscriptions
	err := s.transaction(ctx, func(tx pgx.Tx) (err error) {
		if row, err = queries.SubscriptionSetState(ctx, tx, arg); err != nil {
			return err
		}
		if state == Active {
			if err := queries.BreakerClose(ctx, tx, int64(id)); err != nil {
				return err
			}
		}
		return queries.SubscriptionNotify(ctx, tx)
	})
	if err != nil {
		return nil, s.notFound(err, "change", id)
	}
	return newSubscription(row), nil
}

func (s *Store) checkSettings(settings *Settings) error {
	if _, err := s.guard.CheckURL(settings.URL); err != nil {
		return fmt.Errorf("delivery: URL: %w", err)
	}
	return settings.check()
}

func (s *Store) notFound(err error, what string, id SubscriptionID) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: no subscription %v", ErrNotFound, id)
	}
	return fmt.Errorf("delivery: %s subscription %v: %w", what, id, err)
}

// settingsRow is how Settings are written.
type settingsRow struct {
	url                       string
	description               *string
	eventTypes                []string
	onDead                    string
	maxAttempts, disableAfter int32
	maxInFlight               *int32
	conditions                *string
}

func (s *Settings) written() settingsRow {
	row := settingsRow{
		url: s.URL, description: s.Description, eventTypes: s.EventTypes,
		onDead:       string(cmp.Or(s.OnDead, Continue)),
		maxAttempts:  int32(cmp.Or(s.MaxAttempts, defaultMaxAttempts)),
		disableAfter: int32(max(cmp.Or(s.DisableAfter, defaultDisableAfter), 0)),
		conditions:   conditionsRow(s.Conditions),
	}
	if row.eventTypes == nil {
		row.eventTypes = []string{"*"}
	}
	if s.MaxInFlight > 0 {
		n := int32(s.MaxInFlight)
		row.maxInFlight = &n
	}
	return row
}
