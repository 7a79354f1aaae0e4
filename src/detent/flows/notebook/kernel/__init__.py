"""The kernel of a run: its session, and the effect that runs cells on it."""
