-- leased_acquire(resources, holder, ttl, attempt) takes all the locks under one token, or
-- none of them:
--
--     SELECT * FROM leased_acquire(ARRAY['account/7'], 'worker 3', '30 s', gen_random_uuid()::text);
--
-- Its result has a token if the locks are granted. Otherwise held_by is a holder, and
-- remaining the time until that lease ends. The attempt is a random name that the caller
-- chooses for these locks. A caller that got no answer repeats it, and gets the token that it was granted. An
-- attempt that has ended raises LL001.
--
-- With wait, an attempt that is not granted is queued, first come, first served. The caller
-- must ask again before that time is over, or it loses its place. If it gives a channel,
-- it is notified there (NOTIFY, with the attempt as payload) when it should ask again. Nobody is notified when a lease
-- expires, so it also asks again after the remaining time, or at intervals.
--
-- The rows of the locks are the mutex of everything below. A function locks them in ascending order,
-- and reads the clock and the other tables in later statements, which see what was committed before it had the locks.
-- For one free lock an UPDATE does it all, which takes half the time. If it waits for a transaction that changes the row, it
-- compares the new row, but still sees other tables as before. So the row itself says whether others wait, and whether it is worth
-- a later statement to look at the ended attempts. If the row stays as it was, the UPDATE keeps the time from before the wait.
CREATE OR REPLACE FUNCTION leased_acquire(resources text[], holder text, ttl interval, attempt text,
    metadata jsonb DEFAULT NULL, wait interval DEFAULT NULL, channel text DEFAULT NULL,
    OUT token bigint, OUT remaining interval, OUT held_by text, OUT place bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    names text[] := $1;
    span  interval := leased_span($3);
    known timestamptz;
BEGIN
    IF cardinality(names) > 1 THEN
        names := ARRAY(SELECT DISTINCT r COLLATE "C" FROM unnest($1) r ORDER BY 1);
    ELSE
        UPDATE leased_locks SET token = nextval('leased_tokens'), attempt = $4, owner = session_user, holder = $2, metadata = $5,
            resources = NULL, ttl = span, granted = clock_timestamp(), expires = clock_timestamp() + span
        WHERE resource = names[1] AND (expires > clock_timestamp()) IS NOT TRUE AND NOT queued AND attempt IS DISTINCT FROM $4
            AND octet_length($4) BETWEEN 16 AND 128 AND span IS NOT NULL AND (octet_length($2) > 256 OR octet_length($5::text) > 32768) IS NOT TRUE
            AND EXISTS (SELECT FROM leased_known_origin)
        RETURNING leased_locks.token, expires - clock_timestamp(), remembered INTO token, remaining, known;
        IF remaining > '0' AND known IS NULL THEN
            RETURN;
        ELSIF token IS NOT NULL THEN
            IF remaining > '0' AND NOT EXISTS (SELECT FROM leased_ended e WHERE e.attempt = $4 AND e.owner = session_user) THEN
                RETURN;
            END IF;
            UPDATE leased_locks SET attempt = NULL, expires = NULL WHERE resource = names[1];
        END IF;
    END IF;
    SELECT * INTO token, remaining, held_by, place FROM leased_queue(names, $2, span, $4, $5, $6, $7);
END
$$;

-- leased_span returns an interval in seconds, or NULL if it is not 100 ms to 1 day.
-- Months and days have no fixed length, and could hide a longer time.
CREATE OR REPLACE FUNCTION leased_span(span interval) RETURNS interval LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN extract(epoch FROM span) BETWEEN 0.1 AND 86400 THEN make_interval(secs => extract(epoch FROM span)) END
$$;

-- leased_lock_row locks the row of one lock, which may not exist yet, and returns it.
CREATE OR REPLACE FUNCTION leased_lock_row(name text) RETURNS SETOF leased_locks LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM leased_locks WHERE resource = name FOR NO KEY UPDATE;
    IF FOUND THEN
        RETURN;
    ELSIF (octet_length(name) BETWEEN 1 AND 512 AND strpos(name, E'\n') = 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'the name of a lock has 1 to 512 bytes and no line break' USING ERRCODE = 'LL002';
    END IF;
    INSERT INTO leased_locks (resource) VALUES (name) ON CONFLICT DO NOTHING; -- another transaction may be inserting it
    RETURN QUERY SELECT * FROM leased_locks WHERE resource = name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lock % is newer than this transaction', quote_literal(name) USING ERRCODE = '40001';
    END IF;
END
$$;

-- leased_lock locks the rows of locks in the order of their names, and then returns them. If lock_timeout bounds the wait
-- for one of several, the detail of the error is its name. A handler costs a subtransaction, so only sets have one, and
-- only for rows that they cannot lock at once.
CREATE OR REPLACE FUNCTION leased_lock(names text[]) RETURNS SETOF leased_locks LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    IF cardinality(names) = 1 THEN
        RETURN QUERY SELECT * FROM leased_locks WHERE resource = names[1] FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN QUERY SELECT * FROM leased_lock_row(names[1]);
        END IF;
        RETURN;
    END IF;
    FOR name IN SELECT DISTINCT r COLLATE "C" FROM unnest(names) r ORDER BY 1 LOOP
        RETURN QUERY SELECT * FROM leased_locks WHERE resource = name FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN FOUND;
        BEGIN
            RETURN QUERY SELECT * FROM leased_lock_row(name);
        EXCEPTION WHEN lock_not_available THEN
            RAISE EXCEPTION 'another transaction keeps the lock %', quote_literal(name) USING ERRCODE = '55P03', DETAIL = name;
        END;
    END LOOP;
END
$$;

-- leased_queue is leased_acquire for locks that may be held. Their names are in order, and its ttl is NULL if it is not valid.
CREATE OR REPLACE FUNCTION leased_queue(names text[], holder text, ttl interval, attempt text, metadata jsonb, wait interval, channel text,
    OUT token bigint, OUT remaining interval, OUT held_by text, OUT place bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    name  text;
    l     leased_locks;
    now   timestamptz;
    held  bigint := 0; -- by this attempt
    ended boolean := false;
    waits boolean; -- perhaps no longer, or for other locks
    first boolean := false; -- nobody waits for one of the locks
    ahead bigint;
    mine  bigint;
    until interval := leased_span(wait);
BEGIN
    IF coalesce(cardinality(names), 0) NOT BETWEEN 1 AND 64 OR array_position(names, NULL) IS NOT NULL OR (octet_length($4) BETWEEN 16 AND 128) IS NOT TRUE
        OR ttl IS NULL OR until IS NULL AND wait IS NOT NULL OR octet_length(channel) NOT BETWEEN 1 AND 63
        OR octet_length($2) > 256 OR octet_length($5::text) > 32768 THEN
        RAISE EXCEPTION 'leased_acquire needs 1 to 64 resources, a ttl and a wait from 100 ms to 1 day, an attempt of 16 to 128 bytes, a channel of 1 to 63, a holder of at most 256 and metadata of at most 32768'
            USING ERRCODE = 'LL002', HINT = 'gen_random_uuid()::text is an attempt. wait, channel and metadata may be NULL.';
    END IF;
    IF wait IS NULL THEN -- a refusal locks no rows: in an open transaction that would keep their holders from renewals
        SELECT (array_agg(coalesce(k.holder, k.owner) ORDER BY k.expires))[1], min(k.expires) - clock_timestamp() INTO held_by, remaining
            FROM leased_locks k WHERE k.resource = ANY (names) AND k.expires > clock_timestamp() AND NOT EXISTS (SELECT FROM leased_waiters w WHERE w.attempt = $4 AND w.owner = session_user)
                AND NOT EXISTS (SELECT FROM leased_ended e WHERE e.attempt = $4 AND e.owner = session_user)
            HAVING bool_and(k.attempt <> $4);
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    FOR l IN SELECT * FROM leased_lock(names) LOOP
        now := coalesce(now, clock_timestamp()); -- when all rows are locked
        first := first OR NOT l.queued;
        IF l.attempt = $4 AND l.expires > now AND l.owner = session_user AND coalesce(l.resources, ARRAY[l.resource]) = names THEN
            held := held + 1;
            token := l.token;
            remaining := least(remaining, l.expires - now);
        ELSIF l.attempt = $4 THEN
            ended := true;
        ELSIF l.expires > now AND held_by IS NULL THEN
            held_by := coalesce(l.holder, l.owner);
            remaining := l.expires - now;
        END IF;
    END LOOP;
    IF held = cardinality(names) THEN
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'on', true); -- another transaction may have granted it without the disk
        END IF;
        RETURN;
    END IF;
    SELECT ended OR EXISTS (SELECT FROM leased_ended e WHERE e.attempt = $4 AND e.owner = session_user), count(*) > 0,
            CASE WHEN count(w.ticket) FILTER (WHERE w.expires > now AND w.resources = names) = cardinality(names) THEN min(w.ticket) END
        INTO ended, waits, mine FROM leased_waiters w WHERE w.attempt = $4 AND w.owner = session_user;
    IF ended OR held > 0 THEN
        RAISE EXCEPTION 'attempt % has ended', quote_literal($4) USING ERRCODE = 'LL001', HINT = 'Use a new attempt.';
    END IF;
    SELECT coalesce(max(n), 0) INTO ahead FROM (SELECT count(*) AS n FROM leased_waiters w WHERE w.resource = ANY (names) AND w.expires > now
        AND (w.attempt <> $4 OR w.owner <> session_user) AND (mine IS NULL OR w.ticket < mine) GROUP BY w.resource) a;
    IF held_by IS NULL AND ahead = 0 THEN
        token := leased_next_token();
        now := clock_timestamp(); -- another transaction may have raised the tokens first, and taken long
        remaining := ttl;
        FOREACH name IN ARRAY names LOOP
            UPDATE leased_locks SET token = leased_queue.token, attempt = $4, owner = session_user, holder = $2, metadata = $5,
                resources = CASE WHEN cardinality(names) > 1 THEN names END, ttl = $3, granted = now, expires = now + $3 WHERE resource = name;
        END LOOP;
    ELSIF wait IS NOT NULL THEN
        place := ahead + 1;
        IF mine IS NOT NULL THEN
            UPDATE leased_waiters SET expires = now + until, channel = $7 WHERE attempt = $4 AND owner = session_user AND ticket = mine;
            RETURN;
        END IF;
    END IF;
    IF waits THEN
        DELETE FROM leased_waiters WHERE attempt = $4 AND owner = session_user; -- also a part of a place, or one that has expired
    END IF;
    IF place IS NOT NULL THEN
        mine := nextval('leased_tickets');
        INSERT INTO leased_waiters SELECT r, mine, $4, session_user, $2, $5, names, $3, $7, now, now + until FROM unnest(names) r
            ON CONFLICT DO NOTHING; -- a place that is newer than this transaction raises 40001
        FOREACH name IN ARRAY CASE WHEN first THEN names ELSE '{}' END LOOP
            UPDATE leased_locks SET queued = true WHERE resource = name;
        END LOOP;
    END IF;
END
$$;

-- leased_wake gives a lock that was just freed to its next waiter. The caller has locked its
-- row. A waiter for several locks is only notified, and asks again: its other locks may not
-- be free. A waiter that has the channel of the caller is returned instead. A transaction with an older snapshot may have ended
-- an attempt, or granted it the lock, without seeing its place.
CREATE OR REPLACE FUNCTION leased_wake(name text, here text DEFAULT NULL, OUT attempt text, OUT token bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    w   leased_waiters;
    now timestamptz := clock_timestamp();
BEGIN
    LOOP
        SELECT * INTO w FROM leased_waiters WHERE resource = name AND expires > now ORDER BY ticket LIMIT 1;
        EXIT WHEN w.ticket IS NULL OR NOT EXISTS (SELECT FROM leased_ended e WHERE e.attempt = w.attempt AND e.owner = w.owner)
            AND NOT EXISTS (SELECT FROM leased_locks l WHERE l.resource = name AND l.attempt = w.attempt AND l.owner = w.owner);
        DELETE FROM leased_waiters WHERE resource = name AND ticket = w.ticket;
    END LOOP;
    IF w.ticket IS NULL THEN
        DELETE FROM leased_waiters WHERE resource = name;
        -- Another snapshot may not see a new waiter behind those that it removes.
        UPDATE leased_locks SET queued = false WHERE resource = name AND current_setting('transaction_isolation') = 'read committed';
        RETURN;
    END IF;
    IF cardinality(w.resources) = 1 THEN
        token := leased_next_token();
        now := clock_timestamp(); -- as in leased_queue
        UPDATE leased_locks SET token = leased_wake.token, attempt = w.attempt, owner = w.owner, holder = w.holder, metadata = w.metadata,
            resources = NULL, ttl = w.ttl, granted = now, expires = now + w.ttl WHERE resource = name;
        DELETE FROM leased_waiters WHERE resource = name AND ticket <= w.ticket;
    END IF;
    IF token IS NOT NULL AND w.channel = here AND w.owner = session_user THEN
        attempt := w.attempt;
    ELSE
        token := NULL;
        PERFORM pg_notify(w.channel, w.attempt) WHERE w.channel IS NOT NULL;
    END IF;
END
$$;

-- leased_end ends an attempt of a role that holds these locks or waits for them, and wakes the next waiters.
-- It returns the number of leases that it ended early. It writes every row, so that an acquire of the attempt with an
-- older snapshot fails.
CREATE OR REPLACE FUNCTION leased_end(names text[], ending text, role text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    l     leased_locks;
    ends  boolean;
    freed bigint := 0;
BEGIN
    FOR l IN SELECT * FROM leased_lock(names) LOOP
        ends := (l.attempt = ending AND l.owner = role AND l.expires IS NOT NULL) IS TRUE;
        freed := freed + (ends AND l.expires > clock_timestamp())::int;
        DELETE FROM leased_waiters WHERE resource = l.resource AND attempt = ending AND owner = role;
        UPDATE leased_locks SET expires = CASE WHEN NOT ends THEN expires END, remembered = clock_timestamp() WHERE resource = l.resource;
        IF l.queued AND (ends OR (l.expires > clock_timestamp()) IS NOT TRUE) THEN
            PERFORM leased_wake(l.resource);
        END IF;
    END LOOP;
    RETURN freed;
END
$$;
