CREATE TABLE IF NOT EXISTS leased_marks (
    resource text COLLATE "C" PRIMARY KEY,
    mark     bigint NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE IF NOT EXISTS leased_resets (
    resource text COLLATE "C" PRIMARY KEY,
    expected bigint NOT NULL,
    mark     bigint NOT NULL
);
