-- SQLite has no stored functions, so the fence is a view. Insert into it in the
-- transaction that writes, before the first read:
--
--     BEGIN IMMEDIATE;
--     INSERT INTO leased_fence (resource, token) VALUES ('account/7', 34);
--     UPDATE accounts SET balance = balance - 10 WHERE id = 7;
--     COMMIT;
--
-- Token 0 means none: it is admitted if the resource was never fenced. A refused
-- token fails the statement; then roll the transaction back. max_jump is optional
-- and bounds the jump above the mark; the default is that of leased_max_jump.

-- leased_max_jump is the largest jump above the mark if the caller gives none: 2^40.
-- It is created only if it is missing, so that an operator can change it for good
-- (leased gate ddl --max-jump).
CREATE VIEW IF NOT EXISTS leased_max_jump (max_jump) AS SELECT 1099511627776;

CREATE VIEW IF NOT EXISTS leased_fence (resource, token, max_jump) AS SELECT resource, mark, 0 FROM leased_marks;

CREATE TRIGGER IF NOT EXISTS leased_fence_insert INSTEAD OF INSERT ON leased_fence
BEGIN
    SELECT RAISE(ABORT, 'leased: invalid fencing token')
    WHERE typeof(NEW.token) <> 'integer' OR NEW.token NOT BETWEEN 0 AND 9007199254740991;
    SELECT RAISE(ABORT, 'leased: no fencing token: the resource is fenced; acquire its lease and send the token')
    FROM leased_marks WHERE resource = NEW.resource AND mark > 0 AND NEW.token = 0;
    SELECT RAISE(ABORT, 'leased: stale fencing token: the lease is lost, stop writing')
    FROM leased_marks WHERE resource = NEW.resource AND mark > NEW.token;
    SELECT RAISE(ABORT, 'leased: fencing token jumps too far above the mark')
    WHERE NEW.token - coalesce((SELECT mark FROM leased_marks WHERE resource = NEW.resource), 0)
        > coalesce(nullif(NEW.max_jump, 0), (SELECT max_jump FROM leased_max_jump));
    INSERT INTO leased_marks (resource, mark) VALUES (NEW.resource, NEW.token)
    ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark;
END;
