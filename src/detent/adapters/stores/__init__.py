"""Where journals live: in memory, in one SQLite file, in PostgreSQL. All pass `detent.testing.store_suite`."""
