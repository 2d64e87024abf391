-- postlane.enqueue refuses event types that begin with postlane., as delivery.Enqueue does:
-- they are those of operational events.

-- migrate:up
CREATE OR REPLACE FUNCTION postlane.enqueue(
    tenant text, type text, payload bytea, asset text DEFAULT NULL, id text DEFAULT NULL, content_type text DEFAULT NULL, traceparent text DEFAULT NULL,
    deliver_after timestamptz DEFAULT NULL
) RETURNS postlane.enqueued LANGUAGE plpgsql
-- As delivery.Enqueue, it waits for another transaction with the same id half a second.
SET search_path = pg_catalog SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    event postlane.events;
    known record;
    differs text[];
    parts text[];
    patterns text[];
    field text;
    problem text;
BEGIN
    event.tenant := coalesce(enqueue.tenant, '');
    event.type := coalesce(enqueue.type, '');
    event.asset := nullif(enqueue.asset, '');
    event.id := nullif(enqueue.id, '');
    event.content_type := coalesce(nullif(enqueue.content_type, ''), 'application/json');
    event.payload := enqueue.payload;
    event.traceparent := nullif(enqueue.traceparent, '');
    parts := string_to_array(event.type, '.');

    SELECT c.field, c.problem INTO field, problem
    FROM (VALUES
        (octet_length(event.id) > 128, 'id', 'is longer than 128 bytes'),
        (event.id !~ '^[A-Za-z0-9_-]+$' COLLATE "C", 'id', to_json(event.id)::text || ' has characters that a webhook-id cannot carry; use letters, digits, - and _'),
        (event.tenant = '', 'tenant', 'is empty; say whose event it is'),
        (octet_length(event.tenant) > 128, 'tenant', 'is longer than 128 bytes'),
        (octet_length(event.asset) > 512, 'asset', 'is longer than 512 bytes'),
        (event.payload IS NULL, 'payload', 'is NULL; an event without one has the empty text'),
        (octet_length(event.payload) > 4194304, 'payload', 'has ' || octet_length(event.payload) || ' bytes, more than 4194304; send a reference to it'),
        (event.content_type !~ '^[ -~]*$' COLLATE "C", 'content_type', 'has characters that a header cannot carry'),
        (event.type = '', 'type', 'is empty; name the kind of event, such as invoice.paid'),
        (octet_length(event.type) > 128, 'type', 'is longer than 128 bytes'),
        (event.type !~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' COLLATE "C", 'type',
         to_json(event.type)::text || ' is not parts of letters, digits, - and _ with full stops between, such as invoice.paid'),
        (starts_with(event.type, 'postlane.'), 'type',
         to_json(event.type)::text || ' begins with postlane., which is kept for Postlane''s own events; choose another name'),
        (cardinality(parts) > 16, 'type', 'has more than 16 parts'),
        (event.traceparent !~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' COLLATE "C", 'traceparent',
         'is not a W3C trace context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'),
        (NOT isfinite(enqueue.deliver_after), 'deliver_after', 'is ' || enqueue.deliver_after || '; give a time'),
        (enqueue.deliver_after < timestamptz 'epoch', 'deliver_after', 'is before 1970; give a time, or none for now'),
        (enqueue.deliver_after > clock_timestamp() + interval '8760 hours', 'deliver_after', 'is more than 365 days ahead; keep it yourself until then')
    ) c (bad, field, problem)
    WHERE c.bad LIMIT 1;
    IF problem IS NOT NULL THEN
        PERFORM postlane.invalid('enqueue', field, problem);
    END IF;

    event.id := coalesce(event.id, postlane.new_id('evt_'));
    INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload, traceparent)
    VALUES (nextval('postlane.delivery_seq'), event.tenant, event.id, event.type, event.asset, event.content_type, event.payload, event.traceparent)
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING seq INTO event.seq;

    IF event.seq IS NULL THEN
        SELECT e.seq, e.type, e.asset, e.content_type, e.payload INTO known
        FROM postlane.events e WHERE e.tenant = event.tenant AND e.id = event.id;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = 'postlane.enqueue: another transaction is enqueueing the same event id';
        END IF;
        differs := array_remove(ARRAY[
            CASE WHEN known.type <> event.type THEN 'type' END,
            CASE WHEN known.asset IS DISTINCT FROM event.asset THEN 'asset' END,
            CASE WHEN known.content_type <> event.content_type THEN 'content type' END,
            CASE WHEN known.payload <> event.payload THEN 'payload' END], NULL);
        IF differs <> '{}' THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation',
                MESSAGE = format('postlane.enqueue: event %s of tenant %s was enqueued before with another %s; give a new event a new id',
                    to_json(event.id), to_json(event.tenant),
                    concat_ws(' and ', nullif(array_to_string(differs[:cardinality(differs) - 1], ', '), ''), differs[cardinality(differs)]));
        END IF;
        RETURN (event.id, known.seq, true);
    END IF;

    -- Every pattern that matches: the type, each prefix of it, and all.
    patterns := ARRAY[event.type, '*'] ||
        (SELECT array_agg(array_to_string(parts[:n], '.') || '.*') FROM generate_series(1, cardinality(parts) - 1) n);
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready, due_at)
    SELECT w.subscription_id, event.seq, event.tenant, event.id, event.type, event.asset,
           CASE WHEN enqueue.deliver_after IS NULL THEN event.seq END, enqueue.deliver_after
    FROM (
        SELECT p.subscription_id, p.conditions FROM postlane.subscription_patterns p
        WHERE p.tenant = event.tenant AND p.pattern = ANY (patterns)
        OFFSET 0 -- decides first, or another tenant's conditions could have the payload read
    ) w
    WHERE w.conditions IS NULL
       OR jsonb_path_match((SELECT postlane.event_json(event.payload, event.content_type)), w.conditions, '{}', true);
    PERFORM postlane.wake('delivery');
    RETURN (event.id, event.seq, false);
