"""The command `replay`: repeats a run from its recording and compares the two journals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli.options import Options, RunId, takes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detent.adapters.cassette import Player
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.kernel.entries import Entry


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(rich_help_panel="Look at runs")(replay)


@takes("json", "project", "log")
async def replay(
    options: Options,
    run: RunId,
    recording: Annotated[
        str, typer.Argument(metavar="FILE", help="The recording that `run --record FILE` wrote.")
    ],
) -> int:
    """Repeat a run from its recording and compare the two.

    Nothing is asked of a model or tool, nothing is performed, and nothing is written to the store. Questions
    are answered as they were. The exit code is 1 when the repetition differs.
    """
    from detent.cli.record import player
    from detent.cli.workspace import journal

    workspace = options.workspace()
    async with workspace.store() as store:
        run_id = await workspace.run_id(store, run)
        original = await journal(store, run_id)
        flows = await workspace.known(store)
        named = (await store.row(run_id)).flow
        beside = await _offloaded(store, run_id, original)
    with player(recording, workspace.settings, [named], json=options.json) as cassette:
        return await _repeated(workspace, run_id, original, beside, flows, cassette, options.json)


async def _repeated(
    workspace: Workspace,
    run_id: str,
    original: Sequence[Entry],
    beside: Sequence[bytes],
    flows: Mapping[str, Flow],
    player: Player,
    json: bool,
) -> int:
    """Repeat the run in memory and print how it compares; return the exit code."""
    from detent.cli.output import fit, say, say_json
    from detent.cli.workspace import journal
    from detent.insight import compare as comparing
    from detent.insight.formatting import count
    from detent.runtime.wiring import make_store

    async with workspace.engine(store=make_store("memory:"), tape=player) as engine:
        for flow in flows.values():
            engine.add_flow(flow)
        await _repeat(engine, run_id, original, beside)
        result = comparing.compare(_marked(original), await journal(engine.store, run_id))
    same = result.equal and not player.mismatches
    if json:
        say_json({"run": run_id, "recording": str(player.path), **result.to_plain(), "equal": same})
    elif same:
        agree = f"{count(result.same, 'entry')} {'agrees' if result.same == 1 else 'agree'}"
        if (others := len(original) - result.same) > 0:
            agree += f"; {others:,} of {len(original):,} are not compared (retries, notes, take-overs)"
        say(f"{run_id} took the same path again: {agree}.")
    else:
        for line in comparing.render(result, run_id, "replay").splitlines():
            fit(line)
    return 0 if same else 1


def _marked(original: Sequence[Entry]) -> list[Entry]:
    """The journal marked as replayed, so that the mark never counts as a difference."""
    from dataclasses import replace

    from detent.kernel.entries import Started
    from detent.kernel.run_config import REPLAYED

    first, *rest = original
    assert isinstance(first.body, Started)
    return [first._replace(body=replace(first.body, config={**first.body.config, REPLAYED: True})), *rest]


async def _offloaded(store: Store, run_id: str, original: Sequence[Entry]) -> list[bytes]:
    """The values outside the journal that the run was started with.

    Raises:
        RunStateError: some were purged.
    """
    from detent.kernel.entries import Started
    from detent.kernel.errors import RunStateError

    started = original[0].body
    assert isinstance(started, Started)
    values: list[bytes] = []
    for name, reference in started.data.items():
        if not isinstance(reference, Mapping) or not isinstance(hash := reference.get("$blob"), str):
            continue
        if (value := await store.blob(hash)) is None:
            raise RunStateError(f"Run {run_id} cannot be replayed: its '{name}' was purged.")
        values.append(value)
    return values


async def _repeat(
    engine: Engine, run_id: str, original: Sequence[Entry], beside: Sequence[bytes] = ()
) -> None:
    """Start the run again with its original data and answer its holds as they were answered."""
    from detent.cli.drive import PATIENCE
    from detent.kernel.budget import Budget
    from detent.kernel.entries import Released, Started
    from detent.kernel.errors import RunStateError

    started = original[0].body
    assert isinstance(started, Started)
    if started.parent is not None or started.forked_from is not None:
        source = started.parent or (started.forked_from or {}).get("run")
        raise RunStateError(f"Run {run_id} did not start by itself. Replay the run it came from: {source}.")
    answers = [entry.body for entry in original if isinstance(entry.body, Released)]
    await engine.start(
        started.flow, started.data, run_id=run_id, tags=started.tags, config=started.config, at=started.state,
        budget=None if started.budget is None else Budget.from_plain(started.budget), beside=beside,
    )  # fmt: skip
    run = await engine.finish(run_id, patience=PATIENCE)
    while not run.status.is_end:
        release = next(
            (release for release in answers if release.by != "clock" and release.name in run.holds), None
        )
        if release is None:
            return  # it waits; the comparison shows whether the original did, too
        answers.remove(release)
        await engine.release(run_id, release.answer, hold=run.token(release.name), by=release.by)
        run = await engine.finish(run_id, patience=PATIENCE)
