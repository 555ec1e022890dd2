-- Schedules, the skips of their occurrences, and the jobs that they made.
--
-- A schedule's number is a function of its ID (occurrences.py) and begins with its slice: what one partition fires at one
-- instant then lies side by side in all of these tables, and a batch touches few pages of each.

CREATE TABLE schedules (
    number    INTEGER NOT NULL PRIMARY KEY,
    id        TEXT    NOT NULL,
    partition INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    name      TEXT    NOT NULL,
    revision  INTEGER NOT NULL,
    serial    INTEGER NOT NULL,
    status    INTEGER NOT NULL,
    look_at   INTEGER,
    spec_id   INTEGER NOT NULL,
    spec_crc  INTEGER NOT NULL,
    state     TEXT    NOT NULL,
    UNIQUE (tenant_id, name),
    CONSTRAINT serial_from_one CHECK (serial >= 1),
    CONSTRAINT schedule_status_is_known CHECK (status BETWEEN 1 AND 4)
) STRICT;

CREATE INDEX schedules_to_look_at ON schedules (partition, look_at) WHERE look_at IS NOT NULL;

-- Lists and counts. A schedule's ordinary step changes none of these columns.

CREATE INDEX schedules_of_tenant ON schedules (tenant_id, status, id);

-- What was asked for, apart: an ordinary step rewrites the row above and leaves this alone. In the order of creation, so that
-- many new ones are appended.

CREATE TABLE specs (
    spec_id INTEGER NOT NULL PRIMARY KEY,
    spec    TEXT    NOT NULL
) STRICT;

CREATE TABLE skips (
    schedule    INTEGER NOT NULL,
    first       INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    last        INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    detail      TEXT,
    PRIMARY KEY (schedule, first, reason)
) WITHOUT ROWID, STRICT;

-- Every job of a schedule, unfinished or finished: the list of its jobs, newest first, and the proof that one exists.

CREATE TABLE occurrences (
    schedule INTEGER NOT NULL,
    job      TEXT    NOT NULL,
    PRIMARY KEY (schedule, job)
) WITHOUT ROWID, STRICT;

-- Deleting many by their whole keys in one statement, as with timers_to_delete.

CREATE VIEW occurrences_to_delete AS
    SELECT schedule, job FROM occurrences;

CREATE TRIGGER delete_occurrences INSTEAD OF INSERT ON occurrences_to_delete BEGIN
    DELETE FROM occurrences WHERE schedule = NEW.schedule AND job = NEW.job;
END;

-- Whose a job is, while it is neither finished nor dead: so what is going on is found without a look at all dead letters.

ALTER TABLE jobs ADD COLUMN schedule INTEGER;

CREATE INDEX jobs_of_schedules ON jobs (schedule) WHERE schedule IS NOT NULL;
