-- The first shape of a database of the store. Times are milliseconds since 1970 UTC; statuses, outcomes and kinds are the numbers
-- of store/codes.py. Job and schedule IDs, tenants and queues are ordered as bytes (COLLATE "C"), which is the order of their
-- code points: so a key read here can be compared anywhere.

CREATE TABLE identity (
    one             boolean NOT NULL PRIMARY KEY CONSTRAINT one_identity CHECK (one),
    installation    text    NOT NULL,
    partitions      integer NOT NULL CONSTRAINT partitions_in_range CHECK (partitions BETWEEN 1 AND 4096),
    shard           integer NOT NULL,
    first_partition integer NOT NULL,
    last_partition  integer NOT NULL,
    least_code      integer NOT NULL DEFAULT 1,
    made_at         bigint  NOT NULL,
    pinged_at       bigint  NOT NULL,
    CONSTRAINT shard_has_partitions CHECK (first_partition BETWEEN 0 AND last_partition AND last_partition < partitions)
) WITH (fillfactor = 10);

-- Which database holds which partitions; in the home database (shard 0) only. The greatest version rules. An empty address is the
-- home database itself.

CREATE TABLE shards (
    version         integer NOT NULL,
    shard           integer NOT NULL,
    first_partition integer NOT NULL,
    last_partition  integer NOT NULL,
    address         text    NOT NULL,
    PRIMARY KEY (version, shard)
);

-- The queues that ever had a job here.

CREATE TABLE queue_names (
    tenant text COLLATE "C" NOT NULL,
    queue  text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, queue)
);

-- Unfinished and dead jobs. Fire, claim, heartbeat and completion rewrite a row, and none of them touches an indexed column: so
-- the new row stays on its page and no index is written (HOT), which the free part of each page is for. `finished_at` is when
-- a dead one died and is NULL in all others. No index has the status.

