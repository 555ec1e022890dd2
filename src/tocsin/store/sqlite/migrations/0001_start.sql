-- The first shape of a store file. Times are milliseconds since 1970 UTC; statuses and outcomes are the numbers of codes.py.

CREATE TABLE identity (
    only         INTEGER NOT NULL PRIMARY KEY CONSTRAINT one_identity CHECK (only = 1),
    installation TEXT    NOT NULL,
    partitions   INTEGER NOT NULL CONSTRAINT partitions_in_range CHECK (partitions BETWEEN 1 AND 4096),
    made_at      INTEGER NOT NULL,
    pinged_at    INTEGER NOT NULL
) STRICT;

-- Names that many rows share, as small numbers.

CREATE TABLE tenant_ids (
    tenant_id INTEGER NOT NULL PRIMARY KEY,
    tenant    TEXT    NOT NULL UNIQUE
) STRICT;

CREATE TABLE queue_ids (
    queue_id  INTEGER NOT NULL PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    queue     TEXT    NOT NULL,
    UNIQUE (tenant_id, queue)
) STRICT;

CREATE TABLE lines (
    line_id  INTEGER NOT NULL PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    lane     INTEGER NOT NULL,
    handler  TEXT    NOT NULL,
    hold     TEXT    NOT NULL,
    suspect  INTEGER NOT NULL,
    UNIQUE (queue_id, lane, handler, hold, suspect)
) STRICT;

-- The definition of every job, unfinished or finished: written once, never moved. Its unique index is the list of a queue's
-- jobs, newest first.

CREATE TABLE bodies (
    queue_id INTEGER NOT NULL,
    id       TEXT    NOT NULL,
    doc      TEXT    NOT NULL,
    UNIQUE (queue_id, id)
) STRICT;

-- Unfinished and dead jobs. The row is small because fire, claim and completion each rewrite it.

CREATE TABLE jobs (
    id          TEXT    NOT NULL PRIMARY KEY,
    queue_id    INTEGER NOT NULL,
    line_id     INTEGER NOT NULL,
    priority    INTEGER NOT NULL,
    status      INTEGER NOT NULL,
    version     INTEGER NOT NULL DEFAULT 1,
    attempt     INTEGER NOT NULL DEFAULT 0,
    tries       INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER NOT NULL,
    fire_at     INTEGER NOT NULL,
    timeout_ms  INTEGER NOT NULL,
    expires_at  INTEGER,
    queued_at   INTEGER,
    started_at  INTEGER,
    claimed_at  INTEGER,
    lease_until INTEGER,
    lease_ms    INTEGER,
    beaten_at   INTEGER,
    worker      TEXT,
    losses      INTEGER NOT NULL DEFAULT 0,
    releases    INTEGER NOT NULL DEFAULT 0,
    finished_at INTEGER,
    outcome     INTEGER,
    last_error  TEXT,
    progress    TEXT,
    CONSTRAINT status_is_live_or_dead CHECK (status BETWEEN 1 AND 5 OR status = 7),
    CONSTRAINT version_from_one CHECK (version >= 1),
    CONSTRAINT tries_within_attempts CHECK (tries BETWEEN 0 AND attempt),
    CONSTRAINT held_under_a_lease CHECK (status NOT IN (3, 4) OR
        (attempt >= 1 AND claimed_at IS NOT NULL AND lease_until IS NOT NULL AND lease_ms IS NOT NULL)),
    CONSTRAINT dead_at_some_time CHECK (status <> 7 OR finished_at IS NOT NULL)
) WITHOUT ROWID, STRICT;

CREATE INDEX dead_jobs ON jobs (queue_id, finished_at, id) WHERE status = 7;

-- "Look at this job, at this version, at this time." Kinds: 0 fire, 1 watch.

CREATE TABLE timers (
    partition INTEGER NOT NULL,
    kind      INTEGER NOT NULL CONSTRAINT kind_is_known CHECK (kind IN (0, 1)),
    bucket    INTEGER NOT NULL,
    lane      INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    time      INTEGER NOT NULL,
    job       TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    PRIMARY KEY (partition, kind, bucket, lane, tenant_id, time, job, version)
) WITHOUT ROWID, STRICT;

-- Deleting many timers by their whole keys in one statement: rows inserted here are deleted there, each found by the primary
-- key. (SQLite 3.40 looks up `(a, b, …) IN (…)` by the first columns only, or not at all.)

