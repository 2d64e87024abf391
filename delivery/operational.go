package delivery

// ReservedPrefix begins the types of operational events, which no application can
// enqueue.
const ReservedPrefix = "postlane."

// Operational events tell the tenant of a subscription what became of it and of its
// deliveries. They are enqueued in the transaction in which it happens, with the
// subscription's id as their asset, and go to those of the tenant's subscriptions whose
// event types name them or a prefix of them ("postlane.*"); "*" does not match them.
//
// The payload is a JSON object: type, subscription_id, at and reason; with the first two
// also delivery_id, event_id, event_type, asset and attempts. No payload and no secret is
// in it.
//
// The death of an operational event's own delivery is not told, so that none is the cause
// of another without end.
const (
	// DeliveryDeadEvent: a delivery died. held says whether it holds its stream.
	DeliveryDeadEvent = ReservedPrefix + "delivery.dead"
	// StreamHeldEvent: it holds its stream until an operator acts.
	StreamHeldEvent = ReservedPrefix + "stream.held"
	// SubscriptionDisabledEvent: the system disabled the subscription.
	SubscriptionDisabledEvent = ReservedPrefix + "subscription.disabled"
)
