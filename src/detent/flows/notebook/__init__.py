"""Notebooks that build themselves: stages, steps and behaviors on a real Jupyter kernel."""
