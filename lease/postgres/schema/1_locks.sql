-- Locks with fencing tokens in PostgreSQL 13 or later. Running these files again changes
-- nothing. Only the functions write to these tables: grant EXECUTE on the functions, and
-- no rights on the tables.

-- The functions run with the rights of their owner, and find functions and operators in this
-- schema. A user who may create some there could take over the rights of the owner. In
-- the schema public, every user may before PostgreSQL 15.
DO $$
BEGIN
    IF has_schema_privilege('public', current_schema()::text, 'CREATE') THEN
        RAISE EXCEPTION 'cannot install locks in schema %: every user may create functions there, which would run with the rights of the owner; run REVOKE CREATE ON SCHEMA % FROM PUBLIC', quote_ident(current_schema()), quote_ident(current_schema())
            USING ERRCODE = '55000', HINT = 'Do not grant CREATE on this schema to users who take locks either.';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('leased_locks')); -- one installation at a time
    -- What exists already: the last block revokes rights on the rest.
    PERFORM set_config('leased.old', ARRAY(SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
        UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = quote_ident(current_schema())::regnamespace)::text, true);
END
$$;

-- A row for each lock that was ever used. A free lock has no expiry, and still the attempt that
-- had it last. Tokens come from one sequence, so rows of free locks may be deleted:
--     DELETE FROM leased_locks WHERE (expires > now()) IS NOT TRUE AND NOT queued AND (remembered > now() - interval '1 hour') IS NOT TRUE;
-- leased_hold ends a queue whose waiters have disappeared, which would keep the row.
-- leased_lock_row checks the names: PostgreSQL prepares a constraint again for every UPDATE, which takes a sixth of a grant.
CREATE TABLE IF NOT EXISTS leased_locks (
    resource  text COLLATE "C" PRIMARY KEY,
    token     bigint NOT NULL DEFAULT 0, -- of the newest grant
    attempt   text,                      -- that holds the lock, or held it last
    owner     text,                      -- the role that acquired it
    holder    text,
    metadata  jsonb,
    resources text[],                    -- all locks under this token, in order; NULL for this one alone
    ttl       interval,
    granted   timestamptz,
    expires   timestamptz,
    queued    boolean NOT NULL DEFAULT false, -- others wait for it, or did
    remembered timestamptz                    -- when an attempt for it was added to leased_ended last
) WITH (fillfactor = 50); -- updates stay in their page

-- The queue: a row for each lock that a waiting attempt wants. A waiter that has not
-- asked again before it expires loses its place. The first one also writes the row of the lock, so that a release with
-- an older snapshot, which does not see it, fails. An attempt with an older snapshot that does not see its own place gets no second one.
CREATE TABLE IF NOT EXISTS leased_waiters (
    resource  text COLLATE "C",
    ticket    bigint,
    attempt   text NOT NULL,
    owner     text NOT NULL,
    holder    text,
    metadata  jsonb,
    resources text[] NOT NULL,
    ttl       interval NOT NULL,
    channel   text, -- to notify
    queued    timestamptz NOT NULL,
    expires   timestamptz NOT NULL,
    PRIMARY KEY (resource, ticket)
);
CREATE SEQUENCE IF NOT EXISTS leased_tickets;

-- Attempts that have ended, and of which another acquire may still arrive. Releases at READ COMMITTED remove
-- those of more than an hour ago.
CREATE TABLE IF NOT EXISTS leased_ended (
    attempt text,
    owner   text, -- the role that ended it
    at      timestamptz NOT NULL,
    PRIMARY KEY (attempt, owner)
);

-- The tokens, and the origin of their sequence: the server, and the place of this table, which is the timeline of the
-- server, the folder of the database and the table. A server that was promoted, recovered to an earlier time,
-- copied or loaded from a dump has another origin and may have forgotten grants.
--
-- It takes long to read the identifier of the server. Until the server is started again, the
-- place tells as well that the origin is the same.
CREATE SEQUENCE IF NOT EXISTS leased_tokens AS bigint MAXVALUE 9007199254740991 NO CYCLE CACHE 1;
CREATE TABLE IF NOT EXISTS leased_origin (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    server   text NOT NULL,
    place    text NOT NULL,
    started  timestamptz,
    since    timestamptz NOT NULL DEFAULT clock_timestamp() -- the installation, or the first grant of a copy
);
-- A row for each origin, which is the mutex of those that raise the tokens for it. A transaction that was prepared at another
-- origin can keep the row above, but not this one.
CREATE TABLE IF NOT EXISTS leased_raising (hash bigint PRIMARY KEY);
CREATE OR REPLACE FUNCTION leased_place() RETURNS text LANGUAGE sql AS $$
    SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || rtrim(pg_relation_filepath('leased_origin'), '0123456789')
        || 'leased_origin'::regclass::oid
