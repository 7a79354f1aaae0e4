"""The command `schema`: the JSON Schema of a kind of file, for editors."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Annotated, Any

import typer

SECTION = "Look at flows"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("schema", rich_help_panel=SECTION)(schema)


class Kind(str, enum.Enum):
    """A kind of file."""

    workflow = "workflow"
    playbook = "playbook"
    settings = "settings"


def schema(
    kind: Annotated[
        Kind,
        typer.Argument(metavar="KIND", help="workflow, playbook (playbook.yaml) or settings (detent.yaml)."),
    ],
) -> None:
    """Print the JSON Schema of a kind of file, for editors."""
    from detent.cli.output import say_json

    say_json(_SCHEMAS[kind]())


def _workflow() -> dict[str, Any]:
    from detent.flows.workflow.schema import json_schema

    return json_schema()


def _playbook() -> dict[str, Any]:
    from detent.authoring.model import json_schema
    from detent.flows.playbook.folder import Manifest

    return {"$schema": DIALECT, "title": "Detent playbook", **json_schema(Manifest)}


def _settings() -> dict[str, Any]:
    from detent.cli.workspace import Workspace
    from detent.runtime.settings import settings_schema

    return settings_schema(Workspace(None, None, None, looks=True).catalog.headings())


_SCHEMAS: dict[Kind, Callable[[], dict[str, Any]]] = {
    Kind.workflow: _workflow, Kind.playbook: _playbook, Kind.settings: _settings,
}  # fmt: skip
