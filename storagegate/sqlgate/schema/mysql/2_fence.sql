-- The COMMENT of each procedure is the version of this file. If a procedure
-- changes, change the version in all of them and in schema.go.
--
-- leased_fence(resource, token) admits a token, or signals an error. Call it
-- inside the transaction that writes, before the first read:
--
--     START TRANSACTION;
--     CALL leased_fence('account/7', 34);
--     UPDATE accounts SET balance = balance - 10 WHERE id = 7;
--     COMMIT;
--
-- Token 0 means none: it is admitted if the resource was never fenced. A refusal
-- does not end the transaction: roll it back. The row stays locked until the
-- transaction ends, so that no newer token is admitted before its writes. Errors
-- have SQLSTATE 45000 and the number 31001 for a stale token, 31002 for a missing
-- token, 31003 for a token that jumps too far, and 31004 for an invalid token or
-- name.
--
-- leased_fence_bounded has a bound on the jump above the mark as a third argument;
-- the default is leased_max_jump().
--
-- These procedures take the name as text, so that it has the same bytes, in
-- utf8mb4, for every character set of the connection.
DELIMITER $$
-- leased_max_jump is the largest jump above the mark if the caller gives none: 2^40.
-- It is created only if it is missing, so that an operator can change it for good
-- (leased gate ddl --max-jump).
CREATE FUNCTION IF NOT EXISTS leased_max_jump() RETURNS BIGINT DETERMINISTIC NO SQL SQL SECURITY INVOKER
    RETURN 1099511627776 $$
-- leased_raise locks the row and raises the mark if the rule admits the token. It
-- returns the new mark, which is the token if and only if the token was admitted.
-- FOR UPDATE is required: a plain SELECT would read the snapshot of a transaction
-- that has already read, in which the mark may be old.
DROP PROCEDURE IF EXISTS leased_raise $$
CREATE PROCEDURE leased_raise(IN in_resource VARBINARY(513), IN in_token BIGINT, IN in_max_jump BIGINT, OUT out_mark BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'leased 3'
BEGIN
    DECLARE bound BIGINT DEFAULT coalesce(nullif(in_max_jump, 0), leased_max_jump());
    IF in_token IS NULL OR in_token NOT BETWEEN 0 AND 9007199254740991
            OR in_resource IS NULL OR length(in_resource) NOT BETWEEN 1 AND 512 THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31004, MESSAGE_TEXT = 'leased: invalid fencing token or resource';
    END IF;
    INSERT INTO leased_marks (resource, mark)
    VALUES (in_resource, IF(in_token <= bound, in_token, 0))
    ON DUPLICATE KEY UPDATE mark = IF(in_token >= mark AND in_token - mark <= bound, in_token, mark);
    SELECT mark INTO out_mark FROM leased_marks WHERE resource = in_resource FOR UPDATE;
END $$
DROP PROCEDURE IF EXISTS leased_admit $$
CREATE PROCEDURE leased_admit(IN in_resource VARBINARY(513), IN in_token BIGINT, IN in_max_jump BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'leased 3'
BEGIN
    DECLARE found_mark BIGINT DEFAULT 0;
    DECLARE said VARCHAR(128);
    CALL leased_raise(in_resource, in_token, in_max_jump, found_mark);
    IF found_mark > in_token AND in_token = 0 THEN
        SET said = concat('leased: no fencing token: the resource is fenced at ', found_mark);
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31002, MESSAGE_TEXT = said;
    ELSEIF found_mark > in_token THEN
        SET said = concat('leased: stale fencing token ', in_token, ': ', found_mark, ' has been admitted, stop writing');
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = said;
    ELSEIF found_mark < in_token THEN
        SET said = concat('leased: fencing token ', in_token, ' jumps too far above the mark ', found_mark);
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31003, MESSAGE_TEXT = said;
    END IF;
END $$
DROP PROCEDURE IF EXISTS leased_fence_bounded $$
CREATE PROCEDURE leased_fence_bounded(IN in_resource VARCHAR(513) CHARACTER SET utf8mb4, IN in_token BIGINT, IN in_max_jump BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'leased 3'
BEGIN
    CALL leased_admit(in_resource, in_token, in_max_jump);
    -- The claim of this session for the guard of a table. It is not a proof: the
    -- guard compares it with the mark again.
    SET @leased_resource = CAST(in_resource AS BINARY), @leased_token = in_token;
END $$
-- leased_try is leased_fence_bounded with the mark as its result instead of an
-- error. A mark other than the token is a refusal.
DROP PROCEDURE IF EXISTS leased_try $$
CREATE PROCEDURE leased_try(IN in_resource VARCHAR(513) CHARACTER SET utf8mb4, IN in_token BIGINT, IN in_max_jump BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'leased 3'
BEGIN
    DECLARE found_mark BIGINT DEFAULT 0;
    CALL leased_raise(in_resource, in_token, in_max_jump, found_mark);
    IF found_mark = in_token THEN
        SET @leased_resource = CAST(in_resource AS BINARY), @leased_token = in_token;
    END IF;
    SELECT found_mark;
END $$
DROP PROCEDURE IF EXISTS leased_fence $$
CREATE PROCEDURE leased_fence(IN in_resource VARCHAR(513) CHARACTER SET utf8mb4, IN in_token BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'leased 3'
BEGIN
    CALL leased_fence_bounded(in_resource, in_token, 0);
END $$
-- The guard of a table calls leased_guard for each row, with the token of the row,
-- or else the token that this session was fenced with, or else none. A row without
-- a token is refused, unless the guard allows it for resources that were never
-- fenced.
DROP PROCEDURE IF EXISTS leased_guard $$
CREATE PROCEDURE leased_guard(IN in_resource VARBINARY(513), IN in_token BIGINT, IN in_allow_unfenced BOOLEAN)
    MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'leased 3'
BEGIN
    DECLARE claim BIGINT DEFAULT coalesce(in_token, IF(@leased_resource = in_resource, @leased_token, 0), 0);
    IF claim = 0 AND NOT in_allow_unfenced THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31002, MESSAGE_TEXT = 'leased: no fencing token: the table is guarded';
    END IF;
    CALL leased_admit(in_resource, claim, 0);
END $$
DELIMITER ;
