"""The group `autonomy` and its command `report`, also `stats agreement`: how agents compare with code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.autonomy import (
    SECTION,
    demote,
    demotions,
    in_force,
    known_step,
    level_text,
    list_,
    means,
    places_of,
    resolved,
    restart,
    restore,
    told,
)
from detent.cli.options import Format, Options, Since, takes
from detent.cli.power import power

if TYPE_CHECKING:
    from detent.cli.editing import Change
    from detent.cli.workspace import Workspace
    from detent.dispatch.agreement import Difference, KindFigures, StepFigures
    from detent.dispatch.autonomy import AutonomyLevel
    from detent.dispatch.evidence import EvidenceRules, Power
    from detent.engine.flow import Flow
    from detent.engine.step import Step

Levels = Mapping[str, "AutonomyLevel | None"]
"""Configured levels, by step."""

RECENT_DAYS = 30
PAGE = 200
"""Runs listed at a time."""
NOTHING_YET = (
    "No agent has been put to the test yet: no step of a run in this store was performed or shadowed by one."
)


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(no_args_is_help=True, help="Show and change how far agents are trusted.")
    for name, command in (
        ("report", report),
        ("demote", demote),
        ("restore", restore),
        ("restart", restart),
        ("list", list_),
        ("power", power),
    ):
        group.command(name)(command)
    app.add_typer(group, name="autonomy", rich_help_panel=SECTION)
    stats = typer.Typer(no_args_is_help=True, help="Statistics over many runs.")
    stats.command("agreement")(report)
    app.add_typer(stats, name="stats", rich_help_panel=SECTION)


# -- the report ---------------------------------------------------------------------------------------------


@takes("format", "json", "project")
def report(
    options: Options,
    steps: Annotated[
        list[str] | None,
        typer.Argument(metavar="STEP", help="Steps, as flow/step or by their own name; all if left out."),
    ] = None,
    flow: Annotated[
        str | None, typer.Option("--flow", "--workflow", metavar="NAME", help="Only steps of this flow.")
    ] = None,
    since: Since = None,
    differences: Annotated[
        bool, typer.Option("--differences", help="List the latest disagreements.")
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Include earlier series of a step: other model, prompt or handler.")
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Write the justified levels into the project file, after confirmation."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Report, step by step, how often agents agreed with the code.

    Nothing is raised by itself: the settings to change are printed, and --apply writes them.
    """
    from detent.cli.output import say, say_plain
    from detent.cli.values import read_time
    from detent.cli.workspace import run_async

    workspace = options.workspace(looks=not apply)
    selection = _Selection(list(steps or ()), flow, read_time(since, "--since"))
    rows, advice, levels, rules = run_async(_report(workspace, selection))
    shown = [row for row in rows if all_ or row.newest]
    if options.json or options.format is not Format.table:
        say_plain(_plain(shown, advice, levels, differences), options.format)
    elif not shown:
        say(selection.nothing)
    else:
        _say_table(shown, levels, all_)
        if len(shown) < len(rows):
            more = len(rows) - len(shown)
            say()
            say(f"{more} earlier series (another model, prompt or handler) not shown; --all shows them.")
        _say_promises(shown, rows, rules)
        _say_demotions(workspace, shown)
        if differences:
            _say_differences(shown)
        _say_advice(workspace, advice)
    if apply:
        _apply(workspace, advice, yes)


class _Selection:
    """The steps and the period a report covers."""

    def __init__(self, steps: list[str], flow: str | None, since: float | None) -> None:
        self.steps, self.flow, self.since = steps, flow, since
        self.by_runs = False
        """Whether the runs being read belong to the named flow, so that every step in them is selected."""

    def __call__(self, step: str) -> bool:
        if self.flow is not None and not self.by_runs and self.flow not in step.split("/")[:-1]:
            return False
        return not self.steps or any(means(name, step) for name in self.steps)

    def of(self, names: list[str]) -> list[str | None]:
        """Flows whose runs must be read: the selected flow and its loops, or all flows (None)."""
        if self.flow is None or self.flow not in names:
            return [None]
        return [name for name in names if name == self.flow or name.startswith(f"{self.flow}.")]

    @property
    def nothing(self) -> str:
        """Message for an empty report."""
        if not self.steps and self.flow is None and self.since is None:
            return NOTHING_YET
        of = f" of {', '.join(self.steps)}" if self.steps else ""
        flow = f" in {self.flow}" if self.flow is not None else ""
        since = " in that time" if self.since is not None else ""
        return f"No agent has been put to the test{of}{flow}{since}."


