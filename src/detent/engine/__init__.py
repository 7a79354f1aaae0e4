"""Makes it happen: reads where a run stands, has its step decide, performs, appends, and tells observers.

Belongs here: whatever waits, retries, locks or calls a port. Does not belong here: a database, an HTTP API, a
word only one kind of flow knows.
"""
