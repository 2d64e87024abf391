-- name: LockTimeout :exec
--
-- Before a statement that may meet a unique key which another open transaction has
-- taken: wait half a second at most, less than the second after which PostgreSQL
-- looks for deadlocks.
SELECT set_config('postlane.lock_timeout', current_setting('lock_timeout'), true),
       set_config('lock_timeout', '500ms', true);

-- name: LockTimeoutRestore :exec
SELECT set_config('lock_timeout', current_setting('postlane.lock_timeout'), true);