class _Advice:
    """The level the figures of one step justify, and how to set it."""

    def __init__(self, step: str, level: AutonomyLevel) -> None:
        self.step, self.level = step, level
        self.changes: list[Change] = []
        self.instead: str | None = None
        """Advice for a step whose level no project setting can raise."""

    @property
    def line(self) -> str:
        """The entry under `steps`."""
        fields = ", ".join(f"{path[-1]}: {value}" for path, value in self.changes)
        return f"{self.step}: {{{fields}}}"

    def to_plain(self) -> dict[str, Any]:
        settings = {path[-1]: value for path, value in self.changes}
        return {
            "step": self.step,
            "level": self.level.value,
            "settings": {"steps": {self.step: settings}} if settings else None,
            "instead": self.instead,
        }


async def _report(
    workspace: Workspace, selection: _Selection
) -> tuple[list[StepFigures], list[_Advice], dict[str, AutonomyLevel | None], EvidenceRules]:
    """The figures of every series, the levels they justify, the configured levels, and the rules."""
    from detent.dispatch.agreement import Agreement
    from detent.dispatch.autonomy import StepMode
    from detent.dispatch.evidence_log import stored_evidence
    from detent.engine.journal_reader import read
    from detent.engine.ports import RunQuery
    from detent.kernel.errors import FlowNotFound
    from detent.runtime.dispatch_settings import dispatch_settings

    rules = dispatch_settings(workspace.settings, (), agents=None, complete=False).evidence
    async with workspace.store() as store:
        names = list(dict.fromkeys(name for name, _, _ in await store.flows()))
        agreement = Agreement(rules, since=selection.since, wanted=selection)
        for name in selection.of(names):
            selection.by_runs = name is not None and name == selection.flow
            cursor: int | None = None
            while True:  # a page at a time, so that a store of any size is read in little memory
                page = await store.rows(RunQuery(name, before=cursor, limit=PAGE))
                for row in page.rows:
                    if selection.since is not None and row.now.updated_at < selection.since:
                        continue
                    journal = agreement.journal(row.id)
                    async for entry in read(store, row.id):
                        journal.add(entry)
                cursor = page.next
                if cursor is None:
                    break
        selection.by_runs = selection.flow in names
        if selection.flow is not None and names and not selection.by_runs and not agreement.steps:
            flows = await workspace.known(store)
            if selection.flow not in flows:
                raise FlowNotFound(selection.flow, {"flow": [*names, *flows]})
        for wanted_step in selection.steps:
            if not any(means(wanted_step, step) for step in agreement.steps):
                known_steps = places_of(await workspace.known(store))
                if not any(means(wanted_step, step) for step in known_steps):
                    known_step(wanted_step, [*known_steps, *agreement.steps])
        held = await demotions(store)
        places = places_of(await workspace.known(store))
        from detent.dispatch.agent_side import highest_level

        caps = {name: cap for name, (_, step) in places.items() if (cap := highest_level(step)) is not None}
        configs = {
            step: resolved(workspace, *places[step]).config for step in agreement.steps if step in places
        }
        levels = {step: config.autonomy for step, config in configs.items()}
        # What the evidence justifies depends on the level in force now, whatever the last run had.
        by_agent = {step: levels[step] for step, config in configs.items() if config.mode is StepMode.AGENT}
        rows = agreement.figures(held, caps, by_agent, await stored_evidence(store, time.time()))
        advice = [
            _advise(workspace, row, row.could_be, places)
            for row in rows
            if row.newest and row.could_be is not None
        ]
        return rows, advice, levels, rules


def _advise(
    workspace: Workspace, row: StepFigures, level: AutonomyLevel, places: Mapping[str, tuple[Flow, Step]]
) -> _Advice:
    """Work out how the step's level would be raised."""
    from detent.dispatch.autonomy import AutonomyLevel

    advice = _Advice(row.step, level)
    resolution = resolved(workspace, *places[row.step]) if row.step in places else None
    if row.demotion is not None:
        configured = resolution.config.autonomy if resolution is not None else row.demotion.was
        whole = configured is None or configured <= level
        words = ("restore", row.step) if whole else ("demote", row.step, "--to", level.value)
        advice.instead = workspace.command("autonomy", *words)
        return advice
    if resolution is None:
        advice.instead = "no flow known here has this step any more"
        return advice
    fields = ("autonomy", "mode") if row.now in (None, AutonomyLevel.OPERATOR) else ("autonomy",)
    if any(resolution.sources.get(name) == "inline" for name in fields):
        advice.instead = "its own configuration in the flow says how far it is trusted; change it there"
        return advice
    if row.now in (None, AutonomyLevel.OPERATOR):
        advice.changes.append((("steps", row.step, "mode"), "agent"))
    advice.changes.append((("steps", row.step, "autonomy"), level.value))
    return advice


