"""The SQL of the SQLite store, by name."""

from __future__ import annotations

from detent.adapters.stores import rows as shared

SEQ_BITS = 24
LONGEST_RUN = 1 << SEQ_BITS

SHORT_BLOB = "SELECT body FROM blobs WHERE hash = ? AND length(body) <= 65536"
"""A value short enough to be read while others wait."""

INSERT_RUN = f"""
INSERT INTO runs (id, flow, machine, parent, created_at, seq, epoch, owner, {", ".join(shared.STATE_COLUMNS)})
VALUES (?, ?, ?, ?, ?, ?, 1, ?{", ?" * len(shared.STATE_COLUMNS)})
"""
INSERT_ENTRY = "INSERT INTO entries (key, at, epoch, kind, body) VALUES (?, ?, ?, ?, ?)"
# The fence: nothing is changed unless epoch and sequence are what the driver believes them to be.
ADVANCE = f"""
UPDATE runs SET seq = ?, {", ".join(f"{column} = ?" for column in shared.STATE_COLUMNS)}
WHERE number = ? AND epoch = ? AND seq = ?
"""
# Runs that have not ended, and all below them, keep what they refer to.
UNREFER_OLD = """
WITH RECURSIVE needed (id) AS (
    SELECT id FROM runs WHERE status IN ('running', 'waiting')
    UNION SELECT below.id FROM runs below JOIN needed ON below.parent = needed.id
)
DELETE FROM blob_refs WHERE run IN (SELECT r.number FROM runs r WHERE r.updated_at < ?
    AND r.id NOT IN (SELECT id FROM needed))
"""
ADVANCE_AND_PARK = ADVANCE.replace("SET seq = ?", "SET owner = NULL, asked = NULL, seq = ?")
UPSERT_EDGE = """
INSERT INTO edges (flow, day, frm, "to", count, seconds, fastest, slowest, tokens, cost_usd)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, seconds = seconds + excluded.seconds,
    fastest = min(fastest, excluded.fastest), slowest = max(slowest, excluded.slowest),
    tokens = tokens + excluded.tokens, cost_usd = cost_usd + excluded.cost_usd
"""
EDGES = """
SELECT flow, day, frm, "to", count, seconds, fastest, slowest, tokens, cost_usd
FROM edges WHERE flow = ? AND day >= ? ORDER BY day, frm, "to"
"""
UPSERT_EFFECT = """
INSERT INTO effects (run, key, tool, state, seq) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET tool = excluded.tool, state = excluded.state, seq = excluded.seq
"""
HEARD = "SELECT until FROM workers WHERE id = ?"
FREE = """
flow IN (SELECT value FROM json_each(:flows)) AND id NOT IN (SELECT value FROM json_each(:skip))
    AND (:only IS NULL OR id IN (SELECT value FROM json_each(:only)))
    AND (owner IS NULL OR owner NOT IN (SELECT value FROM json_each(:alive)))
    AND (parent IS NULL OR EXISTS (SELECT 1 FROM runs above WHERE above.id = runs.parent))
"""
FREE_AND_DUE = f"""
SELECT number, id, flow, owner, epoch, seq FROM runs
WHERE wake_at <= :now AND status = 'waiting' AND {FREE} ORDER BY wake_at, number LIMIT :limit
"""
FREE_AND_LOOSE = f"""
SELECT number, id, flow, owner, epoch, seq FROM runs
WHERE status = 'running' AND {FREE} ORDER BY number LIMIT :limit
"""
TAKE = "UPDATE runs SET epoch = ?, owner = ? WHERE number = ?"
# Leases from before the machine was started, or in the wall time of older versions, lie far ahead.
FORGET = """
DELETE FROM workers WHERE id <> ? AND until NOT BETWEEN ? AND ?
    AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.owner = workers.id)
"""
RUN = f"SELECT {', '.join(shared.RUN_COLUMNS)} FROM runs"
