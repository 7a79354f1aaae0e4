"""The tools of the coding flow: what each takes, and what each does in a workspace."""
