-- Operational events: what becomes of deliveries and subscriptions is an event too, for
-- the tenant whose they are, written in the transaction in which it happens.
--
--   postlane.delivery.dead           a delivery died
--   postlane.stream.held             and holds its stream
--   postlane.subscription.disabled   the system disabled a subscription
--
-- They go to the subscriptions that name them, or a prefix of them; * does not. Nothing is
-- written where no subscription does. Of a dead delivery of an operational event there is
-- none, so that none can be the cause of another without end.
--
-- The asset is the id of the subscription that it happened to: each endpoint hears of
-- that in order.

-- migrate:up

-- Writes an operational event, and a delivery for each subscription that wants it; says
-- how many events that were.
CREATE FUNCTION postlane.tell(tenant text, subscription_id bigint, type text, details jsonb) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE
    patterns constant text[] := ARRAY[tell.type, 'postlane.*', 'postlane.' || split_part(tell.type, '.', 2) || '.*'];
    subscription constant text := 'sub_' || tell.subscription_id;
    document constant jsonb := jsonb_build_object(
        'type', tell.type, 'subscription_id', subscription,
        'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) || tell.details;
    wanted constant bigint[] := ARRAY(
        SELECT s.id FROM postlane.subscriptions s
        WHERE s.tenant = tell.tenant AND s.deleted_at IS NULL
          AND s.event_types && '{postlane.*,postlane.delivery.*,postlane.delivery.dead,postlane.stream.*,postlane.stream.held,postlane.subscription.*,postlane.subscription.disabled}'::text[]
          AND s.event_types && patterns
          AND (s.conditions IS NULL OR jsonb_path_match(document, postlane.conditions_path(s.conditions), '{}', true)));
    event record;
BEGIN
    IF wanted = '{}' THEN
        RETURN 0;
    END IF;
    INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload)
    VALUES (nextval('postlane.delivery_seq'), tell.tenant, postlane.new_id('evt_'), tell.type, subscription, 'application/json',
            convert_to(document::text, 'UTF8'))
    RETURNING seq, id INTO event;
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready)
    SELECT w.id, event.seq, tell.tenant, event.id, tell.type, subscription, event.seq FROM unnest(wanted) w (id);
    PERFORM postlane.wake('delivery');
    RETURN 1;
END
$$;

-- Tells of a delivery that has died, and of the stream that it holds.
CREATE FUNCTION postlane.tell_dead(
    tenant text, subscription_id bigint, seq bigint, event_id text, event_type text, asset text, attempts integer, reason text, held boolean
) RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    details constant jsonb := jsonb_build_object('delivery_id', 'dlv_' || seq, 'event_id', event_id, 'event_type', event_type, 'asset', asset,
        'attempts', attempts, 'reason', reason);
    told integer;
BEGIN
    IF starts_with(event_type, 'postlane.') THEN
        RETURN 0;
    END IF;
    told := postlane.tell(tenant, subscription_id, 'postlane.delivery.dead', details || jsonb_build_object('held', held));
    IF held THEN
        told := told + postlane.tell(tenant, subscription_id, 'postlane.stream.held', details);
    END IF;
    RETURN told;
END
$$;

-- * matches what applications enqueue.
CREATE OR REPLACE FUNCTION postlane.matches(pattern text, type text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pattern = type OR (pattern = '*' AND NOT starts_with(type, 'postlane.'))
    OR (right(pattern, 2) = '.*' AND starts_with(type, left(pattern, -1)));

-- migrate:down
CREATE OR REPLACE FUNCTION postlane.matches(pattern text, type text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pattern = type OR pattern = '*' OR (right(pattern, 2) = '.*' AND starts_with(type, left(pattern, -1)));
DROP FUNCTION
    postlane.tell_dead(text, bigint, bigint, text, text, text, integer, text, boolean),
    postlane.tell(text, bigint, text, jsonb);
