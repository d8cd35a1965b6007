-- leased_guard makes a table refuse rows written by a transaction that did not
-- pass leased_fence for the row's resource, whoever wrote that code:
--
--     CREATE TRIGGER leased_guard AFTER INSERT OR UPDATE OR DELETE ON accounts
--         FOR EACH ROW EXECUTE FUNCTION leased_guard('account/', 'id');
--     CREATE TRIGGER leased_guard_truncate BEFORE TRUNCATE ON accounts
--         FOR EACH STATEMENT EXECUTE FUNCTION leased_guard();
--
-- The row with id 7 then belongs to the resource account/7. A resource that was
-- never fenced can be written without a token. It is an AFTER trigger, so that
-- no other trigger can change the row behind its back.
CREATE OR REPLACE FUNCTION leased_guard() RETURNS trigger
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name   text;
    before text;
    after  text;
    claim  bigint;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'table % is fenced and cannot be truncated', TG_TABLE_NAME
            USING ERRCODE = 'LF002', DETAIL = '0', HINT = 'Delete the rows under their leases.';
    END IF;
    IF TG_OP <> 'INSERT' THEN
        before := TG_ARGV[0] || (to_jsonb(OLD) ->> TG_ARGV[1]);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        after := TG_ARGV[0] || (to_jsonb(NEW) ->> TG_ARGV[1]);
    END IF;
    FOREACH name IN ARRAY array_remove(ARRAY[before, CASE WHEN after IS DISTINCT FROM before THEN after END], NULL) LOOP
        SELECT max(split_part(line, ' ', 1)::bigint) INTO claim
        FROM unnest(string_to_array(current_setting('leased.claims', true), E'\n')) AS line
        WHERE line <> '' AND substr(line, strpos(line, ' ') + 1) = name;
        -- Without a claim it may still hold the lock that a gate took for it.
        IF claim IS NOT NULL OR NOT EXISTS (SELECT FROM leased_marks m WHERE m.resource = name
                AND pg_current_xact_id()::xid IN (m.xmin, m.xmax)) THEN
            PERFORM leased_fence(name, coalesce(claim, 0));
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
