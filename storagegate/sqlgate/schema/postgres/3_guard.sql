-- leased_guard makes a table refuse rows of a transaction that was not admitted by
-- leased_fence for the resource of the row:
--
--     CREATE TRIGGER leased_guard AFTER INSERT OR UPDATE OR DELETE ON accounts
--         FOR EACH ROW EXECUTE FUNCTION leased_guard('account/', 'id');
--     CREATE TRIGGER leased_guard_truncate BEFORE TRUNCATE ON accounts
--         FOR EACH STATEMENT EXECUTE FUNCTION leased_guard();
--
-- The row with id 7 then belongs to the resource account/7 and cannot be written
-- without a token, from the moment the trigger exists. With 'allow-unfenced' as a third
-- argument, rows whose resource was never fenced can be. The trigger runs AFTER the
-- statement, so that no other trigger can change the row later. Write the name of the column
-- in lower case, unless it was quoted when the table was created. Choose a column
-- whose text does not depend on settings: an integer, a uuid or a text, not a time
-- or a float.
--
-- A row whose resource cannot be determined is refused with LF007: the column is
-- missing (misspelled or renamed) or NULL, or its text ends with a space, like that
-- of char(n).
--
-- The search path is that of leased_keep_mark: a temporary table leased_marks of the
-- caller is not found.
DO $install$
BEGIN
CREATE OR REPLACE FUNCTION leased_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    row_now jsonb;
    name    text;
    done    text;
    claim   bigint;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'table % is fenced and cannot be truncated', TG_TABLE_NAME
            USING ERRCODE = 'LF002', DETAIL = '0', HINT = 'Delete the rows under their leases.';
    END IF;
    FOREACH row_now IN ARRAY CASE TG_OP
            WHEN 'INSERT' THEN ARRAY[to_jsonb(NEW)]
            WHEN 'DELETE' THEN ARRAY[to_jsonb(OLD)]
            ELSE ARRAY[to_jsonb(OLD), to_jsonb(NEW)] END LOOP
        name := TG_ARGV[0] || (row_now ->> TG_ARGV[1]);
        IF name IS NULL OR right(name, 1) = ' ' THEN
            RAISE EXCEPTION 'the resource of a row of table % cannot be determined from its column %', TG_TABLE_NAME, quote_nullable(TG_ARGV[1])
                USING ERRCODE = 'LF007', HINT = 'The column must exist, under this name, must not be NULL and must not end with a space: use text instead of char(n).';
        END IF;
        CONTINUE WHEN name = done;
        done := name;
        SELECT max(split_part(line, ' ', 1)::bigint) INTO claim
        FROM unnest(string_to_array(current_setting('leased.claims', true), E'\n')) AS line
        WHERE line <> '' AND substr(line, strpos(line, ' ') + 1) = name;
        -- A lock on the row of the mark is not a proof: a foreign key also locks it.
        -- So compare the claim with the mark, under a lock.
        PERFORM FROM leased_marks m WHERE m.resource = name AND m.mark = claim AND claim > 0 FOR NO KEY UPDATE;
        CONTINUE WHEN FOUND;
        IF coalesce(claim, 0) = 0 AND TG_ARGV[2] IS DISTINCT FROM 'allow-unfenced' THEN
            RAISE EXCEPTION 'no fencing token: table % is guarded, and % is not fenced in this transaction', TG_TABLE_NAME, quote_literal(name)
                USING ERRCODE = 'LF002', DETAIL = coalesce((SELECT m.mark FROM leased_marks m WHERE m.resource = name), 0)::text,
                    HINT = 'Acquire its lease and call leased_fence with the token in this transaction.';
        END IF;
        PERFORM leased_fence(name, coalesce(claim, 0));
    END LOOP;
    RETURN NULL;
END
$$;
EXECUTE format('ALTER FUNCTION leased_guard() SET search_path = %I, pg_temp', current_schema());
END
$install$;
