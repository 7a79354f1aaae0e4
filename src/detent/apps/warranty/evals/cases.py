"""The cases that come with the application, and the devices they are about."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

REGISTRY = "registry.yaml"
"""The devices of a suite, beside its cases."""


def shipped_cases() -> Path:
    """The folder of cases that comes with the application."""
    return Path(str(resources.files("detent.apps.warranty.evals") / "scenarios"))
