-- Events and deliveries are of the time at which they were written, and not of that at
-- which their transaction began: so their times are in the order of their seqs, however
-- long a transaction was open before it wrote, and a range of time is a range of seqs.
-- What stands already keeps its time.

-- migrate:up
ALTER TABLE postlane.events ALTER COLUMN created_at SET DEFAULT clock_timestamp();
ALTER TABLE postlane.deliveries ALTER COLUMN created_at SET DEFAULT clock_timestamp();

-- migrate:down
ALTER TABLE postlane.deliveries ALTER COLUMN created_at SET DEFAULT now();
ALTER TABLE postlane.events ALTER COLUMN created_at SET DEFAULT now();
