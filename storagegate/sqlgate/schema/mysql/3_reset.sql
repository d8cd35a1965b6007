-- leased_reset(resource, expected, mark) lowers the mark of a resource that was
-- fenced with a token that the lock service never granted. Get the new mark from a
-- grant that the service makes now (leased gate reset does): it is above every token
-- of an earlier grant, so all of them stay refused.
--
-- Errors have SQLSTATE 45000 and the number 31005 if the new mark is not below the
-- expected mark, and 31006 if the mark is not the expected one. The caller needs
-- rights on leased_resets.
DELIMITER $$
DROP PROCEDURE IF EXISTS leased_reset $$
CREATE PROCEDURE leased_reset(IN in_resource VARCHAR(513) CHARACTER SET utf8mb4, IN in_expected BIGINT, IN in_mark BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'leased 3'
BEGIN
    DECLARE name VARBINARY(2052) DEFAULT CAST(in_resource AS BINARY);
    DECLARE changed INT;
    IF (in_mark >= 1 AND in_mark < in_expected) IS NOT TRUE THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31005, MESSAGE_TEXT = 'leased: the new mark must be a token below the mark';
    END IF;
    REPLACE INTO leased_resets VALUES (name, in_expected, in_mark);
    UPDATE leased_marks SET mark = in_mark WHERE resource = name AND mark = in_expected;
    SET changed = ROW_COUNT();
    DELETE FROM leased_resets WHERE resource = name;
    IF changed = 0 THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31006, MESSAGE_TEXT = 'leased: the mark is not the expected one, read it again';
    END IF;
END $$
DELIMITER ;
