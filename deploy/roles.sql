-- Roles of PostgreSQL for Postlane, each with what it needs and nothing else. Run as a
-- superuser in Postlane's database, after `postlane migrate up`, and again after every later
-- one, which may have made tables; running it twice changes nothing.
--
--   postlane_owner       owns the schema: `postlane migrate`
--   postlane_app         an application: enqueue and stage, from Go and from SQL
--   postlane_dispatcher  delivers: delivery.Dispatcher
--   postlane_relay       relays the outbox: outbox.Relay
--   postlane_operator    the API, the console and the command line: looks at everything, and operates
--   postlane_retention   removes what is over: `postlane prune`, and the server where a POSTLANE_KEEP_* is set
--   postlane_server      all of these but the owner: `postlane serve`
--
-- None of them can log in. Give them to those who do:
--
--   CREATE ROLE shop LOGIN PASSWORD '…' IN ROLE postlane_app;
--
-- Row locks (FOR UPDATE) need the right to update some column: where nothing is to be
-- updated, the one that is granted below is harmless.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY '{postlane_owner, postlane_app, postlane_dispatcher, postlane_relay, postlane_operator, postlane_retention, postlane_server}'::text[] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = name) THEN
            EXECUTE format('CREATE ROLE %I', name);
        END IF;
    END LOOP;
END
$$;

-- The owner. What belongs to something else goes along with it.
DO $$
DECLARE
    alteration text;
BEGIN
    FOR alteration IN
        SELECT format('ALTER %s %s', CASE c.relkind WHEN 'c' THEN 'TYPE' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass)
        FROM pg_class c
        WHERE c.relnamespace = 'postlane'::regnamespace AND c.relkind IN ('r', 'S', 'c')
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i') AND d.refclassid = 'pg_class'::regclass)
        UNION ALL
        SELECT format('ALTER ROUTINE %s', p.oid::regprocedure) FROM pg_proc p WHERE p.pronamespace = 'postlane'::regnamespace
    LOOP
        EXECUTE alteration || ' OWNER TO postlane_owner';
    END LOOP;
END
$$;
ALTER SCHEMA postlane OWNER TO postlane_owner;
-- The application's migrations may be in this table too.
GRANT SELECT, INSERT, DELETE ON public.schema_migrations TO postlane_owner;

REVOKE ALL ON SCHEMA postlane FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA postlane FROM PUBLIC, postlane_app, postlane_dispatcher, postlane_relay, postlane_operator, postlane_retention;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA postlane FROM PUBLIC, postlane_app, postlane_dispatcher, postlane_relay, postlane_operator, postlane_retention;
REVOKE ALL ON ALL ROUTINES IN SCHEMA postlane FROM PUBLIC, postlane_app, postlane_dispatcher, postlane_relay, postlane_operator, postlane_retention;
GRANT USAGE ON SCHEMA postlane TO postlane_app, postlane_dispatcher, postlane_relay, postlane_operator, postlane_retention;

-- An application. It can read events and messages: whether an id is taken, and by what,
-- is a question about them.
GRANT SELECT ON postlane.subscription_patterns TO postlane_app;
-- eventschema.Load reads schemas.
GRANT SELECT ON postlane.event_types TO postlane_app;
GRANT SELECT, INSERT ON postlane.events, postlane.outbox_messages TO postlane_app;
GRANT INSERT ON postlane.deliveries, postlane.outbox_pending, postlane.outbox_scheduled TO postlane_app;
GRANT USAGE ON SEQUENCE postlane.delivery_seq, postlane.outbox_seq TO postlane_app;
GRANT SELECT, UPDATE ON SEQUENCE postlane.wake_seq TO postlane_app;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA postlane TO postlane_app;
REVOKE EXECUTE ON FUNCTION postlane.conditions_path(jsonb), postlane.subscription_patterns_sync(), postlane.statistics_add(bigint[], bigint[]),
    postlane.matches(text, text), postlane.tell(text, bigint, text, jsonb),
    postlane.tell_dead(text, bigint, bigint, text, text, text, integer, text, boolean) FROM postlane_app;

