"""The eval suite of the application: mails with the path, the calls and the answer expected of each."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from detent.evals.suite import EvalSuite

REGISTRY = "registry.yaml"
"""The devices of a suite, beside its cases."""


def shipped_cases() -> Path:
    """The folder of cases that comes with the application."""
    return Path(str(resources.files("detent.apps.warranty.evals") / "scenarios"))


def _subject(settings: Any, folder: Path) -> Any:
    from detent.apps.warranty.evals.subject import WarrantySubject

    return WarrantySubject.of(settings, folder)


suite = EvalSuite("warranty", folder=shipped_cases(), ignore=(REGISTRY,), subject=_subject)
