-- leased_renew(resources, attempts, ttl) extends leases to at least ttl from now, and returns those
-- that it extended, with the number of their locks. Both arrays have an element for each lock. It
-- never shortens a lease, because it may be a late copy. Without a ttl each lease is extended by
-- the ttl that it has. metadata replaces that of the leases.
--
--     SELECT * FROM leased_renew(ARRAY['account/7'], ARRAY['f0c9...'], '30 s');
CREATE OR REPLACE FUNCTION leased_renew(resources text[], attempts text[], ttl interval DEFAULT NULL, metadata jsonb DEFAULT NULL)
    RETURNS TABLE (attempt text, locks bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    span     interval := leased_span($3);
    held     record;
    alive    boolean;
    extended text[];
BEGIN
    IF span IS NULL AND $3 IS NOT NULL OR octet_length($4::text) > 32768 THEN
        RAISE EXCEPTION 'leased_renew needs a ttl from 100 ms to 1 day, and metadata of at most 32768 bytes' USING ERRCODE = 'LL002';
    END IF;
    FOR held IN SELECT h.resource, h.attempt FROM unnest($1, $2) AS h (resource, attempt) ORDER BY h.resource COLLATE "C" LOOP
        UPDATE leased_locks l SET ttl = coalesce(span, l.ttl), expires = greatest(l.expires, clock_timestamp() + coalesce(span, l.ttl)),
                metadata = coalesce($4, l.metadata)
            WHERE l.resource = held.resource AND l.attempt = held.attempt AND l.owner = session_user AND l.expires > clock_timestamp()
            RETURNING l.expires > clock_timestamp() INTO alive; -- it may have waited for the row
        IF alive THEN
            extended := extended || held.attempt;
        END IF;
    END LOOP;
    IF extended IS NOT NULL AND current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- a crash would end the lease before its holder expects it
    END IF;
    RETURN QUERY SELECT e, count(*) FROM unnest(extended) e GROUP BY 1;
END
$$;

-- leased_release(resources, attempt) ends an attempt: it releases its locks, or leaves the
-- queue, also for locks of a set that are not named. released is whether it held locks. The attempt will not be granted later, even if a
-- copy of its acquire arrives then. A caller that got an answer to every acquire of the attempt
-- may pass false for remember, which saves a row. If the lock goes to a waiter with the channel of the
-- caller, that waiter is returned instead of notified: it may use its token when the transaction is on disk.
CREATE OR REPLACE FUNCTION leased_release(resources text[], attempt text, remember boolean DEFAULT true, channel text DEFAULT NULL,
    OUT released boolean, OUT next_attempt text, OUT next_token bigint) LANGUAGE plpgsql AS $$
DECLARE
    queued boolean;
    names  text[] := '{}';
    more   text[];
BEGIN
    UPDATE leased_locks l SET expires = NULL, remembered = CASE WHEN $3 THEN clock_timestamp() ELSE l.remembered END WHERE cardinality($1) = 1 AND l.resource = $1[1] AND l.attempt = $2 AND l.owner = session_user
        AND l.resources IS NULL AND l.expires > clock_timestamp() RETURNING l.queued INTO queued;
    released := FOUND;
    IF NOT released THEN
        IF coalesce(cardinality($1), 0) NOT BETWEEN 1 AND 64 OR (octet_length($2) BETWEEN 16 AND 128) IS NOT TRUE THEN
            RAISE EXCEPTION 'leased_release needs 1 to 64 resources, and an attempt of 16 to 128 bytes' USING ERRCODE = 'LL002';
        END IF;
        LOOP -- an acquire that was not committed yet may have taken more locks
            more := ARRAY(SELECT unnest($1) UNION ALL SELECT w.resource FROM leased_waiters w WHERE w.attempt = $2 AND w.owner = session_user
                UNION ALL SELECT unnest(k.resources) FROM leased_locks k WHERE k.resource = ANY ($1) AND k.attempt = $2 AND k.owner = session_user);
            EXIT WHEN more <@ names;
            names := more;
            PERFORM leased_lock(names);
        END LOOP;
        released := leased_end(names, $2, session_user) > 0;
    ELSIF queued THEN
        SELECT * INTO next_attempt, next_token FROM leased_wake($1[1], $4);
    END IF;
    IF remember OR NOT released THEN
        INSERT INTO leased_ended AS e VALUES ($2, session_user, clock_timestamp()) ON CONFLICT ON CONSTRAINT leased_ended_pkey
            DO UPDATE SET at = excluded.at WHERE e.at < excluded.at - interval '1 minute';
        -- Other transactions may remove some. With an older snapshot that would raise 40001.
        DELETE FROM leased_ended e WHERE e.ctid = ANY (ARRAY(SELECT o.ctid FROM leased_ended o WHERE o.at < now() - interval '1 hour'
            AND current_setting('transaction_isolation') = 'read committed' LIMIT 100 FOR UPDATE SKIP LOCKED));
    END IF;
END
$$;

-- leased_hold(resource) holds a free lock until the transaction ends, and returns a token, or NULL if the lock is
-- held or others wait for it. It takes no lease: callers that want the lock wait for the transaction. Use the token in this
-- transaction only: one that is rolled back was granted nothing, and the next token may be smaller.
--
--     BEGIN;
--     SELECT leased_fence('account/7', leased_hold('account/7'));
CREATE OR REPLACE FUNCTION leased_hold(resource text) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    mine    bigint;
    attempt text;
BEGIN
    -- An expired lease ends for good: otherwise it would have this token if the clock were set back.
    UPDATE leased_locks l SET token = nextval('leased_tokens'), expires = NULL
        WHERE l.resource = $1 AND (l.expires > clock_timestamp()) IS NOT TRUE AND NOT queued AND EXISTS (SELECT FROM leased_known_origin)
        RETURNING l.token INTO mine;
    IF mine IS NULL THEN
        attempt := gen_random_uuid()::text;
        SELECT a.token INTO mine FROM leased_acquire(ARRAY[$1], NULL, '1 day', attempt) a;
        PERFORM leased_release(ARRAY[$1], attempt, false) WHERE mine IS NOT NULL;
    END IF;
    RETURN mine;
END
$$;

-- leased_break(resource, token) ends a lease of anybody, for operators. It returns whether the
-- lease existed. Its holder can still write until the next token has entered the gate.
CREATE OR REPLACE FUNCTION leased_break(resource text, token bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l leased_locks;
BEGIN
    SELECT * INTO l FROM leased_locks k WHERE k.resource = $1 AND k.token = $2 AND k.expires > clock_timestamp();
    IF l.attempt IS NULL OR leased_end(coalesce(l.resources, ARRAY[l.resource]), l.attempt, l.owner) = 0 THEN
        RETURN false;
    END IF;
    INSERT INTO leased_ended VALUES (l.attempt, l.owner, clock_timestamp()) ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

-- leased_raise(floor) makes all later tokens larger than floor, for operators: after a move
-- from another lock service, or when a copy of the database may have forgotten grants. It waits up to 2 seconds for
-- open transactions that use locks, and other calls wait meanwhile.
CREATE OR REPLACE FUNCTION leased_raise(floor bigint) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '2 s' AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- a crash would lower the tokens
    END IF;
    LOCK TABLE leased_locks IN EXCLUSIVE MODE; -- no grant between nextval and setval
    RETURN setval('leased_tokens', greatest(floor, nextval('leased_tokens')));
END
$$;

-- leased_close(resource) takes a free lock for good, for operators: another lock service grants
-- it from now on. It returns a token above all tokens of the lock, or NULL if it is held, and whether this call has closed it
-- rather than an earlier one. leased_break opens the lock again.
CREATE OR REPLACE FUNCTION leased_close(resource text, OUT token bigint, OUT closed boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    reason CONSTANT text := 'closed: another lock service grants this lock';
BEGIN
    SELECT l.token INTO token FROM leased_locks l WHERE l.resource = $1 AND l.expires > clock_timestamp() + interval '1 year';
    closed := false;
    IF token IS NULL THEN
        SELECT a.token INTO token FROM leased_acquire(ARRAY[$1], reason, '1 day', gen_random_uuid()::text) a;
        UPDATE leased_locks l SET expires = expires + interval '100 years' WHERE l.resource = $1 AND l.token = leased_close.token;
        closed := FOUND;
    END IF;
END
$$;

-- leased_inspect(resource) returns the holder of a lock and then its waiters, in order.
-- leased_list(prefix) returns the leases whose locks begin with prefix, in the order of their
-- names. Neither shows the attempts of others.
CREATE OR REPLACE FUNCTION leased_inspect(resource text)
    RETURNS TABLE (token bigint, attempt text, owner text, holder text, metadata jsonb, since timestamptz, remaining interval,
        ttl interval, resources text[])
    LANGUAGE sql AS $$
    SELECT l.token, CASE WHEN l.owner = session_user THEN l.attempt END, l.owner, l.holder, l.metadata, l.granted,
        l.expires - clock_timestamp(), l.ttl, coalesce(l.resources, ARRAY[l.resource])
        FROM leased_locks l WHERE l.resource = $1 AND l.expires > clock_timestamp()
    UNION ALL (SELECT 0, CASE WHEN w.owner = session_user THEN w.attempt END, w.owner, w.holder, w.metadata, w.queued, NULL, w.ttl, w.resources
        FROM leased_waiters w WHERE w.resource = $1 AND w.expires > clock_timestamp() ORDER BY w.ticket)
$$;

CREATE OR REPLACE FUNCTION leased_list(prefix text DEFAULT '', after text DEFAULT '', page integer DEFAULT 1000)
    RETURNS TABLE (resource text, token bigint, owner text, holder text, metadata jsonb, since timestamptz, remaining interval, waiters bigint)
    LANGUAGE sql AS $$
    SELECT l.resource, l.token, l.owner, l.holder, l.metadata, l.granted,
        l.expires - clock_timestamp(),
        (SELECT count(*) FROM leased_waiters w WHERE w.resource = l.resource AND w.expires > clock_timestamp())
    FROM leased_locks l
    WHERE starts_with(l.resource, prefix) AND l.resource > after AND l.resource >= prefix AND l.expires > clock_timestamp()
    ORDER BY l.resource LIMIT page
$$;

-- The functions that callers use run with the rights of their owner, and see no objects of the
-- caller's search path and no temporary tables. They find rows by their names: a transaction at SERIALIZABLE that reads a whole
-- table, which is the plan for a small one, would depend on all locks. leased_break, leased_raise and
-- leased_close are for operators: grant EXECUTE to whom it concerns.
DO $$
DECLARE
    f      record;
    inside CONSTANT text[] := '{leased_place, leased_raised_for, leased_next_token, leased_span, leased_lock_row, leased_lock, leased_queue, leased_wake, leased_end}';
BEGIN
    FOR f IN SELECT p.oid::regprocedure AS call, p.proname::text AS name FROM pg_proc p WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
        AND p.proname = ANY (inside || ARRAY['leased_acquire', 'leased_renew', 'leased_release', 'leased_hold', 'leased_inspect', 'leased_list',
            'leased_break', 'leased_raise', 'leased_close']) LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f.call);
        IF f.name <> ALL (inside) THEN
            EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp SET enable_seqscan = off', f.call, current_schema());
        END IF;
    END LOOP;
    -- ALTER DEFAULT PRIVILEGES may have given others rights on what is new. Rights that were granted later are kept.
    FOR f IN SELECT o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
        FROM (SELECT 'TABLE' AS kind, c.oid::regclass::text AS name, c.relowner AS owner, c.relacl AS acl, c.relnamespace AS place, c.relname AS bare FROM pg_class c
            UNION ALL SELECT 'FUNCTION', p.oid::regprocedure::text, p.proowner, p.proacl, p.pronamespace, p.proname FROM pg_proc p) o, aclexplode(o.acl) a
        WHERE o.place = quote_ident(current_schema())::regnamespace AND o.bare LIKE 'leased\_%' AND a.grantee <> o.owner
            AND o.name <> ALL (current_setting('leased.old')::text[]) LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s', f.kind, f.name, f.grantee);
    END LOOP;
END
$$;
