"""Knowledge of light shows: the song in bars, plans, templates, validation, judging. No engine, no disk."""
