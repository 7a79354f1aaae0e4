"""Values of plans and templates read strictly: each violation with its place and the nearest valid names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from detent.authoring.document import path_of
from detent.authoring.names import Nearest
from detent.kernel.errors import InvalidValue

M = TypeVar("M", bound=BaseModel)
LISTED = 20
"""Most violations in the message of one error."""


class Violation(NamedTuple):
    """One thing wrong with a value."""

    path: str
    """Such as `sections[2].channels.color`; empty for the whole."""
    message: str
    suggestions: tuple[str, ...] = ()
    location: tuple[str | int, ...] = ()
    """Keys and positions that lead to the part, to a key that is missing as well."""

    def __str__(self) -> str:
        meant = f" Nearest: {', '.join(map(repr, self.suggestions))}." if self.suggestions else ""
        return f"{self.path or 'the whole'}: {self.message}{meant}"


class SchemaViolation(InvalidValue):
    """A value is not what its schema asks for; `violations` holds everything that is wrong."""

    def __init__(self, subject: str, violations: list[Violation]) -> None:
        self.violations = tuple(violations)
        listed = "\n".join(f"- {violation}" for violation in violations[:LISTED])
        more = f"\n- and {len(violations) - LISTED} more" if len(violations) > LISTED else ""
        super().__init__(f"The {subject} is not what its schema asks for:\n{listed}{more}", "")


def parsed(model: type[M], value: Any, subject: str) -> M:
    """The value as a model; a model is returned as it is.

    Raises:
        SchemaViolation: everything that is wrong with it.
    """
    if isinstance(value, model):
        return value
    result = read(model, value)
    if isinstance(result, list):
        raise SchemaViolation(subject, result)
    return result


def read(model: type[M], value: Any) -> M | list[Violation]:
    """A JSON value as a model, or everything that is wrong with it, in the order of the model."""
    try:
        # Through JSON, where an array is a tuple although texts are no numbers.
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        nearest = Nearest()
        details = error.errors(include_url=False)
        # A list with a wrong item counts as too short to pydantic: the item alone is the problem.
        above = {detail["loc"][:end] for detail in details for end in range(len(detail["loc"]))}
        return [_violation(model, detail, nearest) for detail in details if detail["loc"] not in above]
    except (TypeError, ValueError, RecursionError) as error:
        return [Violation("", f"this is not a JSON value: {error}")]


def _violation(model: type[BaseModel], detail: Mapping[str, Any], nearest: Nearest) -> Violation:
    *above, last = location = detail["loc"] or ("",)
    path = path_of(*detail["loc"])
    context = detail.get("ctx", {})
    if detail["type"] == "extra_forbidden":
        keys = tuple(_model_at(model, above).model_fields)
        close = nearest.of(last, keys)
        known = "" if close else f" Known here: {', '.join(keys)}."
        return Violation(path, f"'{str(last)[:60]}' is not a key here.{known}", close, location)
    if detail["type"] == "missing":
        return Violation(path_of(*above), f"'{last}' is missing.", location=location)
    if detail["type"] == "literal_error":
        given = detail["input"]
        choices = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        message = f"{_shown(given)} must be {context['expected']}."
        return Violation(path, message, nearest.of(given, choices), location)
    message = detail["msg"].removeprefix("Input ").removeprefix("Tuple ")
    shown = f"{_shown(detail['input'])} {message[0].lower()}{message[1:]}."
    return Violation(path, shown, location=location)


def _model_at(model: type[BaseModel], location: list[str | int]) -> type[BaseModel]:
    """The model of the part at a location."""
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            model = inner or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next(filter(None, inner), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
