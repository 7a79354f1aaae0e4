"""Inputs of a workflow: the given values are coerced to the declared types, and all misfits are reported.

Messages never repeat a value, only its kind. Values of secret inputs come from the environment alone; among
the inputs a secret is written as `{"$secret": name}`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from detent.flows.workflow.expressions.values import described, kind_of, same
from detent.flows.workflow.spec import InputSpec, InputType
from detent.insight.formatting import count
from detent.kernel.errors import ConfigurationError, NestedTooDeeply, nearest
from detent.kernel.plain import digest, to_plain

SECRET = "$secret"
"""Key of the mapping that replaces a secret's value."""
FORCED = "force_deterministic"
"""The input that switches agents off for a run; any run accepts it, declared or not."""
VARIABLE = "DETENT_INPUT_"
"""Prefix of the environment variables that hold secret inputs."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class InputProblem(NamedTuple):
    """One input that cannot be used."""

    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class InputsError(ConfigurationError):
    """The inputs given do not fit those declared; all problems are listed at once."""

    def __init__(self, problems: Sequence[InputProblem]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"The inputs cannot be used, {count(len(self.problems), 'problem')}:\n{lines}")


class _Misfit(ValueError):
    """A value does not fit its input; the message says what would."""


def coerce(
    declared: Mapping[str, InputSpec],
    supplied: Mapping[str, Any],
    *,
    from_text: bool = False,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return every declared input with a value of its type, in the order of declaration.

    Null for an optional input is the same as leaving it out: its default, else null. With `from_text` the
    values were typed after `-i`, and a problem shows how to type them. A secret given as `{"$secret": …}` was
    passed on by another workflow and is kept.

    Raises:
        InputsError: some inputs do not fit; it lists all of them.
    """
    around = os.environ if environ is None else environ
    problems = [_unknown(name, declared) for name in supplied if name not in declared]
    values: dict[str, Any] = {}
    for name, spec in declared.items():
        try:
            values[name] = _value(spec, supplied.get(name), name in supplied, around)
        except _Misfit as misfit:
            example = spec.enum[0] if spec.enum else _TYPED[spec.type]
            typed = f" Type it as -i {name}={example}." if from_text and not spec.secret else ""
            problems.append(InputProblem(name, f"{misfit}{typed}"))
    if problems:
        raise InputsError(problems)
    return values


def variable(name: str) -> str:
    """Return the environment variable that holds a secret input."""
    return f"{VARIABLE}{name.upper()}"


def misfit(spec: InputSpec, value: Any) -> str | None:
    """Return why a default or a literal does not fit an input, in the words of `coerce`; None if it fits."""
    if value is None and not spec.required:
        return None
    try:
        _fitted(spec, value)
    except _Misfit as problem:
        return str(problem)
    return None


def inputs_hash(inputs: Mapping[str, Any]) -> str:
    """Return the hash that identifies runs by their inputs: 16 hex digits of the SHA-256 of sorted JSON."""
    return digest(to_plain(inputs), 16)


def switched_off(inputs: Mapping[str, Any]) -> bool:
    """Return whether the input `force_deterministic` switches agents off, given as a boolean or as a text.

    Raises:
        InputsError: the value is neither true nor false.
    """
    value = inputs.get(FORCED)
    if value is None or isinstance(value, bool):
        return bool(value)
    forced = _BOOLEANS.get(str(value).strip().lower())
    if forced is None:
        raise InputsError([InputProblem(FORCED, "takes true, 1 or yes, or false, 0 or no.")])
    return forced


# --- one input ---------------------------------------------------------------------------------------


def _value(spec: InputSpec, value: Any, is_supplied: bool, environ: Mapping[str, str]) -> Any:
    if spec.secret:
        return _secret(spec, value, environ)
    if value is not None:
        return _fitted(spec, value)
    if spec.required:
        problem = "it is null, but" if is_supplied else "a value is missing:"
        raise _Misfit(f"{problem} this input is required and takes {_WANTED[spec.type]}.")
    return _fitted(spec, spec.default) if spec.has_default and spec.default is not None else None


def _secret(spec: InputSpec, value: Any, environ: Mapping[str, str]) -> Any:
    if is_secret(value):
        return {SECRET: value[SECRET]}
    name = variable(spec.name)
    if value is not None:
        raise _Misfit(f"this input is secret and cannot be given here. Set the environment variable {name}.")
    text = environ.get(name, "")
    if text:
        try:
            _fitted(spec, text)
        except _Misfit as problem:
            raise _Misfit(f"the environment variable {name}: {problem}") from None
        return {SECRET: spec.name}
    if spec.required:
        raise _Misfit(f"this input is secret and required. Set the environment variable {name}.")
    return _fitted(spec, spec.default) if spec.has_default and spec.default is not None else None


