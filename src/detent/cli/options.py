"""Options that several commands have in common."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="Where runs are kept: a path, sqlite:PATH or postgresql://…"),
]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="The project file.")]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="NAME", help="A module or file.py with more flows. May be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Format(str, enum.Enum):
    """How a listing is printed."""

    table = "table"
    json = "json"
    yaml = "yaml"


Formats = Annotated[Format, typer.Option("--format", help="table, json or yaml; --json is --format json.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, or a unique prefix of it.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="Log what happens; -vv logs more.")]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one value of the data. May be repeated."),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress.")]
Detach = Annotated[
    bool, typer.Option("--detach", help="Leave the run for `detent serve` or `detent resume`.")
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Ask no agent: handlers perform every step.")
]
Record = Annotated[
    str | None,
    typer.Option("--record", metavar="FILE", help="Record every answer of models and tools in a new file."),
]
Replay = Annotated[
    str | None,
    typer.Option("--replay", metavar="FILE", help="Replay every answer from a recording; ask nobody."),
]
BudgetTokens = Annotated[int | None, typer.Option("--budget-tokens", metavar="N", help="Tokens it may use.")]
BudgetUsd = Annotated[float | None, typer.Option("--budget-usd", metavar="X", help="Money it may spend.")]
BudgetSteps = Annotated[int | None, typer.Option("--budget-steps", metavar="N", help="Steps it may take.")]
BudgetSeconds = Annotated[
    float | None, typer.Option("--budget-seconds", metavar="X", help="Seconds it may work; waiting is free.")
]
