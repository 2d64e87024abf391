package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/torture/endpoint"
	"github.com/postlane-go/postlane/internal/torture/journal"
)

const tenant = "torture"

// subscription is an endpoint of the run.
type subscription struct {
	path     string
	receiver *child
	id       delivery.SubscriptionID
	settings delivery.Settings
	// busy is held by whatever is at work on it.
	busy sync.Mutex
	mu   sync.Mutex
	mode endpoint.Mode
}

// set changes how its endpoint answers.
func (s *subscription) set(m endpoint.Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
	s.receiver.tell("%s %s", s.path, m)
}

// subscriptions is the operator: it creates and changes them through the public API,
// until it succeeds, and writes down what it did.
type subscriptions struct {
	store     *delivery.Store
	journal   *journal.Writer
	receivers []*child
	ports     map[string]string // of receivers

	mu    sync.Mutex
	all   []*subscription
	count int
	// passing are those of all that replace makes and deletes.
	passing []*subscription
}

// newOperator makes the operator, and the subscriptions of the run's beginning.
func newOperator(ctx context.Context, pool *pgxpool.Pool, secretKey string, log *journal.Writer, receivers []*child, ports map[string]string) (*subscriptions, error) {
	keyring, err := delivery.ParseKeyring(secretKey)
	if err != nil {
		return nil, err
	}
	judge, err := guard.New(guard.Policy{Development: true})
	if err != nil {
		return nil, err
	}
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: judge, Keyring: keyring})
	if err != nil {
		return nil, err
	}
	o := &subscriptions{store: store, journal: log, receivers: receivers, ports: ports}
	// Patient ones lose nothing to attempts that are used up.
	patient := delivery.Settings{MaxAttempts: 1000, DisableAfter: delivery.Never}
	some, few, impatient, holding, signing := patient, patient, patient, patient, patient
	some.EventTypes = []string{"asset.*"}
	few.EventTypes, few.MaxInFlight = []string{"order.paid", "asset.changed"}, 2
	impatient.MaxAttempts, impatient.DisableAfter = 2, 5
	holding.MaxAttempts, holding.OnDead = 3, delivery.Hold
	signing.V1a = true
	for _, settings := range []delivery.Settings{patient, some, few, impatient, holding, signing} {
		if _, err := o.create(ctx, settings); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// create adds a subscription. Where an answer does not come, one may be there whose
// secret nobody knows: each try has a path of its own, so that it is told apart.
func (o *subscriptions) create(ctx context.Context, settings delivery.Settings) (*subscription, error) {
	var s *subscription
	err := persist(ctx, func() error {
		o.mu.Lock()
		o.count++
		n := o.count
		o.mu.Unlock()
		receiver := o.receivers[n%len(o.receivers)]
		s = &subscription{path: fmt.Sprintf("/%d", n), receiver: receiver, settings: settings}
		s.settings.URL = "http://" + o.ports[receiver.name] + s.path
		began := journal.Now()
		sub, secret, err := o.store.CreateSubscription(ctx, tenant, s.settings)
		if err != nil {
			return err
		}
		s.id = sub.ID
		return o.journal.Write(journal.Line{Secret: &journal.Secret{Path: s.path, Secret: secret.Reveal()}},
			journal.Line{Subscription: &journal.Subscription{
				Path: s.path, Receiver: receiver.name, Types: sub.EventTypes, PublicKey: sub.PublicKey, Began: began, Ended: journal.Now(),
			}})
	})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, s)
	return s, nil
}

// lock chooses a subscription; nil if something is at work on it. The caller unlocks it.
func (o *subscriptions) lock(target int) *subscription {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.all[target%len(o.all)]; s.busy.TryLock() {
		return s
	}
	return nil
}

// change does something to a subscription until it succeeds, and writes it down.
func (o *subscriptions) change(ctx context.Context, s *subscription, what string, f func() error) error {
	began := journal.Now()
	if err := persist(ctx, f); err != nil {
		return fmt.Errorf("%s %s: %w", what, s.path, err)
	}
	return o.journal.Write(journal.Line{Change: &journal.Change{Path: s.path, What: what, Began: began, Ended: journal.Now()}})
}

func (o *subscriptions) pause(ctx context.Context, s *subscription) error {
	return o.change(ctx, s, journal.Pause, func() error {
		_, err := o.store.Pause(ctx, s.id, "torture")
		return err
	})
}

func (o *subscriptions) enable(ctx context.Context, s *subscription) error {
	return o.change(ctx, s, journal.Enable, func() error {
		_, err := o.store.Enable(ctx, s.id)
		return err
	})
}

func (o *subscriptions) rotate(ctx context.Context, s *subscription) error {
	return o.change(ctx, s, journal.Rotate, func() error {
		secret, err := o.store.RotateSecret(ctx, s.id, time.Hour)
		if err != nil {
			return err
		}
		return o.journal.Write(journal.Line{Secret: &journal.Secret{Path: s.path, Secret: secret.Reveal()}})
	})
}

// replace makes a subscription, and deletes the one before it.
func (o *subscriptions) replace(ctx context.Context) error {
	s, err := o.create(ctx, delivery.Settings{MaxAttempts: 1000, DisableAfter: delivery.Never})
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.passing = append(o.passing, s)
	var old *subscription
	if len(o.passing) > 1 && o.passing[0].busy.TryLock() {
		old, o.passing = o.passing[0], o.passing[1:]
		o.all = slices.DeleteFunc(slices.Clone(o.all), func(s *subscription) bool { return s == old })
	}
	o.mu.Unlock()
	if old == nil {
		return nil
	}
	defer old.busy.Unlock()
	return o.change(ctx, old, journal.Delete, func() error {
		if err := o.store.DeleteSubscription(ctx, old.id); !errors.Is(err, delivery.ErrNotFound) {
			return err
		}
		return nil
	})
}

// remind tells a receiver that came back how its endpoints behave.
func (o *subscriptions) remind(receiver *child) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.all {
		if s.receiver == receiver {
			s.mu.Lock()
			receiver.tell("%s %s", s.path, s.mode)
			s.mu.Unlock()
		}
	}
}

// enableAll enables what was paused or disabled.
func (o *subscriptions) enableAll(ctx context.Context) error {
	o.mu.Lock()
	all := slices.Clone(o.all)
	o.mu.Unlock()
	var errs []error
	for _, s := range all {
		errs = append(errs, o.enable(ctx, s))
	}
	return errors.Join(errs...)
}
