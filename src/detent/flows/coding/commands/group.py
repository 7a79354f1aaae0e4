"""The commands of the coding assistant beside requests: `coding …`."""

from __future__ import annotations

import typer

from detent.flows.coding.commands.measure import measure

group = typer.Typer(
    help="Measure how often requests end too early.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
group.command("measure")(measure)
