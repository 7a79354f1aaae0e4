"""The commands `autonomy demote`, `restore` and `list`: how far agents are trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import By, Options, Reason, takes

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.dispatch.autonomy import AutonomyLevel
    from detent.dispatch.config import Resolved
    from detent.dispatch.evidence import Demotion
    from detent.dispatch.watch import Watch
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.engine.step import Step

SECTION = "Judge"

StepName = Annotated[
    str, typer.Argument(metavar="STEP", help="A step: flow/step, or its own name where that is unique.")
]


# -- demotions ----------------------------------------------------------------------------------------------


@takes("json", "project")
async def demote(
    options: Options,
    step: StepName,
    to: Annotated[
        str | None, typer.Option("--to", metavar="LEVEL", help="The level; the next lower one if left out.")
    ] = None,
    reason: Reason = "",
    by: By = "person",
) -> None:
    """Hold a step at a lower level until it is restored."""
    import time

    from detent.cli.output import clean, say, say_json
    from detent.dispatch.evidence import DEMOTIONS, Demotion
    from detent.dispatch.plan import work_fingerprint
    from detent.kernel.errors import ConfigurationError

    level = _level(to) if to is not None else None
    workspace = options.workspace()
    to = level
    async with workspace.store() as store:
        held = await demotions(store)
        places = places_of(await workspace.known(store))
        name = known_step(step, [*places, *held])
        current = held.get(name)
        configured = resolved(workspace, *places[name]).config.autonomy if name in places else None
        if configured is None and current is not None:
            configured = current.was
        now = min((level for level in (configured, current and current.level) if level), default=None)
        level = to if to is not None else now.below if now is not None else None
        if level is None:
            raise ConfigurationError(
                f"Step '{name}' is at {now.value}, the lowest level; the agent is not asked."
                if now is not None
                else f"The level of step '{name}' is not known here; say --to LEVEL."
            )
        if configured is not None and level >= configured:
            raise ConfigurationError(
                f"Step '{name}' is configured as {configured.value}; a demotion holds it below that. "
                f"To trust it further, change its configuration."
            )
        work = work_fingerprint(places[name][1]) if name in places else ""
        demotion = Demotion(level, configured, reason, time.time(), by, work=work)
        await _set(store, DEMOTIONS + name, demotion.to_plain())
    if options.json:
        say_json({"step": name, **plain_of(demotion)})
        return
    was = f" (configured: {configured.value})" if configured is not None else ""
    say(clean(f"{name} is held at {level.value} from now on{was}."))
    say(f"Back with: {workspace.command('autonomy', 'restore', name)}")


def _level(name: str) -> AutonomyLevel:
    from detent.dispatch.autonomy import AutonomyLevel
    from detent.kernel.errors import ConfigurationError, nearest

    names = [level.value for level in AutonomyLevel]
    if name not in names:
        raise ConfigurationError(
            f"There is no level '{name}'.{nearest(name, names)} Levels: {', '.join(names)}."
        )
    return AutonomyLevel(name)


@takes("json", "project")
async def restore(options: Options, step: StepName) -> None:
    """Give a step its configured level back; its evidence begins anew."""
    import time

    from detent.cli.output import clean, say, say_json
    from detent.dispatch.evidence import DEMOTIONS
    from detent.dispatch.evidence_log import begin_anew

    workspace = options.workspace()
    step_name = step
    async with workspace.store() as store:
        held = await demotions(store)
        if any(means(step_name, step) for step in held):
            name = known_step(step_name, held)
        else:
            name = known_step(step_name, places_of(await workspace.known(store)))
        demotion = held.get(name)
        if demotion is not None:
            await begin_anew(store, name, time.time())
            await _set(store, DEMOTIONS + name, None)
    if options.json:
        say_json(
            {
                "step": name,
                "restored": demotion is not None,
                "demotion": plain_of(demotion) if demotion else None,
            }
        )
    elif demotion is None:
        say(clean(f"{name} is not held below its configured level; there is nothing to restore."))
    else:
        say(clean(f"{name} has its configured level again."))
        say(told(name, demotion))


@takes("json", "project")
async def restart(options: Options, step: StepName) -> None:
    """Begin the evidence about a step anew, as a further attempt."""
    import time

    from detent.cli.output import clean, say, say_json
    from detent.dispatch.evidence_log import begin_anew

    workspace = options.workspace()
    async with workspace.store() as store:
        name = known_step(step, places_of(await workspace.known(store)))
        await begin_anew(store, name, time.time())
    if options.json:
        say_json({"step": name, "restarted": True})
    else:
        say(clean(f"The evidence about {name} begins anew."))


@takes("json", "store", "config")
async def list_(options: Options) -> None:
    """List the steps that are held below their configured level."""
    from detent.cli.output import brief

    async with options.workspace(looks=True).store() as store:
        held = await demotions(store)
    options.print_rows(
        [{"step": step, **plain_of(demotion)} for step, demotion in held.items()],
        {
            "STEP": "step",
            "LEVEL": "level",
            "WAS": "was",
            "BY": "by",
            "SINCE": lambda row: brief(held[row["step"]].at),
            "WHY": "why",
        },
        empty="No step is held below its configured level.",
    )


async def demotions(store: Store) -> dict[str, Demotion]:
    """The demotions in force, by step."""
    from detent.cli.output import warn
    from detent.dispatch.evidence import DEMOTIONS, Demotion

    held: dict[str, Demotion] = {}
    for key, value in (await store.marks(DEMOTIONS)).items():
        step = key.removeprefix(DEMOTIONS)
        try:
            demotion = Demotion.from_plain(value)
        except ValueError as error:
            warn(f"The demotion of {step} cannot be read: {error}")
            continue
        if demotion is not None:
            held[step] = demotion
    return held


async def known_demotions(workspace: Workspace) -> dict[str, Demotion]:
    """The demotions in force, by step; none where there is no store, or where it cannot be read."""
    from detent.cli.output import warn
    from detent.kernel.errors import IntegrationMissing, StoreMissing, StoreUnavailable
    from detent.runtime.trust import StoreOutside

    try:
        async with workspace.store() as store:
            return await demotions(store)
    except (StoreMissing, StoreOutside):
        pass
    except (StoreUnavailable, IntegrationMissing) as error:
        warn(f"Levels are shown as configured, without demotions: {error}")
    return {}


async def known_watches(workspace: Workspace) -> dict[str, Watch]:
    """The watches over steps whose answers are used unchecked; none where there is no store."""
    from detent.dispatch.watch import WATCHES, Watch
    from detent.kernel.errors import IntegrationMissing, StoreMissing, StoreUnavailable
    from detent.runtime.trust import StoreOutside

    try:
        async with workspace.store() as store:
            marks = await store.marks(WATCHES)
    except (StoreMissing, StoreOutside, StoreUnavailable, IntegrationMissing):
        return {}
    return {key.removeprefix(WATCHES): Watch.from_plain(mark) for key, mark in marks.items()}


def in_force(configured: AutonomyLevel | None, held: Demotion | None) -> AutonomyLevel | None:
    """The level that applies: the configured one, or a lower one the step is held at."""
    if held is None or (configured is not None and configured <= held.level):
        return configured
    return held.level


def level_text(configured: str | None, level: str | None) -> str:
    """The level in force, and the configured one if that is another."""
    if level is None or level == configured:
        return configured or "-"
    return f"{level} (configured: {configured})" if configured else level


async def _set(store: Store, key: str, value: Any) -> None:
    """Set a mark unconditionally, whatever its version."""
    while True:
        _, version = await store.mark(key)
        if await store.set_mark(key, value, version):
            return


def told(step: str, held: Demotion) -> str:
    """A demotion in words: to what, from what, when, by whom, why."""
    from detent.cli.output import clean, local

    was = f" from {held.was.value}" if held.was is not None else ""
    why = f": {held.why}" if held.why else ""
    return clean(f"{step} was lowered{was} to {held.level.value} on {local(held.at)} by {held.by}{why}.")


def plain_of(held: Demotion) -> dict[str, Any]:
    from detent.cli.output import iso

    return {**held.to_plain(), "at": iso(held.at)}


# -- names --------------------------------------------------------------------------------------------------


def places_of(flows: Mapping[str, Flow]) -> dict[str, tuple[Flow, Step]]:
    """Every step by its qualified name."""
    return {flow.qualified(step): (flow, step) for flow in flows.values() for step in flow.every_step()}


def known_step(step: str, known: Iterable[str]) -> str:
    """Resolve a step's short or qualified name to the qualified one."""
    from detent.kernel.errors import ConfigurationError, nearest

    names = sorted(set(known))
    matches = [step] if step in names else [name for name in names if means(step, name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigurationError(f"Several steps are named '{step}': {', '.join(matches)}. Say which.")
    if not names:
        raise ConfigurationError(
            f"There is no step '{step}': no flow is known here. Name the file or module with --plugin."
        )
    near = nearest(step, [*names, *(name.rpartition("/")[2] for name in names)])
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    raise ConfigurationError(f"There is no step '{step}'.{near} Steps: {shown}.")


def means(name: str, step: str) -> bool:
    """Whether `name` is this step's qualified or own name."""
    return name == step or name == step.rpartition("/")[2]


def resolved(workspace: Workspace, flow: Flow, step: Step) -> Resolved:
    """The configuration of a step, resolved over all layers."""
    from detent.dispatch.dispatcher import Dispatcher
    from detent.runtime.dispatch_settings import dispatch_settings

    settings = dispatch_settings(workspace.settings, [flow], complete=False)
    return Dispatcher(settings).plan_for(flow, step).resolved
