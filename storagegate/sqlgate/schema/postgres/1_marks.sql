-- The mark of each resource: the newest fencing token that was admitted.
-- PostgreSQL 13 or later. Running this file again changes nothing.
CREATE TABLE IF NOT EXISTS leased_marks (
    resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 512 AND strpos(resource, E'\n') = 0),
    mark     bigint NOT NULL CHECK (mark BETWEEN 0 AND 9007199254740991)
) WITH (fillfactor = 70);

-- The reset of a mark that leased_reset is executing. It is empty otherwise. Do not
-- grant rights on it to users who write data.
CREATE TABLE IF NOT EXISTS leased_resets (
    resource text COLLATE "C" PRIMARY KEY,
    expected bigint NOT NULL,
    mark     bigint NOT NULL
);

-- No statement can lower, rename or delete a mark, except leased_reset. The search path
-- of the function ends with pg_temp, so that it does not find temporary tables of the
-- caller in place of these tables. One block: it is never without this search path.
DO $install$
BEGIN
CREATE OR REPLACE FUNCTION leased_keep_mark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.resource = OLD.resource AND has_table_privilege('leased_resets', 'SELECT') THEN
            IF EXISTS (SELECT FROM leased_resets r WHERE r.resource = OLD.resource AND r.expected = OLD.mark AND r.mark = NEW.mark) THEN
                RETURN NEW;
            END IF;
        END IF;
    END IF;
    RAISE EXCEPTION 'marks of leased cannot be lowered, renamed or deleted'
        USING ERRCODE = 'LF005', HINT = 'A lower mark would admit stale writes. Keep the row of a resource that is not used any more. An operator can undo an absurd token: leased gate reset.';
END
$$;
EXECUTE format('ALTER FUNCTION leased_keep_mark() SET search_path = %I, pg_temp', current_schema());
END
$install$;

-- Create the triggers only if they are missing: CREATE TRIGGER waits for every open
-- transaction that has used the table, and blocks all others meanwhile.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'leased_marks'::regclass AND tgname = 'leased_keep_mark_update') THEN
        CREATE TRIGGER leased_keep_mark_update BEFORE UPDATE ON leased_marks
            FOR EACH ROW WHEN (NEW.mark < OLD.mark OR NEW.resource <> OLD.resource) EXECUTE FUNCTION leased_keep_mark();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'leased_marks'::regclass AND tgname = 'leased_keep_mark_delete') THEN
        CREATE TRIGGER leased_keep_mark_delete BEFORE DELETE ON leased_marks
            FOR EACH ROW EXECUTE FUNCTION leased_keep_mark();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'leased_marks'::regclass AND tgname = 'leased_keep_mark_truncate') THEN
        CREATE TRIGGER leased_keep_mark_truncate BEFORE TRUNCATE ON leased_marks
            FOR EACH STATEMENT EXECUTE FUNCTION leased_keep_mark();
    END IF;
END
$$;