END
$$;

-- migrate:down
CREATE OR REPLACE FUNCTION postlane.enqueue(
    tenant text, type text, payload bytea, asset text DEFAULT NULL, id text DEFAULT NULL, content_type text DEFAULT NULL, traceparent text DEFAULT NULL,
    deliver_after timestamptz DEFAULT NULL
) RETURNS postlane.enqueued LANGUAGE plpgsql
-- As delivery.Enqueue, it waits for another transaction with the same id half a second.
SET search_path = pg_catalog SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    event postlane.events;
    known record;
    differs text[];
    parts text[];
    patterns text[];
    field text;
    problem text;
BEGIN
    event.tenant := coalesce(enqueue.tenant, '');
    event.type := coalesce(enqueue.type, '');
    event.asset := nullif(enqueue.asset, '');
    event.id := nullif(enqueue.id, '');
    event.content_type := coalesce(nullif(enqueue.content_type, ''), 'application/json');
    event.payload := enqueue.payload;
    event.traceparent := nullif(enqueue.traceparent, '');
    parts := string_to_array(event.type, '.');

    SELECT c.field, c.problem INTO field, problem
    FROM (VALUES
        (octet_length(event.id) > 128, 'id', 'is longer than 128 bytes'),
        (event.id !~ '^[A-Za-z0-9_-]+$' COLLATE "C", 'id', to_json(event.id)::text || ' has characters that a webhook-id cannot carry; use letters, digits, - and _'),
        (event.tenant = '', 'tenant', 'is empty; say whose event it is'),
        (octet_length(event.tenant) > 128, 'tenant', 'is longer than 128 bytes'),
        (octet_length(event.asset) > 512, 'asset', 'is longer than 512 bytes'),
        (event.payload IS NULL, 'payload', 'is NULL; an event without one has the empty text'),
        (octet_length(event.payload) > 4194304, 'payload', 'has ' || octet_length(event.payload) || ' bytes, more than 4194304; send a reference to it'),
        (event.content_type !~ '^[ -~]*$' COLLATE "C", 'content_type', 'has characters that a header cannot carry'),
        (event.type = '', 'type', 'is empty; name the kind of event, such as invoice.paid'),
        (octet_length(event.type) > 128, 'type', 'is longer than 128 bytes'),
        (event.type !~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' COLLATE "C", 'type',
         to_json(event.type)::text || ' is not parts of letters, digits, - and _ with full stops between, such as invoice.paid'),
        (cardinality(parts) > 16, 'type', 'has more than 16 parts'),
        (event.traceparent !~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' COLLATE "C", 'traceparent',
         'is not a W3C trace context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'),
        (NOT isfinite(enqueue.deliver_after), 'deliver_after', 'is ' || enqueue.deliver_after || '; give a time'),
        (enqueue.deliver_after < timestamptz 'epoch', 'deliver_after', 'is before 1970; give a time, or none for now'),
        (enqueue.deliver_after > clock_timestamp() + interval '8760 hours', 'deliver_after', 'is more than 365 days ahead; keep it yourself until then')
    ) c (bad, field, problem)
    WHERE c.bad LIMIT 1;
    IF problem IS NOT NULL THEN
        PERFORM postlane.invalid('enqueue', field, problem);
    END IF;

    event.id := coalesce(event.id, postlane.new_id('evt_'));
    INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload, traceparent)
    VALUES (nextval('postlane.delivery_seq'), event.tenant, event.id, event.type, event.asset, event.content_type, event.payload, event.traceparent)
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING seq INTO event.seq;

    IF event.seq IS NULL THEN
        SELECT e.seq, e.type, e.asset, e.content_type, e.payload INTO known
        FROM postlane.events e WHERE e.tenant = event.tenant AND e.id = event.id;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = 'postlane.enqueue: another transaction is enqueueing the same event id';
        END IF;
        differs := array_remove(ARRAY[
            CASE WHEN known.type <> event.type THEN 'type' END,
            CASE WHEN known.asset IS DISTINCT FROM event.asset THEN 'asset' END,
            CASE WHEN known.content_type <> event.content_type THEN 'content type' END,
            CASE WHEN known.payload <> event.payload THEN 'payload' END], NULL);
        IF differs <> '{}' THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation',
                MESSAGE = format('postlane.enqueue: event %s of tenant %s was enqueued before with another %s; give a new event a new id',
                    to_json(event.id), to_json(event.tenant),
                    concat_ws(' and ', nullif(array_to_string(differs[:cardinality(differs) - 1], ', '), ''), differs[cardinality(differs)]));
        END IF;
        RETURN (event.id, known.seq, true);
    END IF;

    -- Every pattern that matches: the type, each prefix of it, and all.
    patterns := ARRAY[event.type, '*'] ||
        (SELECT array_agg(array_to_string(parts[:n], '.') || '.*') FROM generate_series(1, cardinality(parts) - 1) n);
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready, due_at)
    SELECT w.subscription_id, event.seq, event.tenant, event.id, event.type, event.asset,
           CASE WHEN enqueue.deliver_after IS NULL THEN event.seq END, enqueue.deliver_after
    FROM (
        SELECT p.subscription_id, p.conditions FROM postlane.subscription_patterns p
        WHERE p.tenant = event.tenant AND p.pattern = ANY (patterns)
        OFFSET 0 -- decides first, or another tenant's conditions could have the payload read
    ) w
    WHERE w.conditions IS NULL
       OR jsonb_path_match((SELECT postlane.event_json(event.payload, event.content_type)), w.conditions, '{}', true);
    PERFORM postlane.wake('delivery');
    RETURN (event.id, event.seq, false);
END
$$;
