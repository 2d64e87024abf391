-- name: ServerWritable :one
--
-- Whether the database takes writes: not a standby, nor one that is set to be read only.
SELECT (current_setting('transaction_read_only') = 'off')::boolean AS writable;
