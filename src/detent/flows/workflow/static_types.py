"""Values that are known before a run, and whether they fit their types.

Only certain mistakes are reported: the value of a lone expression is unknown, and annotations beyond plain
types, literals, unions and containers of these are not checked.
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
    """A value known only at run time; `text` if it is certainly a text."""

    def __init__(self, text: bool) -> None:
        self.text = text


ANYTHING = Unknown(text=False)
SOME_TEXT = Unknown(text=True)


def known(value: Any) -> Any:
    """Return the literal part of a value, with `Unknown` in place of expressions."""
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
    """Return whether a value from `known` holds no `Unknown`."""
    if isinstance(value, Unknown):
        return False
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(wholly_known(item) for item in items)


def always(read: Prepared | None) -> Any:
    """Return the constant value of an expression; `ANYTHING` if it depends on the run."""
    if read is None or read.references:
        return ANYTHING
    try:
        return read.resolve(Scope({}, {}))
    except EvaluationError:
        return ANYTHING


class _Later(Exception):
    """The value is known only at run time."""


class _Unrun(Mapping[str, Any]):
    """Results of steps before any has run."""

    def __getitem__(self, name: str) -> Any:
        raise _Later

    def __iter__(self) -> Iterator[str]:
        raise _Later

    def __len__(self) -> int:
        raise _Later


def passed_over(spec: WorkflowSpec, inputs: Mapping[str, Any]) -> set[str]:
    """Return the names of the steps that a run with these inputs certainly skips."""
    scope = Scope(inputs, _Unrun())
    names: set[str] = set()
    for step in spec.every_step():
        if step.when is not None and _never(step.when, scope):
            names.add(step.name)
        if isinstance(step, BranchStep):
            names |= {
                option.step.name
                for option in step.options
                if option.when is not None and _never(option.when, scope)
            }
    return names


def _never(when: Any, scope: Scope) -> bool:
    try:
        return not condition(when).resolve(scope)
    except (_Later, EvaluationError, ExpressionError):
        return False


def keys_given(step: PythonStep, action: Action | None) -> frozenset[str] | None:
    """Return the keys of a step's output if its action declares all of them; None if they are unknown."""
    if action is None or step.output_schema is not None:
        return None
    declared = action.output_schema
    if declared is None:
        declared = hints_of(action.handler).get("return")
    if isinstance(declared, type) and dataclasses.is_dataclass(declared):
        return frozenset(member.name for member in dataclasses.fields(declared))
    if typing.is_typeddict(declared):
        return frozenset(typing.get_type_hints(declared))
    return frozenset() if declared in (str, int, float, bool, list, type(None)) else None


_NAMES: Mapping[Any, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    dict: "a mapping", type(None): "null",
}  # fmt: skip


def kind(value: Any) -> str:
    """Return the kind of a value, without the value."""
    return _NAMES.get(type(value), "something else")


def misfit(hint: Any, value: Any) -> str | None:
    """Return the expected type if a value certainly does not fit an annotation; None if it may."""
    if hint is None or (isinstance(value, Unknown) and not value.text):
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return misfit(args[0], value)
    if origin in (typing.Union, types.UnionType):
        expected = [text for text in (misfit(alternative, value) for alternative in args) if text is not None]
        return " or ".join(dict.fromkeys(expected)) if len(expected) == len(args) else None
    if origin is Literal:
        return None if _is_choice(args, value) else _join_choices(args)
    plain = hint if origin is None else origin
    if not isinstance(plain, type) or plain not in _NAMES:
        return None
    if not _is_instance(plain, value):
        return _NAMES[plain]
    if plain is list and len(args) == 1:
        inner = _first_misfit(args[0], value)
        return None if inner is None else f"a list of which each item is {inner}"
    if plain is dict and len(args) == 2:
        inner = _first_misfit(args[1], value.values())
        return None if inner is None else f"a mapping of which each value is {inner}"
    return None


def _first_misfit(hint: Any, values: Iterable[Any]) -> str | None:
    return next(
        (expected for expected in (misfit(hint, value) for value in values) if expected is not None), None
    )


def _is_choice(options: tuple[Any, ...], value: Any) -> bool:
    if isinstance(value, Unknown):
        return any(isinstance(option, str) for option in options)
    return any(type(option) is type(value) and option == value for option in options)


def _join_choices(options: Iterable[Any]) -> str:
    return " or ".join(
        f"'{option}'" if isinstance(option, str) else str(option).lower() for option in options
    )


def _is_instance(expected: Any, value: Any) -> bool:
    if isinstance(value, Unknown):
        return expected is str
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, expected)


@dataclass(slots=True)
class Signature:
    """The parameters of an action."""

    positional: list[inspect.Parameter] = field(default_factory=list)
    named: dict[str, inspect.Parameter] = field(default_factory=dict)
    """Parameters that can be passed by name."""
    required: list[str] = field(default_factory=list)
    more_args: bool = False
    more_kwargs: bool = False
    hints: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, action: Action) -> Signature:
        """Return the signature of an action's handler."""
        signature = cls(hints=hints_of(action.handler))
        for name, parameter in action.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                signature.more_args = True
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                signature.more_kwargs = True
                continue
            if parameter.kind is not parameter.KEYWORD_ONLY:
                signature.positional.append(parameter)
            if parameter.kind is not parameter.POSITIONAL_ONLY:
                signature.named[name] = parameter
            if parameter.default is parameter.empty:
                signature.required.append(name)
        return signature
