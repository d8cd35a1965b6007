-- leased_fence(resource, token) admits a token, or raises an exception, which
-- ends the transaction. Call it inside the transaction that writes, before the
-- first read:
--
--     BEGIN;
--     SELECT leased_fence('account/7', 34);
--     UPDATE accounts SET balance = balance - 10 WHERE id = 7;
--     COMMIT;
--
-- Token 0 means none: it passes while the resource has never been fenced. A
-- third argument bounds the jump above the mark.
--
-- It raises LF001 for a stale token, LF002 for a missing one, LF003 for one
-- that jumps too far, LF004 for what is no token or name. The detail of the
-- first three is the mark. The row stays locked until the transaction ends, so
-- that no newer token can be admitted before this transaction's writes.
CREATE OR REPLACE FUNCTION leased_fence(resource text, token bigint, max_jump bigint DEFAULT 0) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    found_mark bigint;
BEGIN
    IF token IS NULL OR token NOT BETWEEN 0 AND 9007199254740991 OR resource IS NULL OR octet_length(resource) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'invalid fencing token % or resource %', token, quote_nullable(left(resource, 80))
            USING ERRCODE = 'LF004', HINT = 'A token is 0 to 9007199254740991, a resource has 1 to 512 bytes.';
    END IF;
    LOOP
        INSERT INTO leased_marks AS m (resource, mark)
        SELECT $1, $2
        WHERE $3 = 0 OR $2 <= $3 OR EXISTS (SELECT FROM leased_marks e WHERE e.resource = $1)
        ON CONFLICT ON CONSTRAINT leased_marks_pkey DO UPDATE
            SET mark = $2, admitted_by = pg_current_xact_id(), admitted_at = transaction_timestamp()
            WHERE $2 >= m.mark AND ($3 = 0 OR $2 - m.mark <= $3);
        IF FOUND THEN
            RETURN;
        END IF;
        SELECT m.mark INTO found_mark FROM leased_marks m WHERE m.resource = $1 FOR UPDATE;
        found_mark := coalesce(found_mark, 0);
        IF token = 0 AND found_mark > 0 THEN
            RAISE EXCEPTION 'no fencing token: % is fenced at %', quote_literal(resource), found_mark
                USING ERRCODE = 'LF002', DETAIL = found_mark::text, HINT = 'Acquire its lease and fence the transaction with the token.';
        ELSIF token < found_mark THEN
            RAISE EXCEPTION 'stale fencing token % for %: % has been admitted', token, quote_literal(resource), found_mark
                USING ERRCODE = 'LF001', DETAIL = found_mark::text, HINT = 'The lease has passed on: stop writing.';
        ELSIF max_jump <> 0 AND token - found_mark > max_jump THEN
            RAISE EXCEPTION 'fencing token % for % is more than % above the mark %', token, quote_literal(resource), max_jump, found_mark
                USING ERRCODE = 'LF003', DETAIL = found_mark::text, HINT = 'If the lock service did grant it, an operator must raise the bound.';
        END IF;
        -- The mark rose between the two statements, and the token passes now.
    END LOOP;
END
$$;
