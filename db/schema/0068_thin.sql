-- Thin events, as a subscription chooses: what is sent says which event there is, and the
-- payload is fetched.

-- migrate:up
ALTER TABLE postlane.subscriptions ADD COLUMN thin boolean NOT NULL DEFAULT false;

-- migrate:down
ALTER TABLE postlane.subscriptions DROP COLUMN thin;
