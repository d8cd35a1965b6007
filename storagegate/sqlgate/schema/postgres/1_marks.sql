-- The mark of each resource: the newest fencing token that was admitted.
-- PostgreSQL 13 or later. Running this file again changes nothing. Triggers check the
-- values: PostgreSQL prepares a CHECK constraint again for every UPDATE, also that of a
-- column that does not change.
--
-- ALTER DEFAULT PRIVILEGES may give other roles rights on new tables, and a right to write
-- leased_resets is a right to lower marks. So each new table belongs to its owner alone at
-- first. Rights that were granted later are kept.
DO $$
DECLARE
    old     oid[];
    granted record;
BEGIN
PERFORM pg_advisory_xact_lock(hashtext('leased_marks')); -- one installation at a time
old := ARRAY(SELECT oid FROM pg_class WHERE relname IN ('leased_marks', 'leased_resets'));
CREATE TABLE IF NOT EXISTS leased_marks (
    resource text COLLATE "C" PRIMARY KEY,
    mark     bigint NOT NULL
) WITH (fillfactor = 70);

-- The reset of a mark that leased_reset is executing. It is empty otherwise. Do not
-- grant rights on it to users who write data.
CREATE TABLE IF NOT EXISTS leased_resets (
    resource text COLLATE "C" PRIMARY KEY,
    expected bigint NOT NULL,
    mark     bigint NOT NULL
);

    FOR granted IN SELECT c.oid::regclass AS name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid IN ('leased_marks'::regclass, 'leased_resets'::regclass) AND c.oid <> ALL (old) AND a.grantee <> c.relowner LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', granted.name, granted.grantee);
    END LOOP;
END
$$;

-- No statement can lower, rename or delete a mark, except leased_reset, and none can
-- create a mark that is not a token, or a name that is not valid. The search path of
-- the function ends with pg_temp, so that it does not find temporary tables of the
-- caller in place of these tables. One block: it is never without this search path.
DO $install$
BEGIN
CREATE OR REPLACE FUNCTION leased_keep_mark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        IF TG_OP = 'INSERT' OR NEW.mark > 9007199254740991 THEN
            RAISE EXCEPTION 'invalid mark % for %', NEW.mark, quote_literal(left(NEW.resource, 100))
                USING ERRCODE = 'check_violation', HINT = 'A mark is 0 to 9007199254740991. A name has 1 to 512 bytes and no line break.';
        END IF;
        IF NEW.resource = OLD.resource AND NEW.mark >= 0 AND has_table_privilege('leased_resets', 'SELECT') THEN
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
--
-- An AFTER trigger sees the row that is stored, whatever other triggers have done. A
-- BEFORE trigger would lock the row in a step of its own before it looks at WHEN.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'leased_marks'::regclass AND tgname = 'leased_keep_mark_inserted') THEN
        CREATE TRIGGER leased_keep_mark_inserted AFTER INSERT ON leased_marks
            FOR EACH ROW WHEN (NEW.mark NOT BETWEEN 0 AND 9007199254740991 OR octet_length(NEW.resource) NOT BETWEEN 1 AND 512
                OR strpos(NEW.resource, E'\n') > 0) EXECUTE FUNCTION leased_keep_mark();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'leased_marks'::regclass AND tgname = 'leased_keep_mark_updated') THEN
        CREATE TRIGGER leased_keep_mark_updated AFTER UPDATE ON leased_marks
            FOR EACH ROW WHEN (NEW.mark < OLD.mark OR NEW.mark > 9007199254740991 OR NEW.resource <> OLD.resource)
            EXECUTE FUNCTION leased_keep_mark();
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