-- The dispatcher. Of a subscription it changes what its deliveries' outcomes say.
GRANT SELECT ON postlane.subscriptions, postlane.subscription_secrets, postlane.events TO postlane_dispatcher;
GRANT UPDATE (revision, state, state_reason, state_since, failure_count, failing, updated_at) ON postlane.subscriptions TO postlane_dispatcher;
GRANT SELECT, UPDATE, DELETE ON postlane.deliveries TO postlane_dispatcher;
GRANT SELECT, INSERT, UPDATE, DELETE ON postlane.leases, postlane.breakers TO postlane_dispatcher;
GRANT SELECT, UPDATE ON postlane.paces TO postlane_dispatcher;
GRANT SELECT, INSERT ON postlane.settled TO postlane_dispatcher;
GRANT INSERT ON postlane.attempts TO postlane_dispatcher;
-- Operational events are enqueued.
GRANT INSERT ON postlane.events, postlane.deliveries TO postlane_dispatcher;
GRANT SELECT, UPDATE ON SEQUENCE postlane.wake_seq TO postlane_dispatcher;
GRANT EXECUTE ON FUNCTION postlane.tell(text, bigint, text, jsonb), postlane.tell_dead(text, bigint, bigint, text, text, text, integer, text, boolean),
    postlane.conditions_path(jsonb), postlane.new_id(text), postlane.wake(text) TO postlane_dispatcher;
GRANT USAGE ON SEQUENCE postlane.delivery_seq, postlane.fence_seq TO postlane_dispatcher;

-- The relay of the outbox.
GRANT SELECT ON postlane.outbox_messages, postlane.outbox_parked TO postlane_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON postlane.outbox_pending, postlane.outbox_leases, postlane.outbox_holds TO postlane_relay;
GRANT SELECT, DELETE, UPDATE (size) ON postlane.outbox_scheduled TO postlane_relay;
GRANT INSERT ON postlane.outbox_parked, postlane.outbox_published TO postlane_relay;
GRANT USAGE ON SEQUENCE postlane.outbox_fence_seq TO postlane_relay;

-- Operators, and those whom the API and the console serve. The audit log is written, and
-- nothing of it removed.
GRANT SELECT ON ALL TABLES IN SCHEMA postlane TO postlane_operator;
GRANT INSERT, UPDATE ON postlane.subscriptions, postlane.api_keys, postlane.replays TO postlane_operator;
GRANT INSERT, DELETE ON postlane.subscription_patterns, postlane.console_sessions TO postlane_operator;
GRANT DELETE ON postlane.breakers TO postlane_operator;
GRANT INSERT, UPDATE, DELETE ON postlane.subscription_secrets, postlane.paces, postlane.deliveries, postlane.settled TO postlane_operator;
GRANT INSERT ON postlane.events, postlane.revivals, postlane.replayed TO postlane_operator;
GRANT INSERT, UPDATE, DELETE ON postlane.event_types TO postlane_operator;
GRANT INSERT, UPDATE (tenant, target, detail, status, outcome) ON postlane.audit TO postlane_operator;
GRANT INSERT, UPDATE, DELETE ON postlane.statistics_minutes, postlane.statistics_spans, postlane.statistics_kinds TO postlane_operator;
GRANT UPDATE ON postlane.statistics_progress, postlane.outbox_holds TO postlane_operator;
GRANT INSERT ON postlane.outbox_pending TO postlane_operator;
GRANT DELETE ON postlane.outbox_parked TO postlane_operator;
GRANT USAGE ON SEQUENCE postlane.delivery_seq TO postlane_operator;
GRANT EXECUTE ON FUNCTION postlane.subscription_patterns_sync(), postlane.statistics_add(bigint[], bigint[]), postlane.matches(text, text),
    postlane.event_json(bytea, text), postlane.conditions_path(jsonb)
    TO postlane_operator;

-- Retention.
GRANT SELECT ON postlane.subscriptions, postlane.deliveries TO postlane_retention;
GRANT SELECT, DELETE ON postlane.settled, postlane.attempts, postlane.revivals, postlane.replays, postlane.replayed, postlane.audit,
    postlane.console_sessions TO postlane_retention;
GRANT SELECT (subscription_id, number, expires_at), DELETE, UPDATE (expires_at) ON postlane.subscription_secrets TO postlane_retention;
GRANT SELECT (created_at, tenant, id, seq), DELETE, UPDATE (traceparent) ON postlane.events TO postlane_retention;
GRANT SELECT (id), DELETE ON postlane.outbox_messages TO postlane_retention;
GRANT SELECT, DELETE, UPDATE (claimant) ON postlane.outbox_published TO postlane_retention;

GRANT SELECT ON public.schema_migrations TO postlane_operator, postlane_retention;
GRANT postlane_app, postlane_dispatcher, postlane_relay, postlane_operator, postlane_retention TO postlane_server;