def _levels(row: StepFigures, levels: Levels) -> tuple[str | None, str | None]:
    """The level in force and the configured one; for a step not known here, those of its last execution."""
    if row.step in levels:
        configured = levels[row.step]
        level = in_force(configured, row.demotion)
    else:
        configured, level = (row.demotion.was if row.demotion is not None else row.now), row.now
    return level and level.value, configured and configured.value


def _plain(
    rows: list[StepFigures], advice: list[_Advice], levels: Levels, differences: bool
) -> dict[str, Any]:
    from detent.cli.output import iso

    plain = []
    for row in rows:
        figures = row.to_plain()
        figures["now"], figures["configured"] = _levels(row, levels)
        for key in ("first_at", "last_at"):
            figures[key] = iso(figures[key])
        if figures["demotion"] is not None:
            figures["demotion"]["at"] = iso(figures["demotion"]["at"])
        figures["differences"] = [{**item, "at": iso(item["at"])} for item in figures["differences"]]
        if not differences:
            del figures["differences"]
        plain.append(figures)
    return {"steps": plain, "justified": [item.to_plain() for item in advice]}


def _say_table(rows: list[StepFigures], levels: Levels, whole: bool) -> None:
    from detent.cli.output import table

    heads = ["STEP", "JUDGED BY", "N", "WRONG", "POWER", "TRUE ERROR", "UNUSABLE", "FALLBACKS",
             "AGENT/HANDLER MS", "COST", "NOW", "COULD BE"]  # fmt: skip
    lines = [(row, kind) for row in rows for kind in row.kinds]
    cells = [_cells(row, kind, *_levels(row, levels)) for row, kind in lines]
    if whole:
        heads[1:1] = ["MODEL", "PROMPT", "HANDLER", "CHECK", "SAMPLING"]
        for (row, _), line in zip(lines, cells, strict=True):
            line[1:1] = [part or "–" for part in row.series[1:]]
    at = heads.index("N")
    table(heads, cells, right=(at, at + 1, at + 6, at + 7))


def _say_promises(shown: list[StepFigures], rows: list[StepFigures], rules: EvidenceRules) -> None:
    """Say what a proposed level means, and how many attempts there were: of many, one succeeds by luck."""
    from detent.cli.output import clean, say
    from detent.dispatch.autonomy import AutonomyLevel

    recent = time.time() - RECENT_DAYS * 86400
    for row in shown:
        if not row.newest or row.could_be in (None, AutonomyLevel.COLLABORATOR):
            continue
        assert row.could_be is not None
        share = rules.audited_share(row.could_be, row.power)
        low = 1.0 if row.power is None else max(row.power.low(rules), 0.01)
        attempt = f" This is attempt {row.standing.attempt}." if row.standing.attempt > 1 else ""
        tried = sum(each.step == row.step and each.last_at > recent for each in rows)
        if tried > 1:
            attempt += f" {tried} prompts, models or handlers were tried in {RECENT_DAYS} days."
        say()
        unseen = f"{1 / (share * low):.0f}" if share else "all"
        seen = f"about {unseen} wrong ones go out before one is seen"
        told_of = f"{row.step} at {row.could_be.value}: {share:.0%} of its answers are judged afterwards"
        say(clean(f"{told_of}; {seen}.{attempt}"))


def _say_demotions(workspace: Workspace, rows: list[StepFigures]) -> None:
    from detent.cli.output import say

    for row in rows:
        if row.newest and row.demotion is not None:
            say()
            say(told(row.step, row.demotion))
            say(f"Back with: {workspace.command('autonomy', 'restore', row.step)}")


def _cells(row: StepFigures, kind: KindFigures, level: str | None, configured: str | None) -> list[str]:
    """One line of the table: no share without its number, its judge and its power."""
    from detent.dispatch.draft_plants import judged_by
    from detent.insight.formatting import money

    agent, handler = _ms(row.agent_ms), _ms(row.handler_ms)
    return [
        f"{row.step} ({kind.kind})" if kind.kind else row.step,
        (judged_by(kind.judges) or "–") + (f", {kind.replayed:,} replayed" if kind.replayed else ""),
        f"{kind.n:,}",
        str(kind.wrong),
        _power(kind.power, row.planted),
        f"at most {kind.at_most:.1%}" if kind.at_most is not None else "not known",
        ", ".join(f"{what} {count}" for what, count in row.unusable.items()) or "–",
        ", ".join(f"{reason} {count}" for reason, count in row.fallbacks.items()) or "–",
        f"{agent} / {handler}",
        money(row.cost_usd) if row.cost_usd is not None else "–",
        level_text(configured, level) if level else "–",
        kind.could_be.value if kind.could_be is not None else str(kind.why_not),
    ]