def is_secret(value: Any) -> bool:
    """Return whether a value is the mapping that replaces a secret's value."""
    return kind_of(value) == "mapping" and list(value) == [SECRET] and isinstance(value[SECRET], str)


def _fitted(spec: InputSpec, value: Any) -> Any:
    """The value coerced to the input's type; `_Misfit` if that fails or it is none of the input's choices."""
    if value is not None and not spec.secret and is_secret(value):
        raise _Misfit("a secret can only be handed to an input that is declared secret.")
    coerced = _COERCED[spec.type](value)
    if spec.enum is not None and not any(same(coerced, choice) for choice in _choices(spec)):
        raise _Misfit(f"it must be one of {', '.join(map(_quoted, spec.enum))}.")
    return coerced


def _choices(spec: InputSpec) -> list[Any]:
    choices = []
    for choice in spec.enum or ():
        try:
            choices.append(_COERCED[spec.type](choice))
        except _Misfit:
            continue  # a mistake in the file, reported when the file was checked
    return choices


def _quoted(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _unknown(name: str, declared: Mapping[str, InputSpec]) -> InputProblem:
    names = ", ".join(declared) or "none"
    return InputProblem(str(name), f"there is no such input.{nearest(str(name), declared)} Inputs: {names}.")


# --- one type ----------------------------------------------------------------------------------------


def _string(value: Any) -> str:
    if kind_of(value) != "text":
        _refuse("string", value)
    return str.__str__(value)


def _integer(value: Any) -> int:
    kind = kind_of(value)
    if kind == "number" and (not isinstance(value, float) or value.is_integer()):
        return int(value)
    if kind == "text" and _INTEGER.fullmatch(value):
        try:
            return int(value)
        except ValueError:  # Python limits the number of digits
            raise _Misfit(f"a number of {len(value)} digits is too long.") from None
    _refuse("integer", value)


def _float(value: Any) -> float:
    kind = kind_of(value)
    if kind == "number" or (kind == "text" and _FLOAT.fullmatch(value)):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        raise _Misfit("the number is not finite, or too large.")
    _refuse("float", value)


def _boolean(value: Any) -> bool:
    kind = kind_of(value)
    if kind == "boolean":
        return bool(value)
    if kind == "number" and not isinstance(value, float) and value in (0, 1):
        return bool(value)
    boolean = _BOOLEANS.get(value.lower()) if kind == "text" else None
    if boolean is None:
        _refuse("boolean", value)
    return boolean


def _object(value: Any) -> dict[str, Any]:
    parsed = _from_json(value, "object")
    if kind_of(parsed) not in ("mapping", "record"):
        _refuse("object", parsed)
    return _plain(parsed)  # type: ignore[no-any-return]


def _array(value: Any) -> list[Any]:
    parsed = _from_json(value, "array")
    if kind_of(parsed) != "list":
        _refuse("array", parsed)
    return _plain(parsed)  # type: ignore[no-any-return]


def _from_json(value: Any, expected: InputType) -> Any:
    if kind_of(value) != "text":
        return value
    try:
        return json.loads(value, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _Misfit(f"the text is no JSON ({where}). It takes {_WANTED[expected]}.") from None
    except (ValueError, RecursionError):
        raise _Misfit("the JSON is nested too deeply, or holds a number that is too long or none.") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _plain(value: Any) -> Any:
    try:
        return to_plain(value)
    except (NestedTooDeeply, RecursionError):
        raise _Misfit("it is nested too deeply.") from None
    except (TypeError, ValueError):
        raise _Misfit(
            "it holds something that JSON cannot: a key that is not text, or what is not a plain value."
        ) from None


def _refuse(expected: InputType, value: Any) -> NoReturn:
    raise _Misfit(f"it takes {_WANTED[expected]}, not {described(value)}{_size(value)}.")


def _size(value: Any) -> str:
    if kind_of(value) != "text":
        return ""
    return f" of {count(len(value), 'character')}"


_COERCED: dict[InputType, Callable[[Any], Any]] = {
    "string": _string, "integer": _integer, "float": _float, "boolean": _boolean, "object": _object,
    "array": _array,
}  # fmt: skip
_WANTED: dict[InputType, str] = {
    "string": "text",
    "integer": "a whole number such as 3",
    "float": "a finite number such as 2.5",
    "boolean": "true or false (1 or 0, yes or no)",
    "object": "a mapping or its JSON text",
    "array": "a list or its JSON text",
}
_TYPED: dict[InputType, str] = {
    "string": "text", "integer": "3", "float": "2.5", "boolean": "true", "object": "'{\"a\": 1}'",
    "array": "'[1, 2]'",
}  # fmt: skip
