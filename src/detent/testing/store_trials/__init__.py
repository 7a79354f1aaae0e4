"""The parts of the suite every store must pass; `detent.testing.store_suite` puts them together."""
