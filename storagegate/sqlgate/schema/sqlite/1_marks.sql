-- The mark of each resource: the newest fencing token that was admitted.
-- SQLite 3.35 or later. Running this file again changes nothing.
--
-- The table has no row ids: REPLACE deletes a row with the same key without firing
-- a trigger, and with a row id as a second key it could delete any mark.
CREATE TABLE IF NOT EXISTS leased_marks (
    resource TEXT NOT NULL PRIMARY KEY CHECK (length(CAST(resource AS BLOB)) BETWEEN 1 AND 512),
    mark     INTEGER NOT NULL CHECK (typeof(mark) = 'integer' AND mark BETWEEN 0 AND 9007199254740991)
) WITHOUT ROWID;

-- The reset of a mark that leased_reset is executing. It is empty otherwise.
CREATE TABLE IF NOT EXISTS leased_resets (
    resource TEXT NOT NULL PRIMARY KEY,
    expected INTEGER NOT NULL,
    mark     INTEGER NOT NULL
);

-- No statement can lower, rename or delete a mark, except leased_reset.
CREATE TRIGGER IF NOT EXISTS leased_keep_mark_update BEFORE UPDATE ON leased_marks
WHEN NEW.resource <> OLD.resource OR NEW.mark < OLD.mark
    AND NOT EXISTS (SELECT 1 FROM leased_resets r WHERE r.resource = OLD.resource AND r.expected = OLD.mark AND r.mark = NEW.mark)
BEGIN
    SELECT RAISE(ABORT, 'leased: marks are never lowered or renamed');
END;
CREATE TRIGGER IF NOT EXISTS leased_keep_mark_delete BEFORE DELETE ON leased_marks
BEGIN
    SELECT RAISE(ABORT, 'leased: marks are never deleted');
END;
-- INSERT OR REPLACE would delete the old row without firing the trigger above.
CREATE TRIGGER IF NOT EXISTS leased_keep_mark_replace BEFORE INSERT ON leased_marks
WHEN EXISTS (SELECT 1 FROM leased_marks WHERE resource = NEW.resource AND mark > NEW.mark)
BEGIN
    SELECT RAISE(IGNORE);
END;
