"""The commands of the choreographer."""
