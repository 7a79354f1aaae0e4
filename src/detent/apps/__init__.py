"""Applications shipped with Detent, each on a kind of workflow."""
