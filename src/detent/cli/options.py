"""Options that several commands have in common.

A command names those it takes, `@takes("json", "store", "config")`, and gets their values as one argument,
`options`. A command may be a coroutine function.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import update_wrapper
from inspect import Parameter, Signature, iscoroutine, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace


class Format(str, enum.Enum):
    """How a listing is printed."""

    table = "table"
    json = "json"
    yaml = "yaml"


RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, or a unique prefix of it.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one value of the data. May be repeated."),
]


def _person(name: str) -> str:
    """A person's name for the record: on one line, and not blank."""
    if not name.strip() or not name.isprintable():
        raise typer.BadParameter("Say a name, without control characters.")
    return " ".join(name.split())


By = Annotated[
    str, typer.Option("--by", metavar="NAME", help="Who does this, for the record.", callback=_person)
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")]
NewId = Annotated[str | None, typer.Option("--id", metavar="ID", help="Id of the new run.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Tag the run. May be repeated.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Only what began since: 7d, 2026-01-31.")
]
Older = Annotated[
    str | None,
    typer.Option("--older", metavar="AGE", help="All runs that ended at least this long ago: 30d."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")]
StepData = Annotated[
    str | None,
    typer.Option("--data", metavar="FILE", help="The data it finds: a JSON or YAML file, JSON, or -."),
]

Columns = Mapping[str, str | Callable[[Mapping[str, Any]], str]]
"""Heads of a table, each with the key of its values in a row, or a function of the row."""


@dataclass(frozen=True)
class Options:
    """Values of the shared options; those a command does not take have their defaults."""

    detach: Annotated[
        bool, typer.Option("--detach", help="Leave the run for `detent serve` or `detent resume`.")
    ] = False
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Ask no agent: handlers perform every step.")
    ] = False
    record: Annotated[
        str | None,
        typer.Option(
            "--record", metavar="FILE", help="Record every answer of models and tools in a new file."
        ),
    ] = None
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay", metavar="FILE", help="Replay every answer from a recording; perform and keep nothing."
        ),
    ] = None
    budget_tokens: Annotated[
        int | None, typer.Option("--budget-tokens", metavar="N", help="Tokens it may use.")
    ] = None
    budget_usd: Annotated[
        float | None, typer.Option("--budget-usd", metavar="X", help="Money it may spend.")
    ] = None
    budget_steps: Annotated[
        int | None, typer.Option("--budget-steps", metavar="N", help="Steps it may take.")
    ] = None
    budget_seconds: Annotated[
        float | None,
        typer.Option("--budget-seconds", metavar="X", help="Seconds it may work; waiting is free."),
    ] = None
    format: Annotated[
        Format, typer.Option("--format", help="table, json or yaml; --json is --format json.")
    ] = Format.table
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress.")] = False
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin", metavar="NAME", help="A module or file.py with more flows. May be repeated."
        ),
    ] = None
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="Where runs are kept: a path, sqlite:PATH or postgresql://…"
        ),
    ] = None
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="The project file.")] = None
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, help="Log what happens; -vv logs more.")
    ] = 0
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = None

    @property
    def as_table(self) -> bool:
        """Whether a listing is printed for people."""
        return not self.json and self.format is Format.table

    def print_rows(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Columns,
        *,
        empty: str = "",
        right: Sequence[int] = (),
    ) -> None:
        """Print a listing in the requested format: JSON, YAML, a table, or the sentence `empty`."""
        from detent.cli.output import say, say_plain, table

        if not self.as_table:
            say_plain(list(rows), self.format)
        elif not rows:
            say(empty)
        else:
            table(list(columns), cells_of(rows, columns), right=right)

    def print_record(self, plain: Mapping[str, Any], fields: Iterable[tuple[str, str]] | None = None) -> None:
        """Print one item in the requested format: JSON, YAML, or names and values."""
        from detent.cli.output import clean, say_plain
        from detent.cli.output import fields as say_fields

        if not self.as_table:
            say_plain(plain, self.format)
        elif fields is None:
            say_fields((name.replace("_", " "), clean(value or "")) for name, value in plain.items())
        else:
            say_fields(fields)

    def workspace(self, *, looks: bool = False, log: str | None = None) -> "Workspace":
        """The workspace these options select, with the requested logging, or at the level `log` by default.

        See `Workspace` for `looks`. A replayed run is kept in memory: its effects were not performed.
        """
        from detent.cli.workspace import Workspace

        store = self.store if self.replay is None else "memory:"
        workspace = Workspace(store, self.config, self.plugin, looks=looks)
        if not looks:
            workspace.log(self.verbose, self.log_level, log)
        return workspace


def cells_of(rows: Iterable[Mapping[str, Any]], columns: Columns) -> list[list[str]]:
    """The cells of a table."""
    return [
        [str(row[get] or "-") if isinstance(get, str) else get(row) for get in columns.values()]
        for row in rows
    ]


_FIELDS = {field.name: field for field in fields(Options)}
_GROUPS = {
    "budget": tuple(name for name in _FIELDS if name.startswith("budget_")),
    "log": ("verbose", "log_level"),
    "project": ("plugin", "store", "config"),
    "run": tuple(name for name in _FIELDS if name != "format"),
}


def takes(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command these options; `budget`, `log`, `project` and `run` stand for several."""
    chosen = [option for name in names for option in _GROUPS.get(name, (name,))]
    return lambda command: _Taking(command, chosen)


class _Taking:
    """A command that takes shared options. Its signature is built when it is called or asked for help."""

    def __init__(self, command: Callable[..., Any], names: list[str]) -> None:
        update_wrapper(self, command)
        self._command = command
        self._names = names

    def __call__(self, **values: Any) -> Any:
        options = Options(**{name: values.pop(name) for name in self._names})
        result = self._command(**values, options=options)
        if not iscoroutine(result):
            return result
        from detent.cli.workspace import run_async

        return run_async(result)

    @property
    def __signature__(self) -> Signature:
        own = signature(self._command, eval_str=True).parameters.values()
        shared = [
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in map(_FIELDS.__getitem__, self._names)
        ]
        return Signature([*(parameter for parameter in own if parameter.name != "options"), *shared])
