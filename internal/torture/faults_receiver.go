package torture

import (
	"context"
	"time"

	"github.com/postlane-go/postlane/internal/torture/check"
	"github.com/postlane-go/postlane/internal/torture/endpoint"
	"github.com/postlane-go/postlane/internal/torture/journal"
)

// behave has one endpoint behave in some way for some time.
func (r *run) behave(ctx context.Context, kind string, m endpoint.Mode, target int, d time.Duration) error {
	s := r.subscriptions.lock(target)
	if s == nil {
		return errBusy
	}
	defer s.busy.Unlock()
	return r.during(kind, s.path, func() error {
		s.set(m)
		rest(ctx, d)
		s.set(endpoint.Well)
		return nil
	})
}

func (r *run) receiverHang(ctx context.Context, target int, d time.Duration) error {
	return r.behave(ctx, check.ReceiverHang, endpoint.Hang, target, d)
}

func (r *run) receiverReset(ctx context.Context, target int, d time.Duration) error {
	return r.behave(ctx, check.ReceiverReset, endpoint.Reset, target, d)
}

func (r *run) receiverDrip(ctx context.Context, target int, d time.Duration) error {
	return r.behave(ctx, check.ReceiverDrip, endpoint.Drip, target, d)
}

func (r *run) receiverLate(ctx context.Context, target int, d time.Duration) error {
	return r.behave(ctx, check.ReceiverLate, endpoint.Late, target, d)
}

func (r *run) receiverError(ctx context.Context, target int, d time.Duration) error {
	return r.behave(ctx, check.ReceiverError, endpoint.Error, target, d)
}

func (r *run) receiverFlaky(ctx context.Context, target int, d time.Duration) error {
	return r.behave(ctx, check.ReceiverFlaky, endpoint.Flaky, target, d)
}

// receiverGone answers 410, which disables the subscription, and enables it again.
func (r *run) receiverGone(ctx context.Context, target int, d time.Duration) error {
	if err := r.behave(ctx, check.ReceiverGone, endpoint.Gone, target, d); err != nil {
		return err
	}
	s := r.subscriptions.lock(target)
	if s == nil {
		return nil // it is enabled at the end
	}
	defer s.busy.Unlock()
	return r.subscriptions.enable(ctx, s)
}

func (r *run) pauseSubscription(ctx context.Context, target int, d time.Duration) error {
	s := r.subscriptions.lock(target)
	if s == nil {
		return errBusy
	}
	defer s.busy.Unlock()
	began := journal.Now()
	if err := r.subscriptions.pause(ctx, s); err != nil {
		return err
	}
	rest(ctx, d)
	if err := r.subscriptions.enable(ctx, s); err != nil {
		return err
	}
	return r.note(check.SubscriptionStop, s.path, began)
}

func (r *run) rotateSecret(ctx context.Context, target int, _ time.Duration) error {
	s := r.subscriptions.lock(target)
	if s == nil || s.settings.V1a {
		if s != nil {
			s.busy.Unlock()
		}
		return errBusy
	}
	defer s.busy.Unlock()
	return r.during(check.SecretRotate, s.path, func() error { return r.subscriptions.rotate(ctx, s) })
}

// replaceSubscription deletes the one that was last made by it, with all that waits
// there, and makes another.
func (r *run) replaceSubscription(ctx context.Context, _ int, _ time.Duration) error {
	return r.during(check.SubscriptionNew, "", func() error { return r.subscriptions.replace(ctx) })
}
