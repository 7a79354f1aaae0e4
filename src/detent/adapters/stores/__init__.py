"""Where journals live: in memory, in one SQLite file, in PostgreSQL. All pass `testing.store_suite`."""
