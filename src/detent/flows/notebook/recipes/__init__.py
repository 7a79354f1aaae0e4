"""The code that the deterministic generator writes, step by step."""
