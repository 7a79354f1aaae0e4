"""The files of one show and their content, made of the run's journal when the run ends.

Each file is one effect of the run, so that a run that was killed between two of them writes the rest. The
content follows from the journal alone: a repeated effect finds the file as it would write it, and leaves it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.apps.choreography.audio.problem import AudioProblem
from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
from detent.apps.choreography.domain.song_file import check_song
from detent.apps.choreography.output import Output, write_file
from detent.apps.choreography.request import rig_of, song_of, stage_of
from detent.apps.choreography.songs import unchanged
from detent.authoring.document import file_bytes
from detent.engine.journal_reader import load, read
from detent.engine.moves import END
from detent.engine.outcome import Effect
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.flows.refine.checkpoints import CheckpointManager, CheckpointType
from detent.flows.refine.decisions import REJECTED
from detent.flows.refine.evaluation import Evaluation
from detent.flows.refine.result import OrchestratorResult, result_in_journal, result_of
from detent.flows.refine.run_data import PREPARED
from detent.flows.refine.state_machine import OrchestrationState, OrchestrationStateMachine
from detent.insight.formatting import count
from detent.kernel.entries import EffectDone, Entry, Proposed, body_from_plain
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import decode, writable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from detent.engine.engine import Engine
    from detent.engine.ports import Store

WRITE = "choreography.write"
WARNINGS = "warnings"
"""Of a receipt: what is to be known about the sequence, or about the folder."""
LAST_BEFORE_RESULT = "metrics"
"""The file whose receipt warns of the folder: the result, which lists the warnings, is written after it."""
LAST = "state_machine"
"""The last file."""

LISTED = 6
"""Most files that one warning lists."""

OpenStore = Callable[[], Any]
"""Opens the store that has the run: an async context manager."""


class Show(NamedTuple):
    """All that a run has come to."""

    request: Mapping[str, Any]
    """Prepared, with the analysis, if the song could be measured."""
    result: OrchestratorResult
    machine: OrchestrationStateMachine
    own: Mapping[str, str] = {}
    """SHA-256 of the files that the run has written, by their paths."""

    @property
    def plan(self) -> AgentPlan:
        """The plan of the best attempt."""
        return AgentPlan.model_validate(self.result.plan)

    @property
    def implementation(self) -> AgentImplementation:
        """The implementation of the best attempt.

        Parts of no section of the plan are left out: their light is planned nowhere.
        """
        made = AgentImplementation.model_validate(self.result.implementation)
        known = {section.name for section in self.plan.sections}
        return made.model_copy(
            update={"sections": tuple(part for part in made.sections if part.plan_section_name in known)}
        )


# -- content ------------------------------------------------------------------------------------------------


def sequence(show: Show) -> tuple[bytes, list[str]]:
    """The xLights sequence, and what is to be known about it."""
    content, warnings = sequence_of(show.request, show.plan, show.implementation)
    if unknown := len(show.result.implementation["sections"]) - len(show.implementation.sections):
        warnings = [f"{count(unknown, 'part')} of no section of the plan: left out.", *warnings]
    best = show.result.best
    if best is not None and best.executors.get("implement") == "code":
        _, left_out = implement(song_of(show.request), show.plan, stage_of(show.request))
        warnings = [*left_out, *warnings]
    return content, [*show.request["audio"]["warnings"], *warnings]


def sequence_of(
    request: Mapping[str, Any], plan: AgentPlan, implementation: AgentImplementation
) -> tuple[bytes, list[str]]:
    """The xLights sequence of an implementation, and what was done differently than planned.

    Raises:
        ConfigurationError: the base sequence cannot be used.
    """
    from detent.apps.choreography.show import xsq
    from detent.apps.choreography.show.render import render
    from detent.apps.choreography.show.xsq_reader import sequence_bytes

    song, rig = song_of(request), rig_of(request)
    base = None if request["xsq_path"] is None else xsq.Base(sequence_bytes(Path(request["xsq_path"])))
    frame_ms = request["frame_ms"] if base is None else base.frame_ms
    rendering = render(song, plan, implementation, rig, stage_of(request), frame_ms)
    content = xsq.write(
        song, plan, implementation, rendering, rig, media=request["media"] or request["audio_path"],
        base=base, head={"song": request["project"]}, xlights_version=request["xlights_version"],
        notes=request["notes"],
    )  # fmt: skip
    return content, [*rendering.warnings, *(base.warnings(song, content) if base is not None else ())]


def picture(show: Show, kind: str) -> bytes:
    """The picture of the show, as SVG or PNG."""
    return drawn(show.request, show.plan, show.implementation, show.result, show.result.evaluation, kind)


def drawn_result(final: Mapping[str, Any], audio: Mapping[str, Any], kind: str) -> bytes:
    """The picture of a show, from the files that its run has written.

    Raises:
        ConfigurationError: the files are not those of a show with an implementation.
    """
    try:
        request = {**final["request"], "audio": audio}
        check_song(audio)
        for read in (stage_of, rig_of):
            read(request)
        plan = AgentPlan.model_validate(final["plan"])
        implementation = AgentImplementation.model_validate(final["implementation"])
        evaluation = final["evaluation"] and Evaluation.from_plain(final["evaluation"])
        facts = OrchestratorResult(
            final["status"], final["run_id"], final["final_state"], iterations=final["iterations"],
            tokens_used=final["tokens_used"],
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError, ConfigurationError) as error:
        raise ConfigurationError(
            f"This is not the result of a show with an implementation ({type(error).__name__}: {error})."
        ) from error
    return drawn(request, plan, implementation, facts, evaluation, kind)


def drawn(
    request: Mapping[str, Any],
    plan: AgentPlan,
    implementation: AgentImplementation,
    result: OrchestratorResult,
    evaluation: Evaluation | None,
    kind: str,
) -> bytes:
    """The picture of an implementation."""
    from detent.apps.choreography import picture

    image = (picture.svg if kind == "svg" else picture.png)(
        request["audio"], plan, implementation, evaluation, stage_of(request), rig_of(request),
        title=request["project"], status=result.status, iterations=result.iterations,
        tokens=result.tokens_used,
    )  # fmt: skip
    return writable(image).encode() if isinstance(image, str) else image


def text(value: Any) -> bytes:
    """A value as readable JSON; half a surrogate pair, which an agent may write, is spelled out."""
    return (writable(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)) + "\n").encode()


def final(show: Show) -> dict[str, Any]:
    """The result, with what the show was made for."""
    request = {key: value for key, value in show.request.items() if key not in ("audio", "base")}
    return {**show.result.to_plain(), "request": request}


def evaluation(show: Show) -> Any:
    """The evaluation of the best attempt."""
    return show.result.to_plain()["evaluation"]


CONTENT: dict[str, Callable[[Show], bytes]] = {
    "audio": lambda show: text(show.request["audio"]),
    "plan": lambda show: text(show.result.plan),
    "implementation": lambda show: text(show.result.implementation),
    "evaluation": lambda show: text(evaluation(show)),
    "base": lambda show: text(show.request.get("base") or {"xsq_path": show.request["xsq_path"]}),
    "result": lambda show: text(final(show)),
    "metrics": lambda show: f"{show.result.metrics['report']}\n".encode(),
    "state_machine": lambda show: text(show.machine.to_dict()),
    "svg": partial(picture, kind="svg"),
    "png": partial(picture, kind="png"),
}
"""What a file holds, by the word that its effect names; of the sequence see `sequence`."""


def files(result: OrchestratorResult) -> Iterator[tuple[str, Path]]:
    """What is written at the end of a run, and where."""
    output = Output.from_plain(result.request["output"])
    project = result.request["project"]
    checkpoint = CheckpointManager(output.folder, project).path
    if (result.reason or "").startswith(REJECTED):
        return  # nothing was made, and an earlier show in the folder stays as it is
    if result.final_state != OrchestrationState.INITIALIZED.value:
        yield "audio", output.folder / "audio.json"
        yield "audio", checkpoint(CheckpointType.AUDIO)
    yield "base", checkpoint(CheckpointType.SEQUENCE)
    if result.plan is not None:
        yield "plan", output.folder / "plan.json"
        yield "plan", checkpoint(CheckpointType.RAW)
    if result.implementation is not None:
        yield "implementation", output.folder / "implementation.json"
        yield "implementation", checkpoint(CheckpointType.IMPLEMENTATION)
        if result.evaluation is not None:
            yield "evaluation", output.folder / "evaluation.json"
            yield "evaluation", checkpoint(CheckpointType.EVALUATION)
        yield "sequence", output.sequence
        if output.picture:
            yield "svg", output.folder / "timeline.svg"
            yield "png", output.folder / "timeline.png"
    yield "metrics", output.folder / "metrics.txt"
    yield "result", output.folder / "result.json"
    yield "result", checkpoint(CheckpointType.FINAL)
    yield "state_machine", checkpoint(CheckpointType.STATE_MACHINE)


def _left_over(result: OrchestratorResult) -> list[str]:
    """A warning of files in the folder that an earlier show has left, and this one does not replace."""
    output = Output.from_plain(result.request["output"])
    own = {path for _, path in files(result)}
    others = [path.relative_to(output.folder).as_posix() for path in output.of_shows() if path not in own]
    if not others:
        return []
    are = "is" if len(others) == 1 else "are"
    return [
        f"In {output.folder}, {_listed(others)} {are} of an earlier show. Delete what is no longer wanted."
    ]


def _overwritten(show: Show) -> list[str]:
    """A warning of files that are no longer as this run has written them: another may write here as well."""
    folder = Output.from_plain(show.request["output"]).folder

    def changed(path: Path, sha256_then: str) -> bool:
        try:
            return sha256(file_bytes(path)).hexdigest() != sha256_then
        except OSError:
            return True

    others = [Path(path).name for path, then in show.own.items() if changed(Path(path), then)]
    if not others:
        return []
    them = "it" if len(others) == 1 else "them"
    return [
        f"In {folder}, {_listed(others)} changed since this run wrote {them}: "
        f"another run may write there as well. Give each its own --out, and make this show again."
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if names[LISTED:] else "")


def finisher(result: OrchestratorResult) -> list[Effect]:
    """The effects at every end of a run: one for each file."""
    return [Effect(WRITE, {"what": what, "path": str(path)}) for what, path in files(result)]


# -- the tool -----------------------------------------------------------------------------------------------


def write_tool(open_store: OpenStore) -> Tool:
    """The effect that writes one file of a show."""

    async def write(call: EffectCall, what: str, path: str) -> dict[str, Any]:
        """Write one file of a light show."""
        async with open_store() as store:
            show = await show_of(store, call.run_id)
        try:
            return await asyncio.to_thread(written, show, what, Path(path))
        except OSError as error:
            raise ToolError("write_failed", f"{path} cannot be written: {error.strerror}.") from error
        except AudioProblem as error:
            raise ToolError(error.code, str(error)) from error
        except ConfigurationError as error:
            raise ToolError("refused", str(error)) from error
        except Exception as error:  # a file is written whole or not at all, so nothing is in doubt
            message = f"{path} cannot be written: {type(error).__name__}: {error}"
            raise ToolError("write_failed", message) from error

    return Tool(WRITE, write, idempotent=True, wants_call=True, description="Write one file of a light show.")


def written(show: Show, what: str, path: Path) -> dict[str, Any]:
    """Write one file of a show, unless it is there already.

    Raises:
        OSError: it cannot be written.
        AudioProblem: the song has changed.
        ConfigurationError: a sequence is there that must not be overwritten.
    """
    warnings: list[str] = []
    if what == LAST_BEFORE_RESULT:
        warnings = _left_over(show.result)
    if what in (LAST_BEFORE_RESULT, LAST):
        warnings += _overwritten(show)
    if what == "sequence":
        if Path(show.request["audio_path"]).exists():  # what was measured is kept, so it may be gone
            unchanged(show.request)
        content, warnings = sequence(show)
    else:
        content = CONTENT[what](show)
    if not path.is_file() or path.read_bytes() != content:
        if what == "sequence":
            Output.from_plain(show.request["output"]).check(show.own.get(str(path)))
        write_file(path, content)
    receipt = {"path": str(path), "bytes": len(content), "sha256": sha256(content).hexdigest()}
    return {**receipt, WARNINGS: warnings} if warnings else receipt


async def show_of(store: Store, run_id: str) -> Show:
    """What a run has come to, its end included that is about to be written."""
    run = await load(store, run_id)
    entries = [entry async for entry in read(store, run_id)]
    proposal = run.proposal
    if proposal is not None and END in proposal.outcome:
        end = proposal.outcome[END]
        last = entries[-1]
        # The time at which the end was decided: a worker that takes the run over adds later entries.
        at = next(entry.at for entry in reversed(entries) if isinstance(entry.body, Proposed))
        entry = Entry(last.seq + 1, at, last.epoch, body_from_plain(end["kind"], end["body"]))
        entries.append(entry)
        run.apply(entry)
    result = result_in_journal(run, entries)
    request = dict(result.request)
    reference = run.data.get(PREPARED)
    if reference is not None and (raw := await store.blob(reference["$blob"])) is not None:
        request = decode(raw)
    machine = OrchestrationStateMachine.from_journal(entries, max_iterations=result.settings.max_iterations)
    own = {receipt["path"]: receipt["sha256"] for receipt in _receipts(entries) if "sha256" in receipt}
    return Show(request, with_warnings(result, entries), machine, own)


async def result_of_show(engine: Engine, run_id: str) -> OrchestratorResult:
    """What came of a run, with the warnings about the sequence that was written."""
    result = await result_of(engine, run_id)
    return with_warnings(result, [entry async for entry in read(engine.store, run_id)])


def with_warnings(result: OrchestratorResult, entries: Sequence[Entry]) -> OrchestratorResult:
    """A result, with the warnings about the files as they were written last."""
    last = {receipt["path"]: receipt.get(WARNINGS, ()) for receipt in _receipts(entries) if "path" in receipt}
    return replace(result, warnings=(*result.warnings, *(line for lines in last.values() for line in lines)))


def _receipts(entries: Sequence[Entry]) -> Iterator[Mapping[str, Any]]:
    for entry in entries:
        body = entry.body
        if isinstance(body, EffectDone) and body.tool == WRITE and isinstance(body.receipt, Mapping):
            yield body.receipt


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    """A store that is open already, and stays so."""
    yield store
