-- The marks: for each resource, the newest fencing token that was admitted.
-- SQLite 3.35 or later. Running this file again changes nothing. A table with
-- row ids, because there SQLite leaves the page alone if a mark stays the same.
CREATE TABLE IF NOT EXISTS leased_marks (
    resource TEXT NOT NULL PRIMARY KEY CHECK (length(CAST(resource AS BLOB)) BETWEEN 1 AND 512),
    mark     INTEGER NOT NULL CHECK (typeof(mark) = 'integer' AND mark BETWEEN 0 AND 9007199254740991)
);

-- Marks are never lowered and never deleted, whoever tries.
CREATE TRIGGER IF NOT EXISTS leased_keep_mark_update BEFORE UPDATE ON leased_marks
WHEN NEW.mark < OLD.mark OR NEW.resource <> OLD.resource
BEGIN
    SELECT RAISE(ABORT, 'leased: marks are never lowered or renamed');
END;
CREATE TRIGGER IF NOT EXISTS leased_keep_mark_delete BEFORE DELETE ON leased_marks
BEGIN
    SELECT RAISE(ABORT, 'leased: marks are never deleted');
END;
-- INSERT OR REPLACE would delete the old row without asking the trigger above.
CREATE TRIGGER IF NOT EXISTS leased_keep_mark_replace BEFORE INSERT ON leased_marks
WHEN EXISTS (SELECT 1 FROM leased_marks WHERE resource = NEW.resource AND mark > NEW.mark)
BEGIN
    SELECT RAISE(IGNORE);
END;
