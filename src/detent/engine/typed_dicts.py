"""TypedDicts of `typing`, made readable for pydantic.

Before Python 3.12 they lack information pydantic needs. They, and the dataclasses that contain them, are
replaced by equivalents that produce the same values; on newer versions nothing is replaced.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
import types
import typing
from typing import Any


def readable(hint: Any) -> Any:
    """A class or annotation, with every part that pydantic cannot read replaced."""
    if sys.version_info >= (3, 12) or not _holds_typed_dicts(hint):
        return hint
    return _Readable().of(hint)


def _holds_typed_dicts(root: Any) -> bool:
    seen: set[type] = set()
    todo = [root]
    while todo:
        hint = todo.pop()
        if typing.is_typeddict(hint) and type(hint).__module__ == "typing":
            return True
        todo.extend(typing.get_args(hint))
        if isinstance(hint, type) and hint not in seen and _has_fields(hint):
            seen.add(hint)
            todo.extend(_hints(hint).values())
    return False


def _hints(owner: type) -> dict[str, Any]:
    """The annotations of a class; empty if a name cannot be resolved, which pydantic then reports."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except Exception:
        return {}


def _has_fields(hint: Any) -> bool:
    from typing_extensions import is_typeddict

    return is_typeddict(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint))


class _Readable:
    """Replacements made for one type; they may refer to each other, and to themselves."""

    def __init__(self) -> None:
        self._made: dict[type, Any] = {}

    def of(self, hint: Any) -> Any:
        """`hint`, with every part that pydantic cannot read replaced."""
        if _has_fields(hint):
            if hint not in self._made and _holds_typed_dicts(hint):
                self._dataclass(hint) if dataclasses.is_dataclass(hint) else self._typed_dict(hint)
            return self._made.get(hint, hint)
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if not args or origin is typing.Literal:
            return hint
        if origin is typing.Annotated:
            return typing.Annotated[(self.of(args[0]), *args[1:])]
        new = tuple(self.of(arg) for arg in args)
        if all(arg is old for arg, old in zip(new, args, strict=True)):
            return hint
        if origin in (typing.Union, types.UnionType):
            return functools.reduce(operator.or_, new)
        return (
            types.GenericAlias(origin, new) if isinstance(hint, types.GenericAlias) else hint.copy_with(new)
        )

    def _typed_dict(self, old: Any) -> None:
        import typing_extensions as te

        needed: dict[str, bool] = {}
        hints = typing.get_type_hints(old, include_extras=True)
        for key, hint in hints.items():
            # Declared on the key, or else by the class, which misses annotations written as strings.
            needed[key] = key in old.__required_keys__
            if typing.get_origin(hint) in (typing.Required, typing.NotRequired, te.Required, te.NotRequired):
                needed[key] = typing.get_origin(hint) in (typing.Required, te.Required)
                hints[key] = typing.get_args(hint)[0]
        keys: dict[str, Any] = {
            key: te.Required[Any] if must else te.NotRequired[Any] for key, must in needed.items()
        }
        make: Any = te.TypedDict
        new = self._made[old] = make(old.__name__, keys)
        for name in ("__module__", "__qualname__", "__doc__", "__pydantic_config__"):
            if hasattr(old, name):
                setattr(new, name, getattr(old, name))
        new.__annotations__ = {key: self.of(hint) for key, hint in hints.items()}

    def _dataclass(self, old: Any) -> None:
        import pydantic

        hints = typing.get_type_hints(old, include_extras=True)
        parts = [part for part in dataclasses.fields(old) if part.init]
        new: Any = dataclasses.make_dataclass(
            old.__name__, [(part.name, Any, _again(part)) for part in parts]
        )
        new.__module__, new.__qualname__ = old.__module__, old.__qualname__

        def back(value: Any) -> Any:
            return old(**{part.name: getattr(value, part.name) for part in parts})

        self._made[old] = typing.Annotated[new, pydantic.AfterValidator(back)]
        for part in dataclasses.fields(new):
            part.type = new.__annotations__[part.name] = self.of(hints[part.name])


def _again(old: dataclasses.Field[Any]) -> Any:
    """A copy of a field, for another class."""
    options = {
        name: value
        for name in ("default", "default_factory")
        if (value := getattr(old, name)) is not dataclasses.MISSING
    }
    return dataclasses.field(**options, kw_only=bool(old.kw_only), metadata=old.metadata)
