-- leased_acquire(resources, holder, ttl, attempt) takes all the locks under one token, or
-- none of them:
--
--     SELECT * FROM leased_acquire(ARRAY['account/7'], 'worker 3', '30 s', gen_random_uuid()::text);
--
-- Its result has a token if the locks are granted. Otherwise held_by is a holder, and
-- remaining the time until that lease ends. The attempt is a random name that the caller
-- chooses: repeated, it has the same outcome, so a caller that got no answer asks again. An
-- attempt that has ended raises LL001.
--
-- With wait, an attempt that is not granted is queued, first come, first served. The caller
-- must ask again before that time is over, or it loses its place. If it gives a channel,
-- it is notified there (NOTIFY, with the attempt as payload) when it should ask again.
--
-- The rows of the locks are the mutex of everything below: each function locks them in
-- ascending order, and then reads the clock. An UPDATE of one row does both, since it looks at
-- the newest version of its row again after a wait; other tables it sees as they were
-- before the wait, so they are read by a later statement. A function finds them one by one: for a list of names
-- the planner may read the whole table, since it knows neither the list nor, in a new
-- database, the table.
CREATE OR REPLACE FUNCTION leased_acquire(resources text[], holder text, ttl interval, attempt text,
    metadata jsonb DEFAULT NULL, wait interval DEFAULT NULL, channel text DEFAULT NULL,
    OUT token bigint, OUT remaining interval, OUT held_by text, OUT place bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    names text[] := $1;
BEGIN
    IF cardinality(names) > 1 THEN
        names := ARRAY(SELECT DISTINCT r COLLATE "C" FROM unnest($1) r ORDER BY 1);
    ELSE -- one lock that is free and has no waiters
        UPDATE leased_locks SET token = nextval('leased_tokens'), attempt = $4, owner = session_user, holder = $2, metadata = $5,
            resources = NULL, ttl = $3, granted = clock_timestamp(), expires = clock_timestamp() + $3
        WHERE resource = names[1] AND (expires > clock_timestamp()) IS NOT TRUE AND attempt IS DISTINCT FROM $4 AND ended IS DISTINCT FROM $4
            AND octet_length($4) BETWEEN 16 AND 128 AND $3 BETWEEN '100 ms' AND '1 day'
            AND NOT EXISTS (SELECT FROM leased_waiters w WHERE w.resource = names[1])
            AND EXISTS (SELECT FROM leased_known_origin)
        RETURNING leased_locks.token INTO token;
        IF token IS NOT NULL THEN
            IF EXISTS (SELECT FROM leased_ended e WHERE e.attempt = $4 AND e.owner = session_user) THEN -- seen only now that the row is locked
                RAISE EXCEPTION 'attempt % has ended', quote_literal($4) USING ERRCODE = 'LL001', HINT = 'Use a new attempt.';
            END IF;
            remaining := $3;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO token, remaining, held_by, place FROM leased_queue(names, $2, $3, $4, $5, $6, $7);
END
$$;

-- leased_queue is leased_acquire for locks that may be held. Their names are in order.
CREATE OR REPLACE FUNCTION leased_queue(names text[], holder text, ttl interval, attempt text, metadata jsonb, wait interval, channel text,
    OUT token bigint, OUT remaining interval, OUT held_by text, OUT place bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    name  text;
    l     leased_locks;
    now   timestamptz;
    ahead bigint;
    mine  bigint;
    free  boolean := true;
BEGIN
    IF coalesce(cardinality(names), 0) = 0 OR array_position(names, NULL) IS NOT NULL OR $4 IS NULL OR octet_length($4) NOT BETWEEN 16 AND 128
        OR (ttl BETWEEN '100 ms' AND '1 day') IS NOT TRUE THEN
        RAISE EXCEPTION 'leased_acquire needs at least one resource, a ttl from 100 ms to 1 day, and an attempt of 16 to 128 bytes'
            USING ERRCODE = 'LL002', HINT = 'gen_random_uuid()::text is an attempt.';
    END IF;
    SELECT w.ticket INTO mine FROM leased_waiters w WHERE w.attempt = $4 LIMIT 1;
    FOREACH name IN ARRAY names LOOP
        SELECT * INTO l FROM leased_locks WHERE resource = name FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            INSERT INTO leased_locks (resource) VALUES (name) ON CONFLICT DO NOTHING;
            SELECT * INTO l FROM leased_locks WHERE resource = name FOR NO KEY UPDATE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'the lock % is newer than this transaction', quote_literal(name) USING ERRCODE = '40001';
            END IF;
        END IF;
        now := clock_timestamp();
        IF l.attempt = $4 AND l.expires > now AND l.owner = session_user AND coalesce(l.resources, ARRAY[l.resource]) = names THEN
            token := l.token;
            remaining := l.expires - now;
            RETURN;
        ELSIF l.attempt = $4 OR l.ended = $4 THEN
            RAISE EXCEPTION 'attempt % has ended', quote_literal($4) USING ERRCODE = 'LL001', HINT = 'Use a new attempt.';
        ELSIF l.expires > now THEN
            free := false;
            IF held_by IS NULL THEN
                held_by := coalesce(l.holder, l.owner::text);
                remaining := l.expires - now;
            END IF;
        END IF;
        SELECT count(*) INTO ahead FROM leased_waiters w
            WHERE w.resource = name AND w.expires > now AND w.attempt <> $4 AND (mine IS NULL OR w.ticket < mine);
        free := free AND ahead = 0;
        place := greatest(place, ahead + 1);
    END LOOP;
    IF EXISTS (SELECT FROM leased_ended e WHERE e.attempt = $4 AND e.owner = session_user) THEN
        RAISE EXCEPTION 'attempt % has ended', quote_literal($4) USING ERRCODE = 'LL001', HINT = 'Use a new attempt.';
    END IF;
    IF free THEN
        token := leased_next_token();
        remaining := ttl;
        place := NULL;
        FOREACH name IN ARRAY names LOOP
            UPDATE leased_locks SET token = leased_queue.token, attempt = $4, owner = session_user, holder = $2, metadata = $5,
                resources = CASE WHEN cardinality(names) > 1 THEN names END, ttl = $3, granted = now, expires = now + $3 WHERE resource = name;
        END LOOP;
    ELSIF wait IS NOT NULL AND mine IS NULL THEN
        mine := nextval('leased_tickets');
        INSERT INTO leased_waiters SELECT r, mine, $4, session_user, $2, $5, names, ttl, $7, now, now + wait FROM unnest(names) r;
    ELSIF wait IS NOT NULL THEN
        UPDATE leased_waiters SET expires = now + wait, channel = $7 WHERE attempt = $4;
    ELSE
        place := NULL;
    END IF;
    IF mine IS NOT NULL AND (free OR wait IS NULL) THEN
        DELETE FROM leased_waiters WHERE attempt = $4;
    END IF;
END
$$;

-- leased_acquires is leased_acquire for several attempts, each for one lock, in one transaction: each
-- array has an element for each attempt. The locks should be in the order of their names. An attempt that
-- cannot be served, or another transaction that keeps a lock for long, fails all of them: then call
-- leased_acquire for each.
CREATE OR REPLACE FUNCTION leased_acquires(resources text[], holders text[], ttls interval[], attempts text[], metadata jsonb[], waits interval[],
    channel text) RETURNS TABLE (attempt text, token bigint, remaining interval, held_by text, place bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    r       record;
    granted text[] := '{}';
BEGIN
    FOR r IN UPDATE leased_locks l SET token = nextval('leased_tokens'), attempt = a.attempt, owner = session_user, holder = a.holder,
            metadata = a.metadata, resources = NULL, ttl = a.ttl, granted = clock_timestamp(), expires = clock_timestamp() + a.ttl
        FROM unnest($1, $2, $3, $4, $5) a (resource, holder, ttl, attempt, metadata)
        WHERE l.resource = a.resource AND (l.expires > clock_timestamp()) IS NOT TRUE AND l.attempt IS DISTINCT FROM a.attempt
            AND l.ended IS DISTINCT FROM a.attempt AND octet_length(a.attempt) BETWEEN 16 AND 128 AND a.ttl BETWEEN '100 ms' AND '1 day'
            AND NOT EXISTS (SELECT FROM leased_waiters w WHERE w.resource = a.resource)
            AND EXISTS (SELECT FROM leased_known_origin)
        RETURNING a.attempt, l.token, a.ttl LOOP
        granted := granted || r.attempt;
        attempt := r.attempt;
        token := r.token;
        remaining := r.ttl;
        RETURN NEXT;
    END LOOP;
    IF EXISTS (SELECT FROM leased_ended e WHERE e.attempt = ANY (granted) AND e.owner = session_user) THEN -- seen only now that the rows are locked
        RAISE EXCEPTION 'an attempt has ended' USING ERRCODE = 'LL001', HINT = 'Use a new attempt.';
    END IF;
    IF cardinality(granted) < cardinality($1) THEN
        FOR r IN SELECT * FROM unnest($1, $2, $3, $4, $5, $6) a (resource, holder, ttl, attempt, metadata, wait)
            WHERE (a.attempt = ANY (granted)) IS NOT TRUE LOOP
            RETURN QUERY SELECT r.attempt, q.* FROM leased_queue(ARRAY[r.resource], r.holder, r.ttl, r.attempt, r.metadata, r.wait, $7) q;
        END LOOP;
    END IF;
END
$$;

-- leased_wake gives a lock that was just freed to its next waiter. The caller has locked its
-- row. A waiter for several locks is only notified, and asks again: its other locks may not
-- be free. A waiter that has the channel of the caller is returned instead.
CREATE OR REPLACE FUNCTION leased_wake(name text, here text DEFAULT NULL, OUT attempt text, OUT token bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    w   leased_waiters;
    now timestamptz := clock_timestamp();
BEGIN
    SELECT * INTO w FROM leased_waiters WHERE resource = name AND expires > now ORDER BY ticket LIMIT 1;
    IF NOT FOUND THEN
        DELETE FROM leased_waiters WHERE resource = name;
        RETURN;
    END IF;
    IF cardinality(w.resources) = 1 THEN
        UPDATE leased_locks SET token = leased_next_token(), attempt = w.attempt, owner = w.owner, holder = w.holder, metadata = w.metadata,
            resources = NULL, ttl = w.ttl, granted = now, expires = now + w.ttl WHERE resource = name RETURNING leased_locks.token INTO token;
        DELETE FROM leased_waiters WHERE resource = name AND ticket <= w.ticket;
    END IF;
    IF token IS NOT NULL AND w.channel = here AND w.owner = session_user THEN
        attempt := w.attempt;
    ELSIF w.channel IS NOT NULL THEN
        PERFORM pg_notify(w.channel, w.attempt);
    END IF;
END
$$;

-- leased_end ends an attempt of a role, or of any role for NULL, that holds these locks or
-- waits for them, and wakes the next waiters. It returns the number of locks that it freed.
CREATE OR REPLACE FUNCTION leased_end(names text[], ending text, role text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    name  text;
    l     leased_locks;
    freed bigint := 0;
BEGIN
    FOR name IN SELECT DISTINCT r COLLATE "C" FROM unnest(names) r ORDER BY 1 LOOP
        SELECT * INTO l FROM leased_locks WHERE resource = name FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM leased_waiters WHERE resource = l.resource AND attempt = ending AND (role IS NULL OR owner = role);
        IF l.attempt = ending AND (role IS NULL OR l.owner = role) THEN
            UPDATE leased_locks SET attempt = NULL, ended = ending, owner = NULL, holder = NULL, metadata = NULL, resources = NULL,
                ttl = NULL, granted = NULL, expires = NULL WHERE resource = l.resource;
            freed := freed + 1;
            PERFORM leased_wake(l.resource);
        ELSIF l.attempt IS NULL OR l.expires <= clock_timestamp() THEN
            PERFORM leased_wake(l.resource);
        END IF;
    END LOOP;
    RETURN freed;
END
$$;
