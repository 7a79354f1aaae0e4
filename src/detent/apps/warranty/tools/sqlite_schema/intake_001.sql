-- Every mail this mailbox has looked at: one row a mail, whatever became of it. No word of it is kept.
CREATE TABLE intake (
    id           TEXT PRIMARY KEY,            -- hash of its Message-ID; of its bytes when it has none
    mail_key     TEXT NOT NULL,               -- 12 hex digits: what logs and commands call it
    sha256       TEXT NOT NULL,               -- of its bytes; empty for one too large to load
    source       TEXT NOT NULL,               -- hash of the mailbox it lies in
    ref          TEXT NOT NULL,               -- its name there
    decision     TEXT NOT NULL,               -- run, ignored, held, unreadable
    reason       TEXT,
    address_hash TEXT NOT NULL,               -- of the address an answer goes to
    reply_key    TEXT NOT NULL,               -- what its answer is known by
    orchestrator TEXT NOT NULL,               -- step, legacy: how its latest run works
    runs         INTEGER NOT NULL DEFAULT 0,  -- begun so far; the latest is w-<mail_key>-<runs>
    whole        INTEGER NOT NULL DEFAULT 1,  -- the latest run begins at the first step
    over         INTEGER NOT NULL DEFAULT 0,  -- its end has been seen
    marked       INTEGER NOT NULL DEFAULT 0,  -- processed, and so marked in its mailbox
    gone         INTEGER NOT NULL DEFAULT 0,  -- a person took it out of the mailbox, or read it there
    copies       INTEGER NOT NULL DEFAULT 0,  -- times it came again
    seen_at      REAL NOT NULL,
    changed_at   REAL NOT NULL
) STRICT;

CREATE INDEX intake_by_ref ON intake (source, ref);
CREATE INDEX intake_by_key ON intake (mail_key);
CREATE INDEX intake_open ON intake (source) WHERE marked = 0;
CREATE INDEX intake_by_address ON intake (address_hash, seen_at);
