"""The commands of notebooks."""
