CREATE TABLE IF NOT EXISTS leased_marks (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    mark     BIGINT NOT NULL,
    CONSTRAINT leased_resource_length CHECK (length(resource) >= 1),
    CONSTRAINT leased_mark_range CHECK (mark BETWEEN 0 AND 9007199254740991)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS leased_resets (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    expected BIGINT NOT NULL,
    mark     BIGINT NOT NULL
) ENGINE = InnoDB;