CREATE TABLE jobs (
    id          text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    lane        smallint NOT NULL,
    handler     text     NOT NULL,
    hold        text     NOT NULL,
    suspect     boolean  NOT NULL,
    priority    integer  NOT NULL,
    status      smallint NOT NULL,
    version     bigint   NOT NULL DEFAULT 1,
    attempt     integer  NOT NULL DEFAULT 0,
    tries       integer  NOT NULL DEFAULT 0,
    due_at      bigint   NOT NULL,
    fire_at     bigint   NOT NULL,
    timeout_ms  bigint   NOT NULL,
    expires_at  bigint,
    queued_at   bigint,
    started_at  bigint,
    claimed_at  bigint,
    lease_until bigint,
    lease_ms    bigint,
    beaten_at   bigint,
    worker      text,
    losses      integer  NOT NULL DEFAULT 0,
    releases    integer  NOT NULL DEFAULT 0,
    finished_at bigint,
    outcome     smallint,
    last_error  text,
    progress    bytea,
    schedule    bigint,
    doc         text     NOT NULL,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT status_is_live_or_dead CHECK (status BETWEEN 1 AND 5 OR status = 7),
    CONSTRAINT version_from_one CHECK (version >= 1),
    CONSTRAINT tries_within_attempts CHECK (tries BETWEEN 0 AND attempt),
    CONSTRAINT held_under_a_lease CHECK (status NOT IN (3, 4) OR
        (attempt >= 1 AND claimed_at IS NOT NULL AND lease_until IS NOT NULL AND lease_ms IS NOT NULL)),
    CONSTRAINT dead_at_some_time CHECK ((status = 7) = (finished_at IS NOT NULL))
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX jobs_of_queues ON jobs (tenant, queue, id);
CREATE INDEX dead_jobs ON jobs (tenant, queue, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_of_schedules ON jobs (schedule) WHERE schedule IS NOT NULL AND finished_at IS NULL;

-- "Look at this job, at this version, at this time." Kinds: 0 fire, 1 watch.

CREATE TABLE timers (
    partition integer  NOT NULL,
    kind      smallint NOT NULL CONSTRAINT kind_is_known CHECK (kind IN (0, 1)),
    bucket    bigint   NOT NULL,
    lane      smallint NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    time      bigint   NOT NULL,
    job       text COLLATE "C" NOT NULL,
    version   bigint   NOT NULL,
    CONSTRAINT timers_pkey PRIMARY KEY (partition, kind, bucket, lane, tenant, time, job, version)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 200000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE floors (
    partition integer NOT NULL PRIMARY KEY,
    bucket    bigint  NOT NULL
) WITH (fillfactor = 50);

-- Jobs whose line was full.

CREATE TABLE parked (
    partition integer  NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    lane      smallint NOT NULL,
    handler   text COLLATE "C" NOT NULL,
    hold      text COLLATE "C" NOT NULL,
    suspect   boolean  NOT NULL,
    score     bigint   NOT NULL,
    job       text COLLATE "C" NOT NULL,
    version   bigint   NOT NULL,
    due_at    bigint   NOT NULL,
    priority  integer  NOT NULL,
    CONSTRAINT parked_pkey PRIMARY KEY (partition, tenant, queue, lane, handler, hold, suspect, score, job, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX parked_by_score ON parked (partition, score, job, version);

-- Finished jobs, one partition for each day of finish (days.py makes them ahead and drops them whole); a success that had no
-- failure before it stands for the record of its attempt. A job is here or in `jobs`, never in both: the move is one statement.

CREATE TABLE finished (
    id          text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    lane        smallint NOT NULL,
    handler     text     NOT NULL,
    hold        text     NOT NULL,
    suspect     boolean  NOT NULL,
    priority    integer  NOT NULL,
    status      smallint NOT NULL CONSTRAINT status_is_terminal CHECK (status BETWEEN 6 AND 9),
    version     bigint   NOT NULL,
    attempt     integer  NOT NULL,
    tries       integer  NOT NULL,
    due_at      bigint   NOT NULL,
    fire_at     bigint   NOT NULL,
    expires_at  bigint,
    queued_at   bigint,
    started_at  bigint,
    claimed_at  bigint,
    worker      text,
    losses      integer  NOT NULL,
    releases    integer  NOT NULL,
    finished_at bigint   NOT NULL,
    outcome     smallint,
    last_error  text,
    progress    bytea,
    result      bytea,
    status_code integer,
    response    bytea,
    schedule    bigint,
    doc         text     NOT NULL,
    CONSTRAINT finished_pkey PRIMARY KEY (id, finished_at)
) PARTITION BY RANGE (finished_at);

CREATE INDEX finished_of_queues ON finished (tenant, queue, id);

-- Ended attempts, one partition for each day of their end.

CREATE TABLE attempts (
    job         text COLLATE "C" NOT NULL,
    attempt     integer  NOT NULL,
    worker      text,
    claimed_at  bigint   NOT NULL,
    finished_at bigint   NOT NULL,
    outcome     smallint NOT NULL,
    error       text,
    due_at      bigint   NOT NULL,
    status_code integer,
    response    bytea,
    CONSTRAINT attempts_pkey PRIMARY KEY (job, attempt, finished_at)
) PARTITION BY RANGE (finished_at);

-- Idempotency keys, by tenant and a hash of the key's text; a key lives in the partition of its job.

CREATE TABLE keys (
    tenant     text COLLATE "C" NOT NULL,
    hash       bytea  NOT NULL,
    body_hash  bytea  NOT NULL,
    job        text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT keys_pkey PRIMARY KEY (tenant, hash)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000);

CREATE INDEX keys_by_expiry ON keys (expires_at, tenant, hash);

-- Schedules, what was asked of them, their skips, and every job that they made, unfinished or finished: the list of a schedule's
-- jobs and the proof that one exists. A schedule's number is a function of its ID (store/numbers.py). `spec` and `state` are texts
-- of others' making that may hold any character, also the one that no text of PostgreSQL may (NUL): so they are kept as UTF-8.

CREATE TABLE schedules (
    number    bigint   NOT NULL PRIMARY KEY,
    id        text COLLATE "C" NOT NULL,
    partition integer  NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    revision  bigint   NOT NULL,
    serial    bigint   NOT NULL CONSTRAINT serial_from_one CHECK (serial >= 1),
    status    smallint NOT NULL CONSTRAINT schedule_status_is_known CHECK (status BETWEEN 1 AND 4),
    look_at   bigint,
    spec_crc  bigint   NOT NULL,
    state     bytea    NOT NULL,
    CONSTRAINT schedules_names UNIQUE (tenant, name)
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000
);

CREATE INDEX schedules_to_look_at ON schedules (partition, look_at) WHERE look_at IS NOT NULL;
CREATE INDEX schedules_of_tenant ON schedules (tenant, status, id);

CREATE TABLE specs (
    schedule bigint NOT NULL PRIMARY KEY,
    spec     bytea  NOT NULL
);

CREATE TABLE skips (
    schedule    bigint NOT NULL,
    first       bigint NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    last        bigint NOT NULL,
    count       bigint NOT NULL,
    recorded_at bigint NOT NULL,
    detail      text,
    PRIMARY KEY (schedule, first, reason)
);

CREATE TABLE occurrences (
    schedule bigint NOT NULL,
    job      text COLLATE "C" NOT NULL,
    PRIMARY KEY (schedule, job)
);

-- Settings, in the home database only.

CREATE TABLE tenants (
    name       text COLLATE "C" NOT NULL PRIMARY KEY,
    weight     double precision NOT NULL CONSTRAINT weight_is_positive CHECK (weight > 0),
    quotas     text   NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE tokens (
    token_id      text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    name          text   NOT NULL,
    secret_sha256 bytea  NOT NULL CONSTRAINT hash_is_whole CHECK (length(secret_sha256) = 32),
    scopes        text   NOT NULL,
    created_at    bigint NOT NULL,
    expires_at    bigint
);

CREATE INDEX tokens_of_tenant ON tokens (tenant, token_id);

CREATE TABLE signing_keys (
    key_id     text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    secret     text   NOT NULL,
    created_at bigint NOT NULL
);

CREATE INDEX signing_keys_of_tenant ON signing_keys (tenant, created_at, key_id);

CREATE TABLE queues (
    tenant            text COLLATE "C" NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    paused            boolean NOT NULL,
    pause_note        text,
    pause_until       bigint,
    lease_ms          bigint,
    max_attempts      bigint,
    initial_backoff_s double precision,
    max_backoff_s     double precision,
    created_at        bigint NOT NULL,
    PRIMARY KEY (tenant, queue)
);

CREATE TABLE secrets (
    name  text COLLATE "C" NOT NULL PRIMARY KEY,
    value bytea NOT NULL
);

-- Large texts are compressed by lz4 where the server has it, which costs a fraction of the built-in method's time.

DO $$
BEGIN
    ALTER TABLE jobs ALTER COLUMN doc SET COMPRESSION lz4;
    ALTER TABLE finished ALTER COLUMN doc SET COMPRESSION lz4;
    ALTER TABLE specs ALTER COLUMN spec SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;
