-- Locks with fencing tokens in PostgreSQL 13 or later. Running these files again changes
-- nothing. Only the functions write to these tables: grant EXECUTE on the functions, and
-- no rights on the tables.

-- A row for each lock that was ever used. A free lock has no attempt. Tokens come from
-- one sequence, so rows of free locks may be deleted:
--     DELETE FROM leased_locks WHERE attempt IS NULL;
CREATE TABLE IF NOT EXISTS leased_locks (
    resource  text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 512 AND strpos(resource, E'\n') = 0),
    token     bigint NOT NULL DEFAULT 0, -- of the newest grant
    attempt   text,                      -- that holds the lock
    ended     text,                      -- the attempt that was released or broken last
    owner     text,                      -- the role that acquired it
    holder    text,
    metadata  jsonb,
    resources text[],                    -- all locks under this token, in order; NULL for this one alone
    ttl       interval,
    granted   timestamptz,
    expires   timestamptz
) WITH (fillfactor = 50); -- updates stay in their page

-- The queue: a row for each lock that a waiting attempt wants. A waiter that has not
-- asked again before it expires loses its place.
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
CREATE INDEX IF NOT EXISTS leased_waiters_attempt ON leased_waiters (attempt);
CREATE SEQUENCE IF NOT EXISTS leased_tickets;

-- Attempts that have ended, and of which another acquire may still arrive. They are removed
-- after an hour.
CREATE TABLE IF NOT EXISTS leased_ended (
    attempt text,
    owner   text, -- the role that ended it
    at      timestamptz NOT NULL,
    PRIMARY KEY (attempt, owner)
);
CREATE INDEX IF NOT EXISTS leased_ended_at ON leased_ended (at);

-- The tokens, and the origin of their sequence: the server, its timeline and this table. A
-- server that was promoted, recovered to an earlier time or loaded from a dump has another
-- origin and may have forgotten grants.
--
-- It takes long to read the identifier of the server. Until the server is started again, the
-- other columns tell as well that the origin is the same.
CREATE SEQUENCE IF NOT EXISTS leased_tokens AS bigint MAXVALUE 9007199254740991 NO CYCLE CACHE 1;
CREATE TABLE IF NOT EXISTS leased_origin (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    origin   text NOT NULL,
    started  timestamptz,
    timeline text,
    relation oid
);
CREATE OR REPLACE VIEW leased_known_origin AS SELECT origin FROM leased_origin
    WHERE only_row AND started = pg_postmaster_start_time() AND timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8) AND relation = tableoid;

CREATE OR REPLACE FUNCTION leased_current_origin() RETURNS text LANGUAGE sql AS $$
    SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()) || '/'
        || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) || '/' || 'leased_origin'::regclass::oid
$$;

INSERT INTO leased_origin (origin) SELECT leased_current_origin() ON CONFLICT DO NOTHING;

-- leased_next_token returns the next token. After a change of the origin all tokens rise by
-- 2^32 first. setval is not undone if the transaction is: tokens then rise once more.
CREATE OR REPLACE FUNCTION leased_next_token() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    here text;
BEGIN
    IF EXISTS (SELECT FROM leased_known_origin) THEN
        RETURN nextval('leased_tokens');
    END IF;
    here := leased_current_origin();
    IF EXISTS (SELECT FROM leased_origin WHERE origin = here) THEN
        PERFORM FROM leased_origin FOR UPDATE SKIP LOCKED; -- another transaction may do it
    ELSE
        PERFORM FROM leased_origin FOR UPDATE;
        IF NOT EXISTS (SELECT FROM leased_origin WHERE origin = here) THEN
            PERFORM setval('leased_tokens', (SELECT last_value FROM leased_tokens) + 4294967296);
        END IF;
    END IF;
    IF FOUND THEN
        UPDATE leased_origin SET origin = here, started = pg_postmaster_start_time(), timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8),
            relation = tableoid;
    END IF;
    RETURN nextval('leased_tokens');
END
$$;
