"""What a behavior has produced, measured: artifacts, criteria, claims, variables."""
