"""The finished notebook as files."""
