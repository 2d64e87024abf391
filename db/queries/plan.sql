-- name: PlanSettings :exec
--
-- Comes first in the transactions of the hot path. Their statements are shaped to
-- walk indexes; without statistics, or with those of an empty table, the planner may
-- prefer to read a table whole, and a prepared statement keeps that plan while the
-- table grows to a million rows.
--
-- What a switched-off plan costs in the planner's eyes is far above the threshold of
-- JIT compilation, so a statement that has no other plan would be compiled each
-- time: half a second of CPU for a LeaseReclaim that finds nothing.
--
-- Nor is it to keep rows that it has looked up, in case they are asked for again: each
-- event is asked for once, with its payload.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('enable_memoize', 'off', true),
       set_config('jit', 'off', true);