$$;
CREATE OR REPLACE FUNCTION leased_raised_for(server text, place text) RETURNS bigint LANGUAGE sql AS $$
    SELECT (('x' || left(place, 8))::bit(32)::bigint << 32) | (hashtextextended(server || substr(place, 9), 0) & 4294967295)
$$;

-- leased_raised has the origin for which the tokens were raised: its timeline, and a hash of the rest. Other transactions see a
-- sequence before the row is committed. A transaction that was prepared with the row may keep it out of date for several origins.
-- A schema that has the sequence already may be a dump without data. Its first grant raises the tokens.
DO $$
BEGIN
    IF to_regclass(quote_ident(current_schema()) || '.leased_raised') IS NULL THEN
        CREATE SEQUENCE leased_raised MINVALUE -9223372036854775808;
        INSERT INTO leased_origin (server, place) SELECT system_identifier, leased_place() FROM pg_control_system();
        PERFORM setval('leased_raised', leased_raised_for(server, place)) FROM leased_origin;
    END IF;
END
$$;

-- Indexes and the view are created only if they are missing: these statements wait for every open
-- transaction that has used the tables or the view, and block all others meanwhile.
--
-- leased_known_origin is for the shorter ways to a token, which are for transactions that wait for the disk, too.
DO $$
BEGIN
    IF to_regclass(quote_ident(current_schema()) || '.leased_known_origin') IS NULL THEN
        CREATE UNIQUE INDEX IF NOT EXISTS leased_waiters_attempt ON leased_waiters (attempt, owner, resource);
        CREATE INDEX IF NOT EXISTS leased_ended_at ON leased_ended (at);
        CREATE VIEW leased_known_origin AS
            SELECT FROM leased_origin WHERE only_row AND started = pg_postmaster_start_time() AND place = leased_place()
                AND current_setting('synchronous_commit') <> 'off';
    END IF;
END
$$;

-- leased_next_token returns the next token. After a change of the origin all tokens rise first: by 2^32 for each new timeline
-- of a server, because another recovery from the same backup may have used those in between. The tokens of a dump or a copy
-- of the database rise by 4 * 2^32, and by 4096 for each second since the installation, or since the original became a copy
-- itself: above those of the original, also if that was promoted up to three times meanwhile, and of an earlier copy, unless that
-- was promoted or copied itself. All copies count from the same time, so that a later one is above an earlier one.
-- setval is not undone if the transaction is. The high cost of reading a sequence with enable_seqscan = off
-- would start the JIT compiler.
CREATE OR REPLACE FUNCTION leased_next_token() RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = on AS $$
DECLARE
    here    leased_origin;
    origin  bigint;
    raised  bigint;
    reached bigint;
    step    bigint := 4;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN -- a crash would make the sequence return this token again
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF EXISTS (SELECT FROM leased_known_origin) THEN
        RETURN nextval('leased_tokens');
    END IF;
    SELECT true, system_identifier, leased_place(), pg_postmaster_start_time(), NULL INTO here FROM pg_control_system();
    origin := leased_raised_for(here.server, here.place);
    IF origin <> (SELECT last_value FROM leased_raised) THEN
        INSERT INTO leased_raising VALUES (origin) ON CONFLICT DO NOTHING;
        PERFORM FROM leased_raising WHERE hash = origin FOR UPDATE;
    END IF;
    SELECT last_value INTO raised FROM leased_raised;
    IF origin <> raised THEN -- still
        SELECT greatest(last_value, (SELECT max(token) FROM leased_locks)) INTO reached FROM leased_tokens;
        IF origin & 4294967295 = raised & 4294967295 THEN
            step := greatest(1, (origin >> 32) - (raised >> 32));
        ELSE
            reached := reached + (4096 * greatest(0, (SELECT extract(epoch FROM clock_timestamp() - since) FROM leased_origin)))::bigint;
        END IF;
        PERFORM setval('leased_tokens', reached + step * 4294967296);
        PERFORM setval('leased_raised', origin);
    END IF;
    -- The row is missing after a dump without data. A transaction that has inserted it, and may be prepared, delays nobody.
    IF NOT EXISTS (SELECT FROM leased_origin) AND pg_try_advisory_xact_lock('leased_origin'::regclass::bigint) THEN
        INSERT INTO leased_origin (server, place) VALUES (here.server, here.place) ON CONFLICT DO NOTHING;
    END IF;
    UPDATE leased_origin SET server = here.server, place = here.place, started = here.started,
        since = CASE WHEN server = here.server AND substr(place, 9) = substr(here.place, 9) THEN since ELSE clock_timestamp() END
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM leased_origin FOR UPDATE SKIP LOCKED));
    RETURN nextval('leased_tokens');
END
$$;