def _power(power: Power | None, planted: int) -> str:
    """The power of the check by its weakest sort of planted errors; `planted` drafts were decided on."""
    if power is None:
        return f"{planted} planted, too few" if planted else "none planted"
    return f"{power.share:.2f} ({power.caught} of {power.planted})"


def _ms(value: float | None) -> str:
    """Whole milliseconds; below one millisecond, enough digits to show a value."""
    return "–" if value is None else f"{value:.0f}" if value >= 1 or not value else f"{value:.1g}"


def _say_differences(rows: list[StepFigures]) -> None:
    from detent.cli.output import clean, paint, say

    for row in rows:
        if row.differences:
            say()
            series = "" if row.newest else f" (earlier series: {_series(row)})"
            say(paint(clean(f"{row.step}{series}: latest differences"), bold=True))
            for difference in row.differences:
                say(f"  {_difference(difference)}")


def _series(row: StepFigures) -> str:
    """The model, prompt, handler, check and way of sampling of a series."""
    names = ("model", "prompt", "handler", "check", "sampling")
    return ", ".join(f"{name} {part}" for name, part in zip(names, row.series[1:], strict=True) if part)


def _difference(difference: Difference) -> str:
    from detent.cli.output import clean, local

    # An empty pointer is the whole output.
    where = ", ".join(pointer or "(all of it)" for pointer in difference.pointers)
    more = f" and {difference.more} more" if difference.more else ""
    beside = " (shadow)" if difference.shadow else ""
    summary = f"{difference.what} at {where}{more}" if where else difference.later or difference.what
    return clean(f"{local(difference.at)}  run {difference.run}, entry {difference.entry}{beside}: {summary}")


def _say_advice(workspace: Workspace, advice: list[_Advice]) -> None:
    from detent.cli.output import clean, say

    file = workspace.settings.file
    lines = [item.line for item in advice if item.changes]
    if lines:
        say()
        say(f"The evidence would justify this in {file.name if file is not None else 'detent.yaml'}:")
        say()
        say("steps:")
        for line in lines:
            say(f"  {clean(line)}")
        say()
        say(f"Nothing is raised by itself. To write it: {workspace.command('autonomy', 'report', '--apply')}")
    for item in advice:
        if item.instead is not None:
            say()
            say(clean(f"{item.step} could be {item.level.value}: {item.instead}"))


def _apply(workspace: Workspace, advice: list[_Advice], yes: bool) -> None:
    """Write the justified levels into the project file."""
    from detent.cli.editing import CannotEdit, changed, write
    from detent.cli.output import warn
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.settings import FILES
    from detent.runtime.trust import trusted_as_made

    chosen = [item for item in advice if item.changes]
    if not chosen:
        warn("There is nothing to write: the evidence justifies no change of the settings.")
        return
    file = workspace.settings.file or workspace.settings.folder / FILES[0]
    try:
        old = file.read_bytes() if file.exists() else None
        text = (old or b"").decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file.name} cannot be read: {error}.") from None
    try:
        new = changed(text, [change for item in chosen for change in item.changes])
    except CannotEdit as error:
        lines = "\n".join(f"  {item.line}" for item in chosen)
        raise CannotEdit(
            f"{file.name} was left as it is, for {error}. Change it yourself, under `steps`:\n{lines}"
        ) from None
    if new == text:
        warn(f"{file.name} says so already; something stronger (the environment) decides.")
        return
    raises = "; ".join(f"{item.step} to {item.level.value}" for item in chosen)
    if not yes and not _agreed(f"Raise {raises}, in {file.name}?"):
        warn("Nothing was changed.")
        return
    config = str(workspace.settings.file) if workspace.settings.file is not None else None
    with trusted_as_made(workspace.settings.folder, config):
        write(file, old, new)
    warn(f"Written to {file.name}: {raises}.")


def _agreed(question: str) -> bool:
    """Whether a person at the terminal agrees."""
    import sys

    from detent.cli.output import clean
    from detent.kernel.errors import ConfigurationError

    print(f"{clean(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    reply = sys.stdin.readline()
    if not reply:
        raise ConfigurationError(
            "No answer was given, so nothing was changed. Without a terminal, confirm with --yes."
        )
    return reply.strip().lower() in ("y", "yes")
