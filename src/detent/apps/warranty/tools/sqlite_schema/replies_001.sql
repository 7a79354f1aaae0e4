-- Every mail this mailbox has sent or begun to send: one answer, and at most one redirect, per incoming mail.
CREATE TABLE replies (
    key TEXT PRIMARY KEY,           -- hash of the incoming mail and the kind
    kind TEXT NOT NULL,             -- answer, redirect
    address_hash TEXT NOT NULL,     -- of the address it goes to: enough to count, not to read
    message_id TEXT NOT NULL,
    state TEXT NOT NULL,            -- ready (nothing can have left), begun, sent
    holder TEXT NOT NULL,           -- the effect of the run that began it last
    at REAL NOT NULL
) STRICT;

CREATE INDEX replies_by_address ON replies (address_hash, at);
