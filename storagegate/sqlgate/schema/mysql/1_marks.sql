-- The mark of each resource: the newest fencing token that was admitted.
-- MariaDB 10.5 or later, MySQL 8.0.29 or later. Running this file again changes nothing.
-- Names are compared byte by byte, without a collation.
CREATE TABLE IF NOT EXISTS leased_marks (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    mark     BIGINT NOT NULL,
    CONSTRAINT leased_resource_length CHECK (length(resource) >= 1),
    CONSTRAINT leased_mark_range CHECK (mark BETWEEN 0 AND 9007199254740991)
) ENGINE = InnoDB;

-- The reset of a mark that leased_reset is executing. It is empty otherwise. Do not
-- grant the INSERT privilege on it to users who write data.
CREATE TABLE IF NOT EXISTS leased_resets (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    expected BIGINT NOT NULL,
    mark     BIGINT NOT NULL
) ENGINE = InnoDB;

-- No statement can lower or delete a mark, except leased_reset, and TRUNCATE and
-- DROP, which fire no trigger, and users with a temporary table leased_resets, which
-- the trigger reads in place of the table above: grant neither DROP nor CREATE
-- TEMPORARY TABLES to users who write data.
DELIMITER $$
DROP TRIGGER IF EXISTS leased_keep_mark_update $$
CREATE TRIGGER leased_keep_mark_update BEFORE UPDATE ON leased_marks FOR EACH ROW
BEGIN
    IF NEW.resource <> OLD.resource OR NEW.mark < OLD.mark
            AND NOT EXISTS (SELECT 1 FROM leased_resets r WHERE r.resource = OLD.resource AND r.expected = OLD.mark AND r.mark = NEW.mark) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'leased: marks are never lowered or renamed';
    END IF;
END $$
DROP TRIGGER IF EXISTS leased_keep_mark_delete $$
CREATE TRIGGER leased_keep_mark_delete BEFORE DELETE ON leased_marks FOR EACH ROW
BEGIN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'leased: marks are never deleted';
END $$
DELIMITER ;
