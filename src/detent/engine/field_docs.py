"""What a class says about its fields in the texts beneath them, for whoever has to fill them in."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any


def described(schema: dict[str, Any], owner: Any) -> dict[str, Any]:
    """A class's schema with the words beneath its fields as descriptions, where there are none yet."""
    words = words_of(owner)
    for name, part in schema.get("properties", {}).items():
        if name in words and isinstance(part, dict):
            part.setdefault("description", words[name])
    return schema


def words_of(owner: Any) -> Mapping[str, str]:
    """Field names to the texts beneath them, inherited ones included; none where there is no source."""
    if not isinstance(owner, type):
        return {}
    words: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__ == "builtins":
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        if tree.body and isinstance(tree.body[0], ast.ClassDef):
            words.update(_beneath(tree.body[0]))
    return words


def _beneath(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield field.target.id, " ".join(text.value.value.split())
