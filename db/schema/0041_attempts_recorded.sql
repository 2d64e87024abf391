-- Finds the attempts of a time. They lie in the table in the order in which they were
-- recorded, so an index of block ranges does, and recording one costs it next to nothing.

-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY attempts_recorded ON postlane.attempts USING brin (recorded_at) WITH (pages_per_range = 32, autosummarize = on);

-- migrate:down
DROP INDEX IF EXISTS postlane.attempts_recorded;
