-- Schema 1. One row per run, one row per journal entry, and what is derived from them in the same transaction.

CREATE TABLE runs (
    number      INTEGER PRIMARY KEY,        -- order of creation
    id          TEXT    NOT NULL UNIQUE,
    flow        TEXT    NOT NULL,
    machine     TEXT    NOT NULL,
    parent      TEXT,
    created_at  REAL    NOT NULL,
    seq         INTEGER NOT NULL,           -- last entry: half of the fence
    epoch       INTEGER NOT NULL,           -- take-overs: the other half
    owner       TEXT,                       -- worker that drives it
    asked       TEXT,                       -- request left for that worker
    status      TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    updated_at  REAL    NOT NULL,
    wake_at     REAL,
    steps       INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    cost_usd    REAL    NOT NULL,
    reason      TEXT,
    error       TEXT,
    waits       TEXT,                       -- open holds, JSON
    version     INTEGER NOT NULL,
    fingerprint TEXT    NOT NULL
);
CREATE INDEX runs_by_flow   ON runs (flow, number);
CREATE INDEX runs_by_status ON runs (status, number);
CREATE INDEX runs_by_both   ON runs (flow, status, number);
CREATE INDEX runs_by_time   ON runs (created_at);
CREATE INDEX runs_by_parent ON runs (parent, number) WHERE parent IS NOT NULL;
CREATE INDEX runs_due       ON runs (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX runs_owned     ON runs (owner) WHERE owner IS NOT NULL;

-- The journal. The key packs run and entry number (number << 24 | seq): one B-tree, a run's entries side by side.
CREATE TABLE entries (
    key   INTEGER PRIMARY KEY,
    at    REAL    NOT NULL,
    epoch INTEGER NOT NULL,
    kind  TEXT    NOT NULL,
    body  TEXT    NOT NULL
);

CREATE TABLE folds (                        -- latest saved fold of long runs
    run  INTEGER PRIMARY KEY,
    body TEXT NOT NULL
);

CREATE TABLE effects (                      -- the ledger, by what an effect is
    run   INTEGER NOT NULL,
    key   TEXT    NOT NULL,
    tool  TEXT    NOT NULL,
    state TEXT    NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (run, key)
) WITHOUT ROWID;

CREATE TABLE tags (
    tag TEXT    NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (tag, run)
) WITHOUT ROWID;
CREATE INDEX tags_by_run ON tags (run);

CREATE TABLE edges (                        -- moves added up per flow and day
    flow     TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    frm      TEXT    NOT NULL,
    "to"     TEXT    NOT NULL,
    count    INTEGER NOT NULL,
    seconds  REAL    NOT NULL,
    fastest  REAL    NOT NULL,
    slowest  REAL    NOT NULL,
    tokens   INTEGER NOT NULL,
    cost_usd REAL    NOT NULL,
    PRIMARY KEY (flow, day, frm, "to")
) WITHOUT ROWID;

CREATE TABLE definitions (
    fingerprint TEXT PRIMARY KEY,
    body        TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE blobs (
    hash TEXT PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TABLE blob_refs (                    -- a blob goes when no run refers to it
    run  INTEGER NOT NULL,
    hash TEXT    NOT NULL,
    PRIMARY KEY (run, hash)
) WITHOUT ROWID;
CREATE INDEX blob_refs_by_hash ON blob_refs (hash);

CREATE TABLE marks (
    key     TEXT PRIMARY KEY,
    value   TEXT    NOT NULL,
    version INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE workers (
    id    TEXT PRIMARY KEY,
    host  TEXT    NOT NULL,
    pid   INTEGER NOT NULL,
    born  REAL    NOT NULL,
    until REAL    NOT NULL
) WITHOUT ROWID;