CREATE VIEW timers_to_delete AS
    SELECT partition, kind, bucket, lane, tenant_id, time, job, version FROM timers;

CREATE TRIGGER delete_timers INSTEAD OF INSERT ON timers_to_delete BEGIN
    DELETE FROM timers
    WHERE partition = NEW.partition AND kind = NEW.kind AND bucket = NEW.bucket AND lane = NEW.lane
        AND tenant_id = NEW.tenant_id AND time = NEW.time AND job = NEW.job AND version = NEW.version;
END;

CREATE TABLE floors (
    partition INTEGER NOT NULL PRIMARY KEY,
    bucket    INTEGER NOT NULL
) STRICT;

-- Jobs whose line was full.

CREATE TABLE parked (
    partition INTEGER NOT NULL,
    line_id   INTEGER NOT NULL,
    score     INTEGER NOT NULL,
    job       TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    due_at    INTEGER NOT NULL,
    priority  INTEGER NOT NULL,
    PRIMARY KEY (partition, line_id, score, job, version)
) WITHOUT ROWID, STRICT;

CREATE VIEW parked_to_delete AS
    SELECT partition, line_id, score, job, version FROM parked;

CREATE TRIGGER delete_parked INSTEAD OF INSERT ON parked_to_delete BEGIN
    DELETE FROM parked
    WHERE partition = NEW.partition AND line_id = NEW.line_id AND score = NEW.score
        AND job = NEW.job AND version = NEW.version;
END;

-- Finished jobs; a success that had no failure before it stands for the record of its attempt.

CREATE TABLE finished (
    id          TEXT    NOT NULL PRIMARY KEY,
    queue_id    INTEGER NOT NULL,
    line_id     INTEGER NOT NULL,
    priority    INTEGER NOT NULL,
    status      INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    tries       INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    fire_at     INTEGER NOT NULL,
    expires_at  INTEGER,
    queued_at   INTEGER,
    started_at  INTEGER,
    claimed_at  INTEGER,
    worker      TEXT,
    losses      INTEGER NOT NULL,
    releases    INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    outcome     INTEGER,
    last_error  TEXT,
    progress    TEXT,
    result      TEXT,
    status_code INTEGER,
    response    TEXT,
    CONSTRAINT status_is_terminal CHECK (status BETWEEN 6 AND 9)
) WITHOUT ROWID, STRICT;

CREATE TABLE attempts (
    job         TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    worker      TEXT,
    claimed_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    outcome     INTEGER NOT NULL,
    error       TEXT,
    due_at      INTEGER NOT NULL,
    status_code INTEGER,
    response    TEXT,
    PRIMARY KEY (job, attempt)
) WITHOUT ROWID, STRICT;

-- Idempotency keys, by tenant and a hash of the key's text. Rows are appended, so they expire in the order of their numbers,
-- and only the small unique index is written at random places.

CREATE TABLE keys (
    number     INTEGER NOT NULL PRIMARY KEY,
    tenant_id  INTEGER NOT NULL,
    hash       BLOB    NOT NULL,
    body_hash  BLOB    NOT NULL,
    job        TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    UNIQUE (tenant_id, hash)
) STRICT;

-- Settings.

CREATE TABLE tenants (
    name       TEXT    NOT NULL PRIMARY KEY,
    weight     REAL    NOT NULL CONSTRAINT weight_is_positive CHECK (weight > 0),
    quotas     TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    token_id      TEXT    NOT NULL PRIMARY KEY,
    tenant        TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    secret_sha256 BLOB    NOT NULL CONSTRAINT hash_is_whole CHECK (length(secret_sha256) = 32),
    scopes        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER
) STRICT;

CREATE INDEX tokens_of_tenant ON tokens (tenant, token_id);

CREATE TABLE signing_keys (
    key_id     TEXT    NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    secret     TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX signing_keys_of_tenant ON signing_keys (tenant, created_at, key_id);

CREATE TABLE queues (
    tenant            TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    paused            INTEGER NOT NULL,
    pause_note        TEXT,
    pause_until       INTEGER,
    lease_ms          INTEGER,
    max_attempts      INTEGER,
    initial_backoff_s REAL,
    max_backoff_s     REAL,
    created_at        INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue)
) WITHOUT ROWID, STRICT;

CREATE TABLE secrets (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;
