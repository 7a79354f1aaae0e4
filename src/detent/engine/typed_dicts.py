"""TypedDicts of `typing` as pydantic can read them.

Before Python 3.12 they tell it too little. They, and the dataclasses that hold them, are replaced by equals
that lead to the same values; on newer Pythons nothing is.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
import types
import typing
from typing import Any


def readable(what: Any) -> Any:
    """A class or annotation, with everything in it replaced that pydantic could not read."""
    if sys.version_info >= (3, 12) or not _holds_typed_dicts(what):
        return what
    return _Readable().of(what)


def _holds_typed_dicts(what: Any) -> bool:
    seen: set[type] = set()
    todo = [what]
    while todo:
        one = todo.pop()
        if typing.is_typeddict(one) and type(one).__module__ == "typing":
            return True
        todo.extend(typing.get_args(one))
        if isinstance(one, type) and one not in seen and _has_fields(one):
            seen.add(one)
            todo.extend(_hints(one).values())
    return False


def _hints(what: type) -> dict[str, Any]:
    """The annotations of a class; none when a name in them cannot be resolved, which pydantic then tells."""
    try:
        return typing.get_type_hints(what, include_extras=True)
    except Exception:
        return {}


def _has_fields(what: Any) -> bool:
    from typing_extensions import is_typeddict

    return is_typeddict(what) or (isinstance(what, type) and dataclasses.is_dataclass(what))


class _Readable:
    """Replacements made for one type; they may refer to each other, and to themselves."""

    def __init__(self) -> None:
        self._made: dict[type, Any] = {}

    def of(self, hint: Any) -> Any:
        """`hint`, with everything replaced that has to be."""
        if _has_fields(hint):
            if hint not in self._made and _holds_typed_dicts(hint):
                self._dataclass(hint) if dataclasses.is_dataclass(hint) else self._typed_dict(hint)
            return self._made.get(hint, hint)
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if not args or origin is typing.Literal:
            return hint
        if origin is typing.Annotated:
            return typing.Annotated[(self.of(args[0]), *args[1:])]
        new = tuple(self.of(one) for one in args)
        if all(one is other for one, other in zip(new, args, strict=True)):
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
            # Said with the key, or else by the class; the class alone misses what was written as text.
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
        parts = [one for one in dataclasses.fields(old) if one.init]
        new: Any = dataclasses.make_dataclass(old.__name__, [(one.name, Any, _again(one)) for one in parts])
        new.__module__, new.__qualname__ = old.__module__, old.__qualname__

        def back(value: Any) -> Any:
            return old(**{one.name: getattr(value, one.name) for one in parts})

        self._made[old] = typing.Annotated[new, pydantic.AfterValidator(back)]
        for one in dataclasses.fields(new):
            one.type = new.__annotations__[one.name] = self.of(hints[one.name])


def _again(old: dataclasses.Field[Any]) -> Any:
    """A field like another one, for another class."""
    options = {
        name: said
        for name in ("default", "default_factory")
        if (said := getattr(old, name)) is not dataclasses.MISSING
    }
    return dataclasses.field(**options, kw_only=bool(old.kw_only), metadata=old.metadata)
