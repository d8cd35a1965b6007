-- leased_reset(resource, expected, mark) lowers the mark of a resource that was
-- fenced with a token that the lock service never granted. Get the new mark from a
-- grant that the service makes now (leased gate reset does): it is above every token
-- of an earlier grant, so all of them stay refused.
--
-- It raises LF010 if the new mark is not below the expected mark, and LF009 if the
-- mark is not the expected one; its detail is the mark. The caller needs rights on
-- leased_resets.
CREATE OR REPLACE FUNCTION leased_reset(resource text, expected bigint, mark bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    changed bigint;
BEGIN
    IF (mark >= 1 AND mark < expected) IS NOT TRUE THEN
        RAISE EXCEPTION 'cannot reset the mark of % from % to %: the new mark must be a token below the mark', quote_literal($1), expected, mark
            USING ERRCODE = 'LF010', HINT = 'If a fresh token is above the mark, the resource is not locked out.';
    END IF;
    INSERT INTO leased_resets VALUES ($1, $2, $3);
    UPDATE leased_marks m SET mark = $3 WHERE m.resource = $1 AND m.mark = $2;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed = 0 THEN
        RAISE EXCEPTION 'cannot reset the mark of %: it is not %', quote_literal($1), expected
            USING ERRCODE = 'LF009', DETAIL = coalesce((SELECT m.mark FROM leased_marks m WHERE m.resource = $1), 0)::text,
                HINT = 'Another token was admitted since. Read the mark again.';
    END IF;
    DELETE FROM leased_resets r WHERE r.resource = $1;
    RETURN mark;
END
$$;
