"""Judges runs: compares what happened with the expectations of cases. Knows no kind of flow."""
