"""The command `step`: a single-step run of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli import options

if TYPE_CHECKING:
    from detent.runtime.trial import Trial


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(rich_help_panel="Look at flows")(step)


def step(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="A flow's name, file.py, or a definition.")],
    name: Annotated[str, typer.Argument(metavar="STEP", help="The step.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FILE", help="The data it finds: a JSON or YAML file, JSON, or -."),
    ] = None,
    set_: options.Set = None,
    deterministic: options.Deterministic = False,
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> int:
    """Try one step alone.

    Queries are asked, effects are shown and not performed, nothing is kept.
    """
    from detent.cli.output import say_json
    from detent.cli.values import read_object, read_sets
    from detent.cli.workspace import Workspace, run_async
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.dispatch_settings import dispatch_settings
    from detent.runtime.trial import try_step

    workspace = Workspace(None, config, plugin)
    workspace.log(verbose, log_level)
    given = read_object(data, "--data") if data is not None else {}
    if not isinstance(given, dict):
        raise ConfigurationError("--data: a step works on a JSON object of names and values.")
    chosen = workspace.catalog.pick(flow).flow
    dispatch = dispatch_settings(workspace.settings, [chosen], deterministic=deterministic, complete=False)
    trial = run_async(try_step(chosen, name, {**given, **read_sets(set_)}, dispatch=dispatch))
    if json:
        say_json(trial.to_plain())
    else:
        _print_trial(trial)
    return 1 if trial.error is not None else 0


def _print_trial(trial: Trial) -> None:
    from detent.cli.output import clean, fields, paint, say

    say(f"{paint(clean(trial.step), bold=True)}   {trial.by}")
    following = trial.next or ("waits" if trial.question else "not known before the effects are done")
    fields(
        [
            ("next", clean(following if trial.error is None else "none")),
            ("reason", clean(trial.reason or "")),
            ("error", clean(trial.error or "")),
            ("question", clean(trial.question or "")),
            *((f"set {clean(key)}", _json(value)) for key, value in (trial.changes or {}).items()),
            *(
                (f"asked {call['tool']}", f"{_json(call.get('args'))} → {_json(call.get('answer'))}")
                for call in trial.queries
            ),
            *(
                (f"proposed {call['tool']}", f"{_json(call['args'])}   (not performed)")
                for call in trial.effects
            ),
        ]
    )


def _json(value: Any) -> str:
    import json

    from detent.cli.output import clean

    return clean(json.dumps(value, ensure_ascii=False))
