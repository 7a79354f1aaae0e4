"""Plugs for the engine's ports: databases, models, mail, kernels. None knows another."""
