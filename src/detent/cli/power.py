"""The command `autonomy power`: what the checks of steps are worth, measured with planted errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.autonomy import known_step, places_of
from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from detent.dispatch.power import PowerReport


@takes("json", "project", "log")
async def power(
    options: Options,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Only this step: flow/step, or its own name.")
    ] = None,
    planted: Annotated[
        int, typer.Option("--planted", metavar="N", min=1, help="Errors of each sort and kind.")
    ] = 200,
) -> None:
    """Plant errors in past answers and count those that checks catch.

    Nothing is performed, and a planted error is no evidence about an agent. The result is kept until the
    check changes.
    """
    from detent.cli.output import say, say_json
    from detent.dispatch.agent_side import agent_side
    from detent.dispatch.autonomy import AgentRole
    from detent.dispatch.power import measure

    workspace = options.workspace()
    measured: list[PowerReport] = []
    async with workspace.engine() as engine:
        run_flows = list(dict.fromkeys(name for name, _, _ in await engine.store.flows()))
        await workspace.recall(engine, run_flows)
        places = places_of({name: engine.flow(name) for name in run_flows if name in engine.flows})
        names = list(places) if step is None else [known_step(step, places)]
        for name in names:
            flow, each = places[name]
            if step is None and agent_side(each).role is not AgentRole.OPTIONAL:
                continue
            measured.append(await measure(engine, flow.name, each.name, planted=planted))
            if not options.json:
                _say(measured[-1])
    if options.json:
        say_json([_plain(each) for each in measured])
    elif not measured:
        say("There is no step with a check whose runs are in this store.")


def _plain(measured: PowerReport) -> dict[str, Any]:
    lowest = measured.lowest
    sorts = [
        {**plain, "share": sort.share, "not_measurable": sort.why_not}
        for plain, sort in zip(measured.to_plain()["sorts"], measured.sorts, strict=True)
    ]
    named = None if lowest is None else {"sort": lowest.sort, "kind": lowest.kind, "share": lowest.share}
    return {**measured.to_plain(), "sorts": sorts, "lowest": named}


def _say(measured: PowerReport) -> None:
    from detent.cli.output import clean, say

    lowest = measured.lowest
    worth = "power not measurable"
    if lowest is not None:
        worth = f"power {lowest.share:.2f} ({lowest.caught} of {lowest.planted}, {lowest.sort})"
    say(clean(f"{measured.step}  {measured.check}  {measured.visits} visits  {worth}"))
    for why, count in (measured.unusable or {}).items():
        say(clean(f"  {count} visits not used: {why}"))
    for pointer in measured.harmless:
        say(clean(f"  declared harmless: {pointer}"))
    for sort in measured.sorts if measured.visits else ():
        kind = f" [{sort.kind}]" if sort.kind else ""
        counts = (
            f"planted {sort.planted}  caught {sort.caught}  dropped {sort.dropped}  "
            f"by the contract {sort.contract}"
        )
        more = "" if sort.why_not is None else f"  not measurable: {sort.why_not}"
        say(clean(f"  {sort.sort + kind:<18} {counts}{more}"))
