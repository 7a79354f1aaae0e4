"""What the parts of the state document share: unknown keys, empty values, the types of ids and moments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from detent.flows.notebook.state.machine import NotebookEvent, NotebookState
from detent.flows.notebook.state.names import read_event_name, read_state_name
from detent.kernel.errors import ConfigurationError

NEVER = "1970-01-01T00:00:00Z"
"""Timestamp of a document that names none: the empty value of a moment."""
STAGE_OR_STEP_ID = r"^[a-z][a-z0-9_]{0,79}$"
BEHAVIOR_ID = r"^[a-z][a-z0-9_]{0,79}_b[1-9][0-9]*$"
_MOMENT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"


def _moment(value: Any) -> Any:
    """A moment with its zone; one without is UTC."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?", value.strip()):
        return value.strip().replace(" ", "T") + "Z"
    return value


def _real(value: str) -> str:
    datetime.fromisoformat(value)  # the pattern lets a 13th month through
    return value


def _state_name(value: Any) -> Any:
    return _named(read_state_name, value)


def _event_name(value: Any) -> Any:
    return _named(read_event_name, value)


def _named(read: Any, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return read(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def _described(value: Any) -> Any:
    """Names with descriptions; a list of names, or of items with a name, is read too."""
    if not isinstance(value, list | tuple):
        return value
    described: dict[str, Any] = {}
    for item in value:
        if isinstance(item, str):
            described[item] = ""
        elif isinstance(item, Mapping) and isinstance(item.get("name"), str):
            described[item["name"]] = item.get("description", "")
        else:
            return value
    return described


def as_expected(value: Any) -> Any:
    """Artifacts that are expected; a bare name is one without a description."""
    if isinstance(value, Mapping):
        return [{"name": name, "description": text} for name, text in value.items()]
    if isinstance(value, list | tuple):
        return [{"name": item} if isinstance(item, str) else item for item in value]
    return value


Id = Annotated[str, Field(pattern=STAGE_OR_STEP_ID)]
BehaviorId = Annotated[str, Field(pattern=BEHAVIOR_ID)]
Moment = Annotated[
    str,
    BeforeValidator(_moment),
    Field(pattern=_MOMENT),
    AfterValidator(_real),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _MOMENT}),
]
Described = Annotated[dict[str, str], BeforeValidator(_described)]
Names = tuple[str, ...]
StateName = Annotated[NotebookState, BeforeValidator(_state_name)]
EventName = Annotated[NotebookEvent, BeforeValidator(_event_name)]


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """A part's schema as files are written: what may be absent is not null, all else is required."""
    optional = model.may_be_absent if issubclass(model, Part) else frozenset()
    schema["required"] = [name for name in model.model_fields if name not in optional]
    for name, field in schema["properties"].items():
        field.pop("title", None)
        field.pop("default", None)
        if name in optional and "anyOf" in field:
            (kind,) = (kind for kind in field.pop("anyOf") if kind != {"type": "null"})
            field.update(kind)
    schema.pop("title", None)
    schema.pop("additionalProperties", None)


class Part(BaseModel):
    """A part of the document. Unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", json_schema_extra=_describe)

    may_be_absent: ClassVar[frozenset[str]] = frozenset()
    """Fields that are left out when they are None."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, value: Any) -> Any:
        """Null in place of a list, a text or a part is read as its empty value."""
        if not isinstance(value, Mapping):
            return value
        fields = cls.model_fields
        return {
            key: item
            for key, item in value.items()
            if item is not None or key not in fields or fields[key].default is None
        }

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in plain.items()
            if value is not None or name not in self.may_be_absent
        }


P = TypeVar("P", bound=Part)


def updated(part: P, **changes: Any) -> P:
    """A copy of a part; None changes nothing."""
    return part.model_copy(update={name: value for name, value in changes.items() if value is not None})
