-- Enqueueing and staging from SQL: for triggers, and for applications in any language,
-- in the transaction that makes the change.
--
--   postlane.enqueue   delivery.Enqueue for one event
--   postlane.stage     outbox.Stage for one message
--
-- They check what the Go functions check and say so in the same words, and write the same
-- rows. An error ends the transaction, as any does in SQL; who wants to go on puts a
-- savepoint before the call. Its SQLSTATE is 22023 for what cannot be stored (with the
-- parameter's name as the column), 23505 for an event id that stands for another event,
-- and 55P03 where another open transaction is writing the same id.
--
-- They run with the rights of who calls them, which docs/from-sql.md lists, and whatever
-- the caller's search_path.

-- migrate:up
CREATE TYPE postlane.enqueued AS (id text, seq bigint, duplicate boolean);
CREATE TYPE postlane.staged AS (id text, seq bigint, duplicate boolean);

-- When the next notification is due, in microseconds: see wake. A sequence is written
-- without a lock that others would wait for until the transaction ends.
CREATE SEQUENCE postlane.wake_seq;

-- Notifies, if that is due: 200 a second, 20 at once after a pause. A commit that notifies
-- holds a lock of the whole cluster, so that such commits take turns; what goes without is
-- found by the next one's wake-up, or by polling. It is what wake.Limiter does in a Go
-- process. A due time far in the future is the trace of a clock that was set back.
CREATE FUNCTION postlane.wake(topic text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    present constant bigint := floor(extract(epoch FROM clock_timestamp()) * 1000000);
    due bigint;
BEGIN
    SELECT last_value INTO due FROM postlane.wake_seq;
    IF due > present + 10000000 THEN
        due := present;
    END IF;
    IF due <= present + 19 * 5000 THEN
        PERFORM setval('postlane.wake_seq', greatest(due, present) + 5000);
        PERFORM pg_notify('postlane', topic);
    END IF;
END
$$;

-- A prefix and a UUID of version 7, which sorts by time.
CREATE FUNCTION postlane.new_id(prefix text) RETURNS text LANGUAGE sql SET search_path = pg_catalog AS $$
    SELECT prefix || encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
                PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid
$$;

CREATE FUNCTION postlane.invalid(call text, field text, problem text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', COLUMN = field, MESSAGE = format('postlane.%s: %s %s', call, field, problem);
END
$$;

CREATE FUNCTION postlane.enqueue(
    tenant text, type text, payload bytea, asset text DEFAULT NULL, id text DEFAULT NULL, content_type text DEFAULT NULL, traceparent text DEFAULT NULL
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
         'is not a W3C trace context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01')
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
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready)
    SELECT p.subscription_id, event.seq, event.tenant, event.id, event.type, event.asset, event.seq
    FROM postlane.subscription_patterns p
    WHERE p.tenant = event.tenant AND p.pattern = ANY (patterns);
    PERFORM postlane.wake('delivery');
    RETURN (event.id, event.seq, false);
END
$$;

CREATE FUNCTION postlane.stage(
    topic text, payload bytea, queue text DEFAULT NULL, id text DEFAULT NULL, headers jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL, run_at timestamptz DEFAULT NULL, tenant text DEFAULT NULL, traceparent text DEFAULT NULL,
    enqueued_by text DEFAULT NULL
) RETURNS postlane.staged LANGUAGE plpgsql
SET search_path = pg_catalog SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    message postlane.outbox_messages;
    object constant boolean := coalesce(jsonb_typeof(stage.headers), 'null') IN ('null', 'object');
    empty_name boolean;
    other_value boolean;
    size bigint;
    field text;
    problem text;
BEGIN
    message.topic := coalesce(stage.topic, '');
    message.payload := stage.payload;
    message.queue := coalesce(nullif(stage.queue, ''), 'default');
    message.id := nullif(stage.id, '');
    message.idempotency_key := nullif(stage.idempotency_key, '');
    message.max_attempts := coalesce(nullif(stage.max_attempts, 0), 20);
    message.run_at := stage.run_at;
    message.tenant := coalesce(stage.tenant, '');
    message.traceparent := nullif(stage.traceparent, '');
    message.enqueued_by := nullif(stage.enqueued_by, '');
    IF object AND jsonb_typeof(stage.headers) = 'object' THEN
        SELECT bool_or(h.key = ''), bool_or(jsonb_typeof(h.value) <> 'string'), sum(octet_length(h.key) + octet_length(h.value #>> '{}'))
        INTO empty_name, other_value, size
        FROM jsonb_each(stage.headers) h;
        message.headers := nullif(stage.headers, '{}');
    END IF;

    SELECT c.field, c.problem INTO field, problem
    FROM (VALUES
        (message.topic = '', 'topic', 'is empty; say what kind of message it is'),
        (octet_length(message.id) > 512, 'id', 'is longer than 512 bytes'),
        (octet_length(message.topic) > 512, 'topic', 'is longer than 512 bytes'),
        (octet_length(message.queue) > 512, 'queue', 'is longer than 512 bytes'),
        (octet_length(message.idempotency_key) > 512, 'idempotency_key', 'is longer than 512 bytes'),
        (octet_length(message.tenant) > 512, 'tenant', 'is longer than 512 bytes'),
        (octet_length(message.traceparent) > 512, 'traceparent', 'is longer than 512 bytes'),
        (octet_length(message.enqueued_by) > 512, 'enqueued_by', 'is longer than 512 bytes'),
        (NOT object OR other_value, 'headers', 'is not an object of texts'),
        (empty_name, 'headers', 'has "", whose name or value is not UTF-8 without NUL'),
        (size > 65536, 'headers', 'has ' || size || ' bytes, more than 65536'),
        (message.payload IS NULL, 'payload', 'is NULL; a message without one has the empty text'),
        (octet_length(message.payload) > 16777216, 'payload', 'has ' || octet_length(message.payload) || ' bytes, more than 16777216; stage a reference to it'),
        (message.max_attempts < 0, 'max_attempts', 'is ' || message.max_attempts || '; give 1 or more, or 0 for 20'),
        (NOT isfinite(message.run_at), 'run_at', 'is ' || message.run_at || '; give a time'),
        (extract(year FROM message.run_at AT TIME ZONE 'UTC') NOT BETWEEN 1970 AND 9999, 'run_at',
         'is in the year ' || extract(year FROM message.run_at AT TIME ZONE 'UTC') || '; give one from 1970 to 9999')
    ) c (bad, field, problem)
    WHERE c.bad LIMIT 1;
    IF problem IS NOT NULL THEN
        PERFORM postlane.invalid('stage', field, problem);
    END IF;

    message.id := coalesce(message.id, postlane.new_id('msg_'));
    message.staged_at := now();
    INSERT INTO postlane.outbox_messages (seq, staged_at, run_at, max_attempts, id, queue, topic, tenant, idempotency_key,
                                          traceparent, enqueued_by, headers, payload)
    VALUES (nextval('postlane.outbox_seq'), message.staged_at, message.run_at, message.max_attempts, message.id, message.queue,
            message.topic, message.tenant, message.idempotency_key, message.traceparent, message.enqueued_by, message.headers, message.payload)
    ON CONFLICT DO NOTHING
    RETURNING seq INTO message.seq;
    IF message.seq IS NULL THEN
        RETURN (message.id, 0::bigint, true);
    END IF;
    IF message.run_at > message.staged_at THEN
        INSERT INTO postlane.outbox_scheduled (due_at, seq, size, queue, id)
        VALUES (message.run_at, message.seq, octet_length(message.payload), message.queue, message.id);
    ELSE
        INSERT INTO postlane.outbox_pending (seq, since, size, queue, id)
        VALUES (message.seq, message.staged_at, octet_length(message.payload), message.queue, message.id);
    END IF;
    PERFORM postlane.wake('message');
    RETURN (message.id, message.seq, false);
END
$$;

-- The same with a payload that is text, jsonb or json: its bytes are those of its text. One
-- that is given as a quoted literal is text.
CREATE FUNCTION postlane.enqueue(
    tenant text, type text, payload text, asset text DEFAULT NULL, id text DEFAULT NULL, content_type text DEFAULT NULL, traceparent text DEFAULT NULL
) RETURNS postlane.enqueued LANGUAGE sql
RETURN postlane.enqueue(tenant, type, convert_to(payload, 'UTF8'), asset, id, content_type, traceparent);
CREATE FUNCTION postlane.enqueue(
    tenant text, type text, payload jsonb, asset text DEFAULT NULL, id text DEFAULT NULL, content_type text DEFAULT NULL, traceparent text DEFAULT NULL
) RETURNS postlane.enqueued LANGUAGE sql
RETURN postlane.enqueue(tenant, type, payload::text, asset, id, content_type, traceparent);
CREATE FUNCTION postlane.enqueue(
    tenant text, type text, payload json, asset text DEFAULT NULL, id text DEFAULT NULL, content_type text DEFAULT NULL, traceparent text DEFAULT NULL
) RETURNS postlane.enqueued LANGUAGE sql
RETURN postlane.enqueue(tenant, type, payload::text, asset, id, content_type, traceparent);
CREATE FUNCTION postlane.stage(
    topic text, payload text, queue text DEFAULT NULL, id text DEFAULT NULL, headers jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL, run_at timestamptz DEFAULT NULL, tenant text DEFAULT NULL, traceparent text DEFAULT NULL,
    enqueued_by text DEFAULT NULL
) RETURNS postlane.staged LANGUAGE sql
RETURN postlane.stage(topic, convert_to(payload, 'UTF8'), queue, id, headers, idempotency_key, max_attempts, run_at, tenant, traceparent, enqueued_by);
CREATE FUNCTION postlane.stage(
    topic text, payload jsonb, queue text DEFAULT NULL, id text DEFAULT NULL, headers jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL, run_at timestamptz DEFAULT NULL, tenant text DEFAULT NULL, traceparent text DEFAULT NULL,
    enqueued_by text DEFAULT NULL
) RETURNS postlane.staged LANGUAGE sql
RETURN postlane.stage(topic, payload::text, queue, id, headers, idempotency_key, max_attempts, run_at, tenant, traceparent, enqueued_by);
CREATE FUNCTION postlane.stage(
    topic text, payload json, queue text DEFAULT NULL, id text DEFAULT NULL, headers jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL, run_at timestamptz DEFAULT NULL, tenant text DEFAULT NULL, traceparent text DEFAULT NULL,
    enqueued_by text DEFAULT NULL
) RETURNS postlane.staged LANGUAGE sql
RETURN postlane.stage(topic, payload::text, queue, id, headers, idempotency_key, max_attempts, run_at, tenant, traceparent, enqueued_by);

-- migrate:down
DROP FUNCTION
    postlane.stage(text, json, text, text, jsonb, text, integer, timestamptz, text, text, text),
    postlane.stage(text, jsonb, text, text, jsonb, text, integer, timestamptz, text, text, text),
    postlane.stage(text, text, text, text, jsonb, text, integer, timestamptz, text, text, text),
    postlane.stage(text, bytea, text, text, jsonb, text, integer, timestamptz, text, text, text),
    postlane.enqueue(text, text, json, text, text, text, text),
    postlane.enqueue(text, text, jsonb, text, text, text, text),
    postlane.enqueue(text, text, text, text, text, text, text),
    postlane.enqueue(text, text, bytea, text, text, text, text),
    postlane.invalid(text, text, text),
    postlane.new_id(text),
    postlane.wake(text);
DROP SEQUENCE postlane.wake_seq;
DROP TYPE postlane.staged, postlane.enqueued;
