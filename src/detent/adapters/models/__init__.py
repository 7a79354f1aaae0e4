"""Executors on real models: in-process, over HTTP, through a provider library, or recorded."""
