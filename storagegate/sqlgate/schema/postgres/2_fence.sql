-- leased_fence(resource, token) admits a token, or raises an exception, which
-- ends the transaction. Call it inside the transaction that writes, before the
-- first read:
--
--     BEGIN;
--     SELECT leased_fence('account/7', 34);
--     UPDATE accounts SET balance = balance - 10 WHERE id = 7;
--     COMMIT;
--
-- The schema of these functions must be in the search path of the caller. (A SET
-- clause for the search path would double the cost of a call.)
--
-- Token 0 means none: it is admitted if the resource was never fenced. A third
-- argument bounds the jump above the mark; the default is leased_max_jump().
--
-- It raises LF001 for a stale token, LF002 for a missing token and LF003 for a
-- token that jumps too far; their detail is the mark. LF004 means that the token is
-- invalid, and LF006 that the mark must be raised first (see leased_try).

-- leased_max_jump is the largest jump above the mark if the caller gives none: 2^40.
-- It is created only if it is missing, so that an operator can change it for good
-- (leased gate ddl --max-jump).
DO $$
BEGIN
    IF to_regprocedure('leased_max_jump()') IS NULL THEN
        CREATE FUNCTION leased_max_jump() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 1099511627776::bigint';
    END IF;
END
$$;

-- leased_try is leased_fence with the mark as its result instead of an exception. A
-- mark other than the token is a refusal.
--
-- The row stays locked until the transaction ends, so that no newer token is
-- admitted before its writes are committed. Later writes of a holder only lock the
-- row; the row is written only if the mark rises.
--
-- At REPEATABLE READ and SERIALIZABLE the snapshot is older than a possible wait
-- for an older holder, so the transaction would not see that holder's last write.
-- At these levels a separate transaction at READ COMMITTED must raise the mark;
-- leased_try raises LF006 otherwise.
--
-- The setting leased.claims lists the admitted tokens, except 0, until the transaction
-- or savepoint ends: a bulk load admits 0 for each row. The guard of a table reads it.
-- It is not a proof: the guard compares it with the mark again.
--
-- A text variable, as in leased_fence, has a type with a schema: PL/pgSQL looks types up once
-- for each session, in the search path of the first call. A session could put a domain
-- in the place of text, whose check would run with the rights of a later caller, such as
-- leased_fence_signed.
CREATE OR REPLACE FUNCTION leased_try(resource text, token bigint, max_jump bigint DEFAULT 0) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found_mark bigint;
    bound      bigint := coalesce(nullif(max_jump, 0), leased_max_jump());
BEGIN
    IF token IS NULL OR token NOT BETWEEN 0 AND 9007199254740991 THEN
        RAISE EXCEPTION 'invalid fencing token %', token
            USING ERRCODE = 'LF004', HINT = 'A token is 0 to 9007199254740991, and 0 means none.';
    END IF;
    SELECT m.mark INTO found_mark FROM leased_marks m WHERE m.resource = $1 FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        IF token > bound THEN
            RETURN 0;
        END IF;
        INSERT INTO leased_marks VALUES ($1, $2) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            found_mark := token;
        ELSE
            SELECT m.mark INTO found_mark FROM leased_marks m WHERE m.resource = $1 FOR NO KEY UPDATE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'the first mark of % is newer than this transaction', quote_literal($1)
                    USING ERRCODE = '40001', HINT = 'Run the transaction again.';
            END IF;
        END IF;
    END IF;
    IF token < found_mark OR token - found_mark > bound THEN
        RETURN found_mark;
    END IF;
    IF token > found_mark THEN
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            RAISE EXCEPTION 'the mark of % must be raised before a transaction at this isolation level begins', quote_literal($1)
                USING ERRCODE = 'LF006', HINT = 'Call leased_fence in a transaction of its own at READ COMMITTED, then begin this one again.';
        END IF;
        UPDATE leased_marks m SET mark = $2 WHERE m.resource = $1;
    END IF;
    IF token > 0 THEN
        PERFORM set_config('leased.claims', coalesce(current_setting('leased.claims', true), '') || token || ' ' || resource || E'\n', true);
    END IF;
    RETURN token;
END
$$;

CREATE OR REPLACE FUNCTION leased_fence(resource text, token bigint, max_jump bigint DEFAULT 0) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found_mark bigint;
    claims     pg_catalog.text := coalesce(current_setting('leased.claims', true), '') || token || ' ' || resource || E'\n';
BEGIN
    -- A token that raises the mark needs only the first statement, and a later write of its holder the second. Both lock
    -- the row. After a wait for it, PostgreSQL compares the token with the mark that was committed meanwhile. leased_try
    -- decides in every other case.
    UPDATE leased_marks m SET mark = $2 WHERE m.resource = $1 AND m.mark < $2 AND $2 - m.mark <= coalesce(nullif($3, 0), leased_max_jump())
        AND $2 BETWEEN 1 AND 9007199254740991 AND current_setting('transaction_isolation') LIKE 'read %'
        AND set_config('leased.claims', claims, true) <> '';
    IF FOUND THEN
        RETURN token;
    END IF;
    PERFORM FROM leased_marks m WHERE m.resource = $1 AND m.mark = $2 AND $2 > 0 AND set_config('leased.claims', claims, true) <> '' FOR NO KEY UPDATE;
    IF FOUND THEN
        RETURN token;
    END IF;
    found_mark := leased_try(resource, token, max_jump);
    IF found_mark = token THEN
        RETURN token;
    ELSIF token = 0 THEN
        RAISE EXCEPTION 'no fencing token: % is fenced at %', quote_literal(resource), found_mark
            USING ERRCODE = 'LF002', DETAIL = found_mark::text, HINT = 'Acquire its lease and fence the transaction with the token.';
    ELSIF token < found_mark THEN
        RAISE EXCEPTION 'stale fencing token % for %: % has been admitted', token, quote_literal(resource), found_mark
            USING ERRCODE = 'LF001', DETAIL = found_mark::text, HINT = 'The lease is lost: stop writing.';
    ELSE
        RAISE EXCEPTION 'fencing token % for % is more than % above the mark %', token, quote_literal(resource), coalesce(nullif(max_jump, 0), leased_max_jump()), found_mark
            USING ERRCODE = 'LF003', DETAIL = found_mark::text, HINT = 'If the lock service granted it, raise the bound: leased gate ddl --dialect postgres --max-jump N prints the SQL.';
    END IF;
END
$$;
