package console

import (
	"github.com/postlane-go/postlane/delivery"
)

// deliveryOf is the delivery that an action is about, in a subscription that the visitor
// may see.
func (v *visit) deliveryOf() (*delivery.Subscription, delivery.ID, error) {
	sub, err := v.subscription()
	if err != nil {
		return nil, 0, err
	}
	id, err := delivery.ParseID(v.r.PathValue("delivery_id"))
	return sub, id, err
}

func (v *visit) retryDelivery() error {
	sub, id, err := v.deliveryOf()
	if err != nil {
		return err
	}
	if err := v.Store.ReviveBy(v.ctx, sub.ID, id, v.who.Label()); err != nil {
		return err
	}
	return v.see(v.back(deliveryPath(sub.ID, id)), "Retrying: it is pending again, in its place in the stream, with its attempts at 0.")
}

func (v *visit) discardDelivery() error {
	sub, id, err := v.deliveryOf()
	if err != nil {
		return err
	}
	reason := v.form("reason")
	if reason == "" {
		return invalid("Say why it is discarded, for whoever reads the log.")
	}
	v.note(reason)
	if err := v.Store.Discard(v.ctx, sub.ID, id, reason); err != nil {
		return err
	}
	return v.see(v.back(deliveryPath(sub.ID, id)), "Discarded. Its stream goes on.")
}

func (v *visit) releaseDelivery() error {
	sub, id, err := v.deliveryOf()
	if err != nil {
		return err
	}
	if err := v.Store.ReleaseHeld(v.ctx, sub.ID, id); err != nil {
		return err
	}
	return v.see(v.back(deliveryPath(sub.ID, id)), "Released: the stream goes on. The letter stays dead, and can still be retried.")
}
