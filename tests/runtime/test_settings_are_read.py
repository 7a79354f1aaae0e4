"""A setting that is accepted and read by nobody is a promise that is not kept."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.apps.warranty.own_heading import PARTS
from detent.apps.warranty.settings import HEADINGS
from detent.authoring.heading import heading_keys
from detent.flows.workflow.settings import StageSettings, WorkflowSettings
from detent.runtime.plugs import plugs
from detent.runtime.settings import COMMON, Keys, Value

SOURCE = Path(detent.__file__).parent
DECLARATIONS = {
    "runtime/settings.py": ("COMMON",),
    "flows/workflow/settings.py": ("workflow", "validation", "notify"),
}
"""Assignments that declare keys; naming a key there is not reading it."""
ROOMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(COMMON, ("runtime", "cli", "adapters", "dispatch", "web")),
    **dict.fromkeys(("workflow", "validation", "notify"), ("flows/workflow", "runtime")),
    **dict.fromkeys((*PARTS, "warranty"), ("apps/warranty", "adapters/mail", "adapters/crm")),
    "mail": ("apps/warranty", "flows/playbook", "adapters/mail"),
    "choreography": ("apps/choreography",),
    "coding": ("flows/coding",),
    "notebook": ("flows/notebook",),
    "eval": ("apps/warranty", "cli", "evals", "runtime"),
}
"""Where the readers of a heading are, from the folder of the package."""
HANDED_ON = {
    ("prices", "*"): "adapters/models",
    ("tools", "crm"): "adapters/crm",
    ("choreography",): "apps/choreography",
    ("coding",): "flows/coding",
    ("notebook",): "flows/notebook",
}
"""Parts of the settings that are handed on as a whole, and where they are read."""


def keys_below(keys: Keys, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The paths of every key that is declared by its name."""
    inner = keys.keys if isinstance(keys, Value) else keys
    for key, below in (inner or {}).items():
        if key != "*":
            yield (*path, key)
        yield from keys_below(below, (*path, key))


def declared() -> list[tuple[str, ...]]:
    """Every key that settings may have, by the path to it."""
    headings: dict[str, Any] = dict(COMMON)
    for plug in plugs():
        headings |= {name: keys for name, keys in plug.headings().items() if not isinstance(keys, str)}
    headings |= {name: heading_keys(model) for name, model in HEADINGS.items()}
    return [path for name, keys in headings.items() for path in [(name,), *keys_below(keys, (name,))]]


@cache
def names_read(file: Path) -> frozenset[str]:
    """Attributes that a module reads and texts it holds, without docstrings and declarations of keys."""
    place = file.relative_to(SOURCE).as_posix()
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(file.read_bytes())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
        elif isinstance(node, ast.AnnAssign | ast.Assign) and _declares(node, DECLARATIONS.get(place, ())):
            continue
        waiting += ast.iter_child_nodes(node)
    return frozenset(names)


def _declares(node: ast.AnnAssign | ast.Assign, names: Iterable[str]) -> bool:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    return any(isinstance(target, ast.Name) and target.id in names for target in targets)


@cache
def modules_in(room: str) -> list[Path]:
    """The modules of a room."""
    return sorted((SOURCE / room).rglob("*.py"))


def readers(path: tuple[str, ...]) -> list[Path]:
    """The modules that read a key: its name, and that of the key above it or of the model it is handed to."""
    name = "from_" if path == ("mail", "from") else path[-1]
    above = next((key for key in reversed(path[:-1]) if key != "*"), None)
    handed_on = next(
        (place for part, place in HANDED_ON.items() if path[: len(part)] == part and path != part), ""
    )
    rooms = (handed_on,) if handed_on else ROOMS[path[0]]
    return [
        file
        for room in rooms
        for file in modules_in(room)
        if name in names_read(file) and (handed_on or above is None or above in names_read(file))
    ]


def test_every_setting_has_a_reader():
    paths = declared()
    assert ("orchestration", "retry", "function_turns") in paths
    assert [".".join(path) for path in paths if not readers(path)] == []


def test_a_setting_without_a_reader_is_noticed():
    assert readers(("orchestration", "retry", "function_turn")) == []
    assert readers(("logging", "polling_interval_seconds")) == []


@pytest.mark.parametrize("model", [WorkflowSettings, StageSettings])
def test_what_is_read_of_workflow_settings_is_used(model):
    files = (file for file in (SOURCE / "flows/workflow").rglob("*.py") if file.name != "settings.py")
    used = {name for file in files for name in names_read(file)}
    assert [field.name for field in fields(model) if field.name not in used] == []
