"""The machine, the state document, and what each transition makes of it."""
