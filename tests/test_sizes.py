"""Sizes that may only shrink: lower a figure when you can, do not raise one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

import detent
from detent.engine.step import Step

SOURCE = Path(detent.__file__).parent


def longest_module() -> int:
    return max(len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py"))


MOST: dict[str, tuple[Callable[[], int], int]] = {
    "lines of the longest module": (longest_module, 737),
    "fields of Step": (lambda: len(fields(Step)), 38),
    "names at the front door": (lambda: len(detent.__all__), 65),
}


@pytest.mark.parametrize("what", MOST)
def test_no_size_grows(what):
    measure, most = MOST[what]
    assert measure() <= most
