"""What is known of a value before anything runs, and whether that fits where it is given.

Only what is certainly wrong is told: what a lone expression gives is not known, and annotations beyond plain
types, literals, unions and containers of these are not judged.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from detent.engine.schemas import hints_of
from detent.flows.workflow.expressions import (
    EvaluationError,
    Expression,
    ExpressionError,
    Prepared,
    Scope,
    Template,
    condition,
)
from detent.flows.workflow.registry import Action
from detent.flows.workflow.spec import BranchStep, PythonStep, WorkflowSpec


class Unknown:
    """A value that only a run can tell; as a text where some of it is written out."""

    def __init__(self, text: bool) -> None:
        self.text = text


ANYTHING = Unknown(text=False)
SOME_TEXT = Unknown(text=True)


def known(value: Any) -> Any:
    """A value as far as it is written out."""
    if isinstance(value, str):
        if "${{" not in value:
            return value
        try:
            template = Template.parse(value)
        except ExpressionError:
            return ANYTHING
        if template.is_plain:
            return "".join(piece for piece in template.pieces if not isinstance(piece, Expression))
        return ANYTHING if template.lone is not None else SOME_TEXT
    if isinstance(value, Mapping):
        return {key: known(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [known(item) for item in value]
    return value


def wholly_known(value: Any) -> bool:
    """Whether nothing in what `known` gave is left to a run."""
    if isinstance(value, Unknown):
        return False
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(wholly_known(item) for item in items)


def always(read: Prepared | None) -> Any:
    """What an expression gives in every run; `ANYTHING` when that depends on something."""
    if read is None or read.references:
        return ANYTHING
    try:
        return read.resolve(Scope({}, {}))
    except EvaluationError:
        return ANYTHING


class _Later(Exception):
    """Only a run can tell."""


class _Unrun(Mapping[str, Any]):
    """The steps of a workflow of which none has run."""

    def __getitem__(self, name: str) -> Any:
        raise _Later

    def __iter__(self) -> Iterator[str]:
        raise _Later

    def __len__(self) -> int:
        raise _Later


def passed_over(spec: WorkflowSpec, inputs: Mapping[str, Any]) -> set[str]:
    """Names of the steps that a run with these inputs passes over, whatever its other steps give."""
    scope = Scope(inputs, _Unrun())
    found: set[str] = set()
    for step in spec.every_step():
        if step.when is not None and _never(step.when, scope):
            found.add(step.name)
        if isinstance(step, BranchStep):
            found |= {
                one.step.name for one in step.options if one.when is not None and _never(one.when, scope)
            }
    return found


def _never(when: Any, scope: Scope) -> bool:
    try:
        return not condition(when).resolve(scope)
    except (_Later, EvaluationError, ExpressionError):
        return False


def keys_given(step: PythonStep, action: Action | None) -> frozenset[str] | None:
    """The keys of what a step gives, where its action's class says them all; None when nobody knows."""
    if action is None or step.output_schema is not None:
        return None
    declared = action.output_schema
    if declared is None:
        declared = hints_of(action.handler).get("return")
    if isinstance(declared, type) and dataclasses.is_dataclass(declared):
        return frozenset(one.name for one in dataclasses.fields(declared))
    if typing.is_typeddict(declared):
        return frozenset(typing.get_type_hints(declared))
    return frozenset() if declared in (str, int, float, bool, list, type(None)) else None


_NAMES: Mapping[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    dict: "a mapping", type(None): "null",
}  # fmt: skip


def kind(value: Any) -> str:
    """What a value is, without the value."""
    return _NAMES.get(type(value), "something else")


def misfit(hint: Any, value: Any) -> str | None:
    """What an annotation wants, when a value is certainly not that; None too where there is no annotation."""
    if hint is None or (isinstance(value, Unknown) and not value.text):
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return misfit(args[0], value)
    if origin in (typing.Union, types.UnionType):
        told = [wanted for wanted in (misfit(one, value) for one in args) if wanted is not None]
        return " or ".join(dict.fromkeys(told)) if len(told) == len(args) else None
    if origin is Literal:
        return None if _chosen(args, value) else _choices(args)
    plain = hint if origin is None else origin
    if not isinstance(plain, type) or plain not in _NAMES:
        return None
    if not _is(plain, value):
        return _NAMES[plain]
    if plain is list and len(args) == 1:
        inner = _first(args[0], value)
        return None if inner is None else f"a list of which each item is {inner}"
    if plain is dict and len(args) == 2:
        inner = _first(args[1], value.values())
        return None if inner is None else f"a mapping of which each value is {inner}"
    return None


def _first(hint: Any, values: Iterable[Any]) -> str | None:
    return next((wanted for wanted in (misfit(hint, value) for value in values) if wanted is not None), None)


def _chosen(options: tuple[Any, ...], value: Any) -> bool:
    if isinstance(value, Unknown):
        return any(isinstance(one, str) for one in options)
    return any(type(one) is type(value) and one == value for one in options)


def _choices(options: Iterable[Any]) -> str:
    return " or ".join(f"'{one}'" if isinstance(one, str) else str(one).lower() for one in options)


def _is(wanted: Any, value: Any) -> bool:
    if isinstance(value, Unknown):
        return wanted is str
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)


@dataclass(slots=True)
class Signature:
    """What an action takes."""

    positional: list[inspect.Parameter] = field(default_factory=list)
    named: dict[str, inspect.Parameter] = field(default_factory=dict)
    """Everything that can be said by name."""
    required: list[str] = field(default_factory=list)
    more_args: bool = False
    more_kwargs: bool = False
    hints: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, action: Action) -> Signature:
        """Read it from the handler."""
        found = cls(hints=hints_of(action.handler))
        for name, parameter in action.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                found.more_args = True
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                found.more_kwargs = True
                continue
            if parameter.kind is not parameter.KEYWORD_ONLY:
                found.positional.append(parameter)
            if parameter.kind is not parameter.POSITIONAL_ONLY:
                found.named[name] = parameter
            if parameter.default is parameter.empty:
                found.required.append(name)
        return found
