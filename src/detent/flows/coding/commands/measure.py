"""The command `coding measure`: how often a request is called complete too early, under both rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detent.flows.coding.measure.measurement import Figures, Live, Measured, Measurement
    from detent.flows.coding.measure.watch import RuleRun
    from detent.runtime.settings import Settings

NOT_ENOUGH = 1
"""Exit code where the machine avoids too few premature completions."""

HEADS = (
    "REPLIES", "LEGACY PREMATURE", "MACHINE PREMATURE", "REDUCTION", "LEGACY HELD BACK", "MACHINE HELD BACK",
)  # fmt: skip


@takes("json", "config")
async def measure(
    options: Options,
    scenarios: Annotated[
        Path | None,
        typer.Option("--scenarios", metavar="DIR", help="Scenarios of your own, in YAML or JSON files."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="With strict_completion.")] = False,
    done_when: Annotated[
        bool, typer.Option("--done-when", help="With each scenario's own check as done_when.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Also run the prompts with the project's model, counted apart.")
    ] = False,
) -> None:
    """Measure how often a request is called complete too early.

    Scripted replies are played under the rule of boolean flags and under the machine's, in three styles.
    Ends with 1 when the machine avoids less than 60 % of the premature completions.
    """
    from detent.cli.output import say_json
    from detent.flows.coding.measure.measurement import measure as measure_scenarios
    from detent.flows.coding.measure.scenario_files import read_scenarios
    from detent.flows.coding.measure.suite import SHIPPED

    found = read_scenarios(scenarios or SHIPPED)
    model = live_model(options.workspace(looks=True).settings) if live else None
    try:
        measured = await measure_scenarios(found, strict=strict, checks=done_when, live=model)
    finally:
        if model is not None:
            await model.close()
    if options.json:
        say_json(measured.to_plain())
    else:
        show(measured)
    if not measured.passes:
        raise typer.Exit(NOT_ENOUGH)


def live_model(settings: Settings) -> Live:
    """The project's model.

    Raises:
        ConfigurationError: there is none, or it cannot be asked.
    """
    from detent.dispatch.executor import NO_MODEL, converses
    from detent.flows.coding.measure.measurement import Live
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.dispatch_settings import dispatch_settings

    dispatch = dispatch_settings(settings, (), complete=False)
    source = dispatch.executors
    provider = dispatch.model.provider or (source.default if source is not None else None)
    if source is None or provider is None:
        raise ConfigurationError(f"--live needs a model, and {NO_MODEL}.")
    executor = source.make(provider)
    available = executor.available()
    if not available.ok:
        raise ConfigurationError(f"The model of '{provider}' cannot be asked: {available.why_not}.")
    if not converses(executor):
        raise ConfigurationError(f"The agent '{provider}' runs a loop of its own; --live needs a model.")
    return Live(executor, dispatch.model.model_id, source.close)


# -- the table ----------------------------------------------------------------------------------------------


def show(measured: Measurement) -> None:
    """Print the scenarios and the figures."""
    from detent.cli.output import paint, say, table
    from detent.flows.coding.measure.measurement import LEGACY, MACHINE

    _table(measured.first)
    say()
    rows = [_row(style, figures) for style, figures in measured.figures.items()]
    table(HEADS, rows)
    say()
    true_ends = sum(bool(one.true_end) for one in measured.first)
    worst = measured.worst
    say(
        f"{worst.premature[LEGACY]} of {worst.scenarios} are called complete too early by the legacy rule, "
        f"{worst.premature[MACHINE]} by the machine: {_percent(worst.reduction)} fewer. "
        f"{worst.held_back[MACHINE]} of {true_ends} that come to a true end are completed late or never."
    )
    if measured.differing:
        names = ", ".join(f"{name} ({style})" for style, name in measured.differing)
        say(paint(f"The style of replies makes a difference to {names}.", "yellow"))
    if not measured.passes:
        from detent.flows.coding.measure.measurement import BOUND

        say(paint(f"That is less than the {_percent(BOUND)} it should be.", "red"))
    if measured.live:
        from detent.flows.coding.measure.measurement import Figures

        say()
        say(paint("With the model", bold=True))
        _table(measured.live)
        table(HEADS, [_row("live", Figures.of(measured.live))])


def _table(measured: Sequence[Measured]) -> None:
    from detent.cli.output import table
    from detent.flows.coding.measure.measurement import LEGACY, MACHINE

    rows = [
        (one.scenario.id, _told(one.rules[LEGACY]), _told(one.rules[MACHINE]), one.scenario.description)
        for one in measured
    ]
    table(("SCENARIO", "LEGACY", "MACHINE", ""), rows)


def _told(run: RuleRun) -> str:
    """A run in a cell: the reply at which it was complete."""
    if run.completed_at is None:
        text = f"never ({run.reason}, {run.replies})"
    else:
        text = f"premature {run.completed_at}" if run.premature else str(run.completed_at)
    return f"{text} late" if run.held_back and run.completed_at is not None else text


def _row(style: str, figures: Figures) -> tuple[str, ...]:
    from detent.flows.coding.measure.measurement import LEGACY, MACHINE

    return (
        style, str(figures.premature[LEGACY]), str(figures.premature[MACHINE]), _percent(figures.reduction),
        str(figures.held_back[LEGACY]), str(figures.held_back[MACHINE]),
    )  # fmt: skip


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}".replace("%", " %")
