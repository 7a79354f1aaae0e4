"""The older way with a mail: detect its scenario, then handle all of it in one go."""
