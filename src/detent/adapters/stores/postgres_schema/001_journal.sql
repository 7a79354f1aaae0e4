-- Schema 1. One row per run, one row per journal entry, and what is derived from them in the same transaction.
-- Runs with the store's schema as search_path, inside the migration's transaction. Text that is looked up by prefix or
-- put in order compares byte by byte (COLLATE "C"), whatever the database's language is.

CREATE TABLE runs (
    number      bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- order of creation
    id          text COLLATE "C" NOT NULL UNIQUE,
    flow        text COLLATE "C" NOT NULL,
    machine     text             NOT NULL,
    parent      text COLLATE "C",
    created_at  double precision NOT NULL,
    seq         integer          NOT NULL,           -- last entry: half of the fence
    epoch       integer          NOT NULL,           -- take-overs: the other half
    owner       text COLLATE "C",                    -- worker that drives it
    asked       text,                                -- request left for that worker
    status      text COLLATE "C" NOT NULL,
    state       text             NOT NULL,
    updated_at  double precision NOT NULL,
    wake_at     double precision,
    steps       bigint           NOT NULL,
    tokens      bigint           NOT NULL,
    cost_usd    double precision NOT NULL,
    reason      text,
    error       text,
    waits       text,                                -- open holds, JSON
    version     integer          NOT NULL,
    fingerprint text             NOT NULL
) WITH (fillfactor = 70);                            -- room for the next version of a row on its own page
CREATE INDEX runs_by_flow   ON runs (flow, number);
CREATE INDEX runs_by_status ON runs (status, number);
CREATE INDEX runs_by_both   ON runs (flow, status, number);
CREATE INDEX runs_by_time   ON runs (created_at);
CREATE INDEX runs_by_parent ON runs (parent, number) WHERE parent IS NOT NULL;
CREATE INDEX runs_due       ON runs (wake_at, number) WHERE wake_at IS NOT NULL;
CREATE INDEX runs_owned     ON runs (owner) WHERE owner IS NOT NULL;

CREATE TABLE entries (                               -- the journal
    run   bigint           NOT NULL,
    seq   integer          NOT NULL,
    at    double precision NOT NULL,
    epoch integer          NOT NULL,
    kind  text             NOT NULL,
    body  text             NOT NULL,                 -- JSON, as text: jsonb would refuse \u0000 and reorder keys
    PRIMARY KEY (run, seq)
);

CREATE TABLE folds (                                 -- latest saved fold of long runs
    run  bigint PRIMARY KEY,
    body text NOT NULL
);

CREATE TABLE effects (                               -- the ledger, by what an effect is
    run   bigint           NOT NULL,
    key   text COLLATE "C" NOT NULL,
    tool  text             NOT NULL,
    state text             NOT NULL,
    seq   integer          NOT NULL,
    PRIMARY KEY (run, key)
);

CREATE TABLE tags (
    tag text COLLATE "C" NOT NULL,
    run bigint           NOT NULL,
    PRIMARY KEY (tag, run)
);
CREATE INDEX tags_by_run ON tags (run);

-- Moves added up per flow and day. Every process adds to rows of its own shard, so that none waits for another's
-- commit; readers add the shards up.
CREATE TABLE edges (
    flow     text COLLATE "C" NOT NULL,
    day      integer          NOT NULL,
    frm      text COLLATE "C" NOT NULL,
    "to"     text COLLATE "C" NOT NULL,
    shard    smallint         NOT NULL,
    count    bigint           NOT NULL,
    seconds  double precision NOT NULL,
    fastest  double precision NOT NULL,
    slowest  double precision NOT NULL,
    tokens   bigint           NOT NULL,
    cost_usd double precision NOT NULL,
    PRIMARY KEY (flow, day, frm, "to", shard)
) WITH (fillfactor = 50);

CREATE TABLE definitions (
    fingerprint text COLLATE "C" PRIMARY KEY,
    body        text NOT NULL
);

CREATE TABLE blobs (
    hash text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);
CREATE TABLE blob_refs (                             -- a blob goes when no run refers to it
    run  bigint           NOT NULL,
    hash text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, hash)
);
CREATE INDEX blob_refs_by_hash ON blob_refs (hash);

CREATE TABLE marks (
    key     text COLLATE "C" PRIMARY KEY,
    value   text    NOT NULL,
    version integer NOT NULL,
    setter  text    NOT NULL                         -- which call set this version, to recognise it after a lost answer
);

CREATE TABLE workers (
    id    text COLLATE "C" PRIMARY KEY,
    host  text             NOT NULL,
    pid   integer          NOT NULL,
    born  double precision NOT NULL,
    until double precision NOT NULL
);
