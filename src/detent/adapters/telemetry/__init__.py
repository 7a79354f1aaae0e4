"""Tells those who watch many programs at once what happened; optional, and silent about data."""
