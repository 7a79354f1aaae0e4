"""The eval suite of the application: mails with the path, the calls and the answer expected of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detent.apps.warranty.evals.cases import REGISTRY, shipped_cases
from detent.evals.suite import EvalSuite


def _subject(settings: Any, folder: Path) -> Any:
    from detent.apps.warranty.evals.subject import WarrantySubject

    return WarrantySubject.of(settings, folder)


suite = EvalSuite("warranty", folder=shipped_cases(), ignore=(REGISTRY,), subject=_subject)
