-- leased_reset lowers the mark of a resource that was fenced with a token that the
-- lock service never granted:
--
--     INSERT INTO leased_reset (resource, expected, mark) VALUES ('account/7', 9007199254740990, 52);
--
-- Get the new mark from a grant that the service makes now (leased gate reset does):
-- it is above every token of an earlier grant, so all of them stay refused. The
-- statement fails if the mark is not the expected one, or not above the new mark.
CREATE VIEW IF NOT EXISTS leased_reset (resource, expected, mark) AS SELECT resource, expected, mark FROM leased_resets;

CREATE TRIGGER IF NOT EXISTS leased_reset_insert INSTEAD OF INSERT ON leased_reset
BEGIN
    SELECT RAISE(ABORT, 'leased: the new mark must be a token below the mark')
    WHERE typeof(NEW.mark) <> 'integer' OR typeof(NEW.expected) <> 'integer' OR NEW.mark < 1 OR NEW.mark >= NEW.expected;
    SELECT RAISE(ABORT, 'leased: the mark is not the expected one, read it again')
    WHERE NOT EXISTS (SELECT 1 FROM leased_marks WHERE resource = NEW.resource AND mark = NEW.expected);
    INSERT INTO leased_resets VALUES (NEW.resource, NEW.expected, NEW.mark);
    UPDATE leased_marks SET mark = NEW.mark WHERE resource = NEW.resource;
    DELETE FROM leased_resets WHERE resource = NEW.resource;
END;
