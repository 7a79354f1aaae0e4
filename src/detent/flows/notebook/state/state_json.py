"""The state JSON: read from files of any age, written with canonical names, and described by a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from detent.flows.notebook.state.document import StateDocument
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain

SCHEMA_FILE = "state.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
LONGEST_EFFECT = 2000
"""Characters of each output that an export shows."""
MOST_PROBLEMS = 8
"""Problems of one file that are reported."""


def read_state(plain: Any) -> StateDocument:
    """Read a state JSON. Missing parts get their empty value, and unknown keys are kept.

    `observation.progress` is read as `observation.location.progress`, misspelt states and events as what
    they mean.

    Raises:
        ConfigurationError: a part cannot be read; every such part is named by its path.
    """
    if not isinstance(plain, Mapping):
        raise ConfigurationError("A state file holds one JSON object with 'observation' and 'state'.")
    try:
        return StateDocument.model_validate(_with_progress_in_place(to_plain(plain)))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_input=False)
        ]
        rest = [f"and {len(problems) - MOST_PROBLEMS} more"] if len(problems) > MOST_PROBLEMS else []
        lines = "\n".join(f"  {problem}" for problem in [*problems[:MOST_PROBLEMS], *rest])
        raise ConfigurationError(f"The state cannot be read:\n{lines}") from None


def _with_progress_in_place(plain: dict[str, Any]) -> dict[str, Any]:
    """A copy in which progress stands under the location; what stands there already wins, level by level."""
    observation = plain.get("observation")
    if not isinstance(observation, dict) or not isinstance(observation.get("progress"), dict):
        return plain
    moved = {key: value for key, value in observation.items() if key != "progress"}
    location = moved.get("location")
    location = dict(location) if isinstance(location, dict) else {}
    present = location.get("progress")
    location["progress"] = {**observation["progress"], **(present if isinstance(present, dict) else {})}
    return {**plain, "observation": {**moved, "location": location}}


def write_state(document: StateDocument) -> dict[str, Any]:
    """The document as plain JSON values, whole."""
    plain: dict[str, Any] = document.model_dump(mode="json")
    return plain


def export_state(document: StateDocument) -> dict[str, Any]:
    """The document as it is exported: each output up to 2000 characters, the rest is a marker."""
    plain = write_state(document)
    summary = plain["state"]["notebook"]
    if summary["last_output"] is not None:
        summary["last_output"] = shortened(summary["last_output"])
    effects = plain["state"]["effects"]
    for name in ("current", "history"):
        effects[name] = [shortened(text) for text in effects[name]]
    return plain


def shortened(text: str, longest: int = LONGEST_EFFECT) -> str:
    """A text of at most `longest` characters: its beginning and a marker."""
    if len(text) <= longest:
        return text
    marker = f"… [{len(text)} characters]"
    return text[: longest - len(marker)] + marker


def make_schema() -> dict[str, Any]:
    """The JSON Schema, draft 2020-12, made from the models."""
    schema = StateDocument.model_json_schema()
    return {
        "$schema": DIALECT,
        "title": "State of a notebook run",
        "description": "Keys that are not listed here are kept, at every level.",
        **{key: value for key, value in schema.items() if key not in ("title", "description")},
    }


@cache
def json_schema() -> Mapping[str, Any]:
    """The JSON Schema that ships."""
    value: dict[str, Any] = json.loads(Path(__file__).with_name(SCHEMA_FILE).read_text(encoding="utf-8"))
    return value
