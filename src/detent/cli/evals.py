"""The command `eval`: plays suites of cases and reports the results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detent.cli.suites import Chosen
    from detent.cli.workspace import Workspace
    from detent.evals.case import EvalTestCase
    from detent.evals.filter import Filter
    from detent.evals.played import Player, PlayOptions
    from detent.evals.reading import BrokenFile
    from detent.evals.report import EvalReport

SECTION = "Judge"
NOT_ENOUGH = 4
"""Exit code when the threshold was missed or there was nothing to play."""
KEPT = ".detent/evals"
"""Folder, in the working folder, that keeps the last report of each suite."""


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("eval", rich_help_panel=SECTION)(evaluate)


@takes("plugin", "config", "log_level")
async def evaluate(
    options: Options,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="APP|DIR", help="A suite, a folder a suite can judge, or a file.py with a suite."
        ),
    ] = None,
    eval_dir: Annotated[
        str | None, typer.Option("--eval-dir", metavar="DIR", help="Folder to read the cases from.")
    ] = None,
    orchestrator: Annotated[
        str | None, typer.Option("--orchestrator", metavar="MODE", help="A mode the suite knows, or both.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", metavar="N", help="Percent of the cases that must pass.")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", help="Play each case N times.")] = 1,
    min_kept: Annotated[
        str | None,
        typer.Option(
            "--min-kept",
            metavar="SHARE",
            help="Share of the agents' answers that must be kept, such as 0.9 or 90%.",
        ),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Fail a case whose repetitions differ.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="DIR", help="Record every model answer there.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="DIR", help="Replay every model answer from there.")
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", metavar="NAME", help="Play in this arm of an experiment. May be repeated."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", help="Cases played at the same time.")
    ] = None,
    json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON; - prints it.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the report as JUnit XML.")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            "-s", "--scenario", metavar="TEXT", help="Only cases with this text in their id or subject."
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option("--category", metavar="NAME", help="Only this category. May be repeated."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Only cases with this tag. May be repeated."),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="ID", help="Only cases whose path has this step. May be repeated."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only cases that failed last time.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Count broken case files as failed and play the rest.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the output of each step.")] = False,
    failures_only: Annotated[
        bool, typer.Option("-f", "--failures-only", help="Show only failed cases.")
    ] = False,
    detailed: Annotated[
        bool, typer.Option("-d", "--detailed", help="Show expected and actual in full.")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="A B", help="Play nothing; compare report B with report A."),
    ] = None,
) -> int:
    """Play cases and compare what happened with what they expect.

    Without a suite: every suite of the project. Ends with 4 when too little passes or is kept,
    when a required case fails, and when there is nothing to play; with 2 when a case file is wrong.
    """
    if compare is not None:
        return _compare(*compare)
    from detent.evals.filter import Filter
    from detent.evals.played import PlayOptions
    from detent.kernel.errors import ConfigurationError

    if record is not None and replay is not None:
        raise ConfigurationError("--record and --replay exclude each other.")
    if replay is not None and not replay.is_dir():
        raise ConfigurationError(f"There is no folder {replay} (--replay).")
    workspace = options.workspace()
    case_filter = Filter(scenario or None, tuple(category or ()), tuple(tag or ()), tuple(step or ()))
    call = _Call(
        workspace, case_filter, failed, orchestrator, _threshold(workspace, threshold), repeat, deterministic,
        PlayOptions(record, replay), tuple(arm or ()), _jobs(workspace, jobs), json, junit, keep_going,
        {"verbose": verbose, "failures_only": failures_only, "detailed": detailed}, _min_kept(min_kept),
    )  # fmt: skip
    return await call.run(target, eval_dir)


async def _unusable(player: Player) -> str:
    """Why the models of agent steps cannot be asked, so that code performs them; empty where they can."""
    from detent.dispatch.autonomy import StepMode
    from detent.runtime.model_check import UnusableModel, unreachable

    dispatch = getattr(player, "dispatch", None)
    executors = getattr(dispatch, "executors", None)
    if dispatch is None or executors is None:
        return ""
    steps = [step for step in dispatch.steps.values() if step.mode is StepMode.AGENT]
    notes: list[str] = []
    for provider in dict.fromkeys(step.provider or executors.default for step in steps):
        why = executors.absent(provider)
        if why is None and provider is not None:
            address = getattr(getattr(executors.make(provider), "model", None), "base_url", None)
            why = await unreachable(address) if isinstance(address, str) else None
        if why is not None:
            notes.append(str(UnusableModel(provider, why, ())))
    return " ".join(notes)


@dataclass(frozen=True, slots=True)
class _Call:
    """One invocation of the command."""

    workspace: Workspace
    selection: Filter
    failed: bool
    orchestrator: str | None
    threshold: float
    repeat: int
    deterministic: bool
    play: PlayOptions
    arms: tuple[str, ...]
    jobs: int
    json: str | None
    junit: Path | None
    keep_going: bool
    shown: dict[str, bool]
    min_kept: float | None

    @property
    def quiet(self) -> bool:
        """True when standard output carries JSON."""
        return self.json == "-"

    async def run(self, target: str | None, eval_dir: str | None) -> int:
        """Play every selected suite and return the exit code."""
        from detent.cli.output import warn
        from detent.cli.suites import choose
        from detent.kernel.errors import ConfigurationError

        suites = choose(self.workspace, target, eval_dir)
        if not suites:
            warn("This project has no evals. Name a suite, a folder or a file: detent eval file.py")
            return NOT_ENOUGH
        if len(suites) > 1 and (self.json is not None or self.junit is not None):
            names = ", ".join(chosen.suite.name for chosen in suites)
            raise ConfigurationError(f"--json and --junit are for one suite; name it: {names}.")
        codes = [await self._suite(chosen) for chosen in suites]
        return max(codes)

    async def _suite(self, chosen: Chosen) -> int:
        from detent.evals.played import close
        from detent.runtime.evals import player_for

        player = player_for(chosen.suite, self.workspace.settings, chosen.folder)
        try:
            return await self._play(chosen, player)
        finally:
            await close(player)

    async def _play(self, chosen: Chosen, player: Player) -> int:
        from detent.cli.output import say, warn
        from detent.evals.case import STEP
        from detent.evals.compare import arms, render_arms
        from detent.evals.played import orchestrators_of
        from detent.evals.reading import read_cases
        from detent.evals.runner import EvalRunner

        suite = chosen.suite
        base = self.workspace.settings.folder
        read = read_cases(
            chosen.folder, player, ignore=suite.ignore,
            base=base if chosen.folder.is_relative_to(base) else chosen.folder,
        )  # fmt: skip
        if not self.keep_going:
            read.check()
        mode = self._mode(player)
        cases, broken = self._select(suite.name, player, mode, list(read.cases), list(read.broken))
        if not cases and not broken:
            warn(self._no_case_message(chosen, bool(read.cases), mode))
            return NOT_ENOUGH
        self._check_arms(player)
        runner = EvalRunner(
            player, suite=suite.name, threshold=self.threshold, jobs=self.jobs, repeat=self.repeat,
            deterministic=self.deterministic, options=self.play, arms=self.arms,
            min_kept=self.min_kept,
        )  # fmt: skip
        others = orchestrators_of(player)[1:] if mode == "both" else [mode]
        terminal = self._terminal(cases, broken, [other for other in others if other != STEP])
        if not self.quiet:
            count = len(cases) + len(broken)
            away = "" if self.deterministic or self.play.replay is not None else await _unusable(player)
            note = "   ".join(part for part in (chosen.note, away) if part)
            say(terminal.head(suite.name, count, mode, getattr(player, "model", None), note))

        def tell(result: Any) -> None:
            for line in terminal.case(result) if not self.quiet else ():
                say(line)

        report = await runner.run(cases, orchestrator=mode, broken=broken, tell=tell)
        if not self.quiet:
            for line in terminal.tail(report):
                say(line)
            for line in render_arms(arms(report)) if report.arms else ():
                say(f"  {line}")
        self._keep(report)
        return 0 if report.ok else NOT_ENOUGH

    def _mode(self, player: Player) -> str:
        from detent.evals.played import orchestrators_of, usual_orchestrator_of
        from detent.kernel.errors import ConfigurationError, nearest

        known = (*orchestrators_of(player), "both")
        mode = self.orchestrator
        if mode is None:
            return usual_orchestrator_of(player)
        if mode not in known:
            raise ConfigurationError(
                f"There is no orchestrator '{mode}' here.{nearest(mode, known)} It takes: {', '.join(known)}."
            )
        return mode

    def _select(
        self, suite: str, player: Player, mode: str, cases: list[EvalTestCase], broken: list[BrokenFile]
    ) -> tuple[list[EvalTestCase], list[BrokenFile]]:
        from dataclasses import replace

        from detent.evals.played import orchestrators_of
        from detent.evals.report import failed_ids

        modes = orchestrators_of(player) if mode == "both" else (mode,)
        cases = [case for case in cases if any(case.holds_for(mode) for mode in modes)]
        case_filter = self.selection
        if self.failed:
            last = self._last(suite)
            case_filter = replace(case_filter, failed=failed_ids(last) if last is not None else frozenset())
        if not case_filter:
            return cases, broken
        # Of a broken file only the name is known.
        text = (case_filter.scenario or "").casefold()
        only_name = not (case_filter.categories or case_filter.tags or case_filter.steps)
        left = [
            file
            for file in broken
            if only_name
            and text in file.scenario_id.casefold()
            and (case_filter.failed is None or file.scenario_id in case_filter.failed)
        ]
        return case_filter.pick(cases, player), left

    def _no_case_message(self, chosen: Chosen, any_case: bool, mode: str) -> str:
        shown = chosen.folder
        base = self.workspace.settings.folder
        where = shown.relative_to(base) if shown.is_relative_to(base) else shown.name
        if not any_case:
            return f"Suite '{chosen.suite.name}' has no case in {where}."
        if self.failed and not self.selection:
            return f"Nothing failed in the last report of suite '{chosen.suite.name}', or there is none."
        if not self.selection and not self.failed:
            return f"No case of suite '{chosen.suite.name}' holds for {mode} mode."
        return f"No case of suite '{chosen.suite.name}' is what was asked for; see the cases in {where}."

    def _check_arms(self, player: Player) -> None:
        from detent.evals.played import arms_of
        from detent.kernel.errors import ConfigurationError, nearest

        known = arms_of(player) or ()
        for arm in self.arms:
            if arm not in known:
                hint = f" Arms: {', '.join(known)}." if known else " This suite has no arms."
                raise ConfigurationError(f"There is no arm '{arm}'.{nearest(arm, known)}{hint}")

    def _terminal(
        self, cases: list[EvalTestCase], broken: list[BrokenFile], shown_modes: Sequence[str]
    ) -> Any:
        from detent.cli.output import paint
        from detent.evals.paths import drawn
        from detent.evals.references import stated_path
        from detent.evals.terminal import Terminal

        more = [max(shown_modes, key=len)] if shown_modes else []
        more += [max(self.arms, key=len)] if self.arms else []
        more += [f"#{self.repeat}"] if self.repeat > 1 else []
        suffix = len(f" [{', '.join(more)}]") if more else 0
        ids = [*(case.scenario_id for case in cases), *(file.scenario_id for file in broken)]
        paths = [drawn(stated_path(case)) for case in cases]
        return Terminal(
            label_width=max(map(len, ids)) + suffix,
            path_width=max(map(len, paths), default=0),
            paint=lambda text, colour: paint(text, colour),
            **self.shown,
        )

    # -- files ----------------------------------------------------------------------------------------------

    def _keep(self, report: EvalReport) -> None:
        from json import dumps

        from detent.cli.output import say, warn, write_file
        from detent.evals.junit import to_junit

        text = dumps(report.to_plain(), ensure_ascii=False, indent=2, allow_nan=False)
        if self.json == "-":
            say(text)
        elif self.json is not None:
            write_file(Path(self.json), f"{text}\n")
        if self.junit is not None:
            write_file(self.junit, to_junit(report))
        last = self._last_file(report.suite)
        try:
            last.parent.mkdir(parents=True, exist_ok=True)
            last.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            warn(f"The report is not kept for --failed: {error.strerror}.")

    def _last_file(self, suite: str) -> Path:
        name = "".join(char if char.isalnum() or char in "-_" else "_" for char in suite)
        return self.workspace.settings.folder / KEPT / f"{name}.json"

    def _last(self, suite: str) -> EvalReport | None:
        from detent.evals.report import read_report

        file = self._last_file(suite)
        return read_report(_text(file), file.name) if file.is_file() else None


def _text(file: Path) -> str:
    from detent.kernel.errors import ConfigurationError

    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not UTF-8 text (byte {error.start}).") from None


def _compare(before: Path, after: Path) -> int:
    from detent.cli.output import clean, say
    from detent.evals.compare import compare, render
    from detent.evals.report import read_report

    comparison = compare(read_report(_text(before), str(before)), read_report(_text(after), str(after)))
    for line in render(comparison):
        say(clean(line) if not line.startswith(" ") else f"  {clean(line.strip())}")
    return NOT_ENOUGH if comparison.worse else 0


def _threshold(workspace: Workspace, option: float | None) -> float:
    from detent.evals.report import THRESHOLD

    value = (
        option if option is not None else workspace.settings.get("eval", "pass_threshold", default=THRESHOLD)
    )
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 100
    return float(_fitting(workspace, fits, value, "pass_threshold", "a number above 0 and at most 100"))


def _min_kept(option: str | None) -> float | None:
    from detent.kernel.errors import ConfigurationError

    if option is None:
        return None
    number, percent, _ = option.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = float("nan")
    if not (0 < share <= 1) or option.strip() != f"{number}{percent}":
        raise ConfigurationError(
            f"--min-kept takes a share above 0 and at most 1, such as 0.9 or 90%, not {option!r}."
        )
    return share


def _jobs(workspace: Workspace, option: int | None) -> int:
    value = option if option is not None else workspace.settings.get("eval", "jobs", default=4)
    fits = type(value) is int and value >= 1
    return int(_fitting(workspace, fits, value, "jobs", "a whole number of 1 or more"))


def _fitting(workspace: Workspace, fits: bool, value: Any, key: str, expected: str) -> Any:
    from detent.kernel.errors import ConfigurationError

    if not fits:
        option = {"pass_threshold": "--threshold"}.get(key, f"--{key}")
        place = workspace.settings.places.get(("eval", key), option)
        raise ConfigurationError(f"{place}: eval.{key} takes {expected}, not {value}.")
    return value
