CREATE TABLE IF NOT EXISTS leased_marks (
    resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 512 AND strpos(resource, E'\n') = 0),
    mark     bigint NOT NULL CHECK (mark BETWEEN 0 AND 9007199254740991)
) WITH (fillfactor = 70);

CREATE TABLE IF NOT EXISTS leased_resets (
    resource text COLLATE "C" PRIMARY KEY,
    expected bigint NOT NULL,
    mark     bigint NOT NULL
);
