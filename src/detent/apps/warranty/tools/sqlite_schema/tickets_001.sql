-- Service tickets. The key makes a ticket one: a follow-up in the same thread finds it again.
CREATE TABLE tickets (
    number            INTEGER PRIMARY KEY,
    ticket_id         TEXT NOT NULL UNIQUE,
    idempotency_key   TEXT NOT NULL UNIQUE,
    serial_number     TEXT NOT NULL,
    customer_email    TEXT NOT NULL,
    issue_description TEXT NOT NULL,
    priority          TEXT NOT NULL,
    category          TEXT NOT NULL,
    warranty_status   TEXT,
    subject           TEXT NOT NULL,
    source_message_id TEXT,
    status            TEXT NOT NULL DEFAULT 'open',
    created_at        TEXT NOT NULL
);

-- The last number given out, so that none is given twice, whatever becomes of its ticket.
CREATE TABLE ticket_numbers (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    last INTEGER NOT NULL
);

INSERT INTO ticket_numbers (only, last) VALUES (1, 10000);
