-- The trace that an event comes from.

-- migrate:up
-- The W3C trace context of the span that enqueued it, to which each attempt is linked.
ALTER TABLE postlane.events ADD COLUMN traceparent text;

-- migrate:down
ALTER TABLE postlane.events DROP COLUMN traceparent;
