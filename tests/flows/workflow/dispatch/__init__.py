"""Workflow files under mode-aware dispatch."""
