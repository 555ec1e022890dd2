-- The first shape of the registry. It has a schema of its own, so it can live in any database, beside a store or without one.
-- Times are milliseconds since 1970 UTC by this server's clock, but for those that processes tell about themselves.

-- The clock that judges sessions: the only place where the registry reads the time. Volatile on purpose: a statement that has
-- waited for a row looks again at what the time is then.
CREATE FUNCTION tocsin_lease.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- A session stands while its row is here and not expired. An expired row is deleted by whoever next wants what it held: until
-- then it is as good as gone, and no renewal brings it back.
CREATE TABLE tocsin_lease.sessions (
    session         text    NOT NULL PRIMARY KEY,
    node            text    NOT NULL,
    roles           text[]  NOT NULL,
    version         text    NOT NULL,
    address         text    NOT NULL,
    started_at      bigint  NOT NULL,
    clock_offset_ms bigint,
    opened_at       bigint  NOT NULL,
    expires_at      bigint  NOT NULL
);

-- One row, if somebody is the coordinator.
CREATE TABLE tocsin_lease.office (
    one     boolean NOT NULL PRIMARY KEY DEFAULT true CONSTRAINT one_office CHECK (one),
    session text    NOT NULL REFERENCES tocsin_lease.sessions ON DELETE CASCADE
);

-- One row for each partition in somebody's hands: that there are never two holders is the primary key.
CREATE TABLE tocsin_lease.holdings (
    partition integer NOT NULL PRIMARY KEY,
    session   text    NOT NULL REFERENCES tocsin_lease.sessions ON DELETE CASCADE,
    since     bigint  NOT NULL
);
CREATE INDEX holdings_by_session ON tocsin_lease.holdings (session);

-- The map: partitions[i] belongs to owners[i]; sessions[i] is called nodes[i].
CREATE TABLE tocsin_lease.assignment (
    one        boolean   NOT NULL PRIMARY KEY DEFAULT true CONSTRAINT one_assignment CHECK (one),
    version    bigint    NOT NULL,
    partitions integer[] NOT NULL,
    owners     text[]    NOT NULL,
    sessions   text[]    NOT NULL,
    nodes      text[]    NOT NULL,
    CONSTRAINT every_partition_has_an_owner CHECK (cardinality(partitions) = cardinality(owners)),
    CONSTRAINT every_session_has_a_name CHECK (cardinality(sessions) = cardinality(nodes))
);
INSERT INTO tocsin_lease.assignment (version, partitions, owners, sessions, nodes) VALUES (0, '{}', '{}', '{}', '{}');

CREATE TABLE tocsin_lease.moves (
    number       bigint  NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    map_version  bigint  NOT NULL,
    partition    integer NOT NULL,
    from_session text,
    from_node    text,
    to_session   text    NOT NULL,
    to_node      text    NOT NULL,
    at           bigint  NOT NULL,
    why          text    NOT NULL
);
