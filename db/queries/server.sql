-- name: ServerWritable :one
--
-- Whether the database takes writes: not a standby, nor one that is set to be read only.
SELECT (current_setting('transaction_read_only') = 'off')::boolean AS writable;

-- name: ServerIdentity :one
--
-- What a primary and its standbys have in common, and nothing else has.
SELECT system_identifier::bigint AS system, current_database()::text AS database FROM pg_control_system();

-- name: ServerPosition :one
--
-- How far the primary has written: what a standby must have replayed to know of everything
-- -- Where the last record ends with its page, the primary names the place behind the next
-- page's header, to which a standby comes with the next record: that header is taken off,
-- or an idle standby would seem to be behind.
SELECT (at - CASE
    WHEN at % pg_size_bytes(current_setting('wal_segment_size')) = 40 THEN 40
    WHEN at % current_setting('wal_block_size')::bigint = 24 THEN 24
    ELSE 0 END)::bigint AS position
FROM (SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS at) AS now;

-- name: ServerReplayed :one
--
-- How far a standby has replayed. What is no standby has replayed nothing.
SELECT pg_is_in_recovery() AS standby, coalesce(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0'), 0)::bigint AS position;
