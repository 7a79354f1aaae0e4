"""The files of one show and their content, made of the run's journal when the run ends.

Each file is one effect of the run, so that a run that was killed between two of them writes the rest. The
content follows from the journal alone: a repeated effect finds the file as it would write it, and leaves it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.output import Output, write_file
from detent.apps.choreography.request import rig_of, song_of, stage_of
from detent.engine.journal_reader import load, read
from detent.engine.moves import END
from detent.engine.outcome import Effect
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.flows.refine.checkpoints import CheckpointManager, CheckpointType
from detent.flows.refine.decisions import REJECTED
from detent.flows.refine.evaluation import Evaluation
from detent.flows.refine.result import OrchestratorResult, result_in_journal
from detent.flows.refine.run_data import PREPARED
from detent.flows.refine.state_machine import OrchestrationState, OrchestrationStateMachine
from detent.kernel.entries import Entry, body_from_plain
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from detent.engine.ports import Store

WRITE = "choreography.write"

OpenStore = Callable[[], Any]
"""Opens the store that has the run: an async context manager."""


class Show(NamedTuple):
    """All that a run has come to."""

    request: Mapping[str, Any]
    """Prepared, with the analysis, if the song could be measured."""
    result: OrchestratorResult
    machine: OrchestrationStateMachine | None = None
    """None of a show made in a plain loop."""

    @property
    def plan(self) -> AgentPlan:
        """The plan of the best attempt."""
        return AgentPlan.model_validate(self.result.plan)

    @property
    def implementation(self) -> AgentImplementation:
        """The implementation of the best attempt."""
        return AgentImplementation.model_validate(self.result.implementation)


# -- content ------------------------------------------------------------------------------------------------


def sequence(show: Show) -> bytes:
    """The xLights sequence."""
    return sequence_of(show.request, show.plan, show.implementation)


def sequence_of(request: Mapping[str, Any], plan: AgentPlan, implementation: AgentImplementation) -> bytes:
    """The xLights sequence of an implementation.

    Raises:
        ConfigurationError: the base sequence cannot be used.
    """
    from detent.apps.choreography.show import xsq
    from detent.apps.choreography.show.render import render

    song, rig = song_of(request), rig_of(request)
    base = None if request["xsq_path"] is None else xsq.Base(Path(request["xsq_path"]).read_bytes())
    frame_ms = request["frame_ms"] if base is None else base.frame_ms
    rendering = render(song, plan, implementation, rig, stage_of(request), frame_ms)
    return xsq.write(
        song, plan, implementation, rendering, rig, media=request["media"] or request["audio_path"],
        base=base, head={"song": request["project"]}, xlights_version=request["xlights_version"],
        notes=request["notes"],
    )  # fmt: skip


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
        Song.of(audio)
        plan = AgentPlan.model_validate(final["plan"])
        implementation = AgentImplementation.model_validate(final["implementation"])
        evaluation = final["evaluation"] and Evaluation.from_plain(final["evaluation"])
        facts = OrchestratorResult(
            final["status"], final["run_id"], final["final_state"], iterations=final["iterations"],
            tokens_used=final["tokens_used"],
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError) as error:
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
    return image.encode() if isinstance(image, str) else image


def text(value: Any) -> bytes:
    """A value as readable JSON."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def final(show: Show) -> dict[str, Any]:
    """The result, with what the show was made for."""
    request = {key: value for key, value in show.request.items() if key != "audio"}
    return {**show.result.to_plain(), "request": request}


def base_fingerprint(show: Show) -> dict[str, Any]:
    """What is known of the base sequence; of none, its path alone."""
    from detent.apps.choreography.show.xsq_reader import fingerprint

    path = show.request["xsq_path"]
    return {"xsq_path": None} if path is None else fingerprint(Path(path).read_bytes(), path)


def evaluation(show: Show) -> Any:
    """The evaluation of the best attempt."""
    return show.result.to_plain()["evaluation"]


CONTENT: dict[str, Callable[[Show], bytes]] = {
    "audio": lambda show: text(show.request["audio"]),
    "plan": lambda show: text(show.result.plan),
    "implementation": lambda show: text(show.result.implementation),
    "evaluation": lambda show: text(evaluation(show)),
    "base": lambda show: text(base_fingerprint(show)),
    "result": lambda show: text(final(show)),
    "metrics": lambda show: f"{show.result.metrics['report']}\n".encode(),
    "state_machine": lambda show: text(None if show.machine is None else show.machine.to_dict()),
    "sequence": sequence,
    "svg": partial(picture, kind="svg"),
    "png": partial(picture, kind="png"),
}
"""What a file holds, by the word that its effect names."""


def files(result: OrchestratorResult) -> Iterator[tuple[str, Path]]:
    """What is written at the end of a run, and where."""
    output = Output.from_plain(result.request["output"])
    project = result.request["project"]
    checkpoint = CheckpointManager(output.folder, project).path
    rejected = (result.reason or "").startswith(REJECTED)
    if not rejected and result.final_state != OrchestrationState.INITIALIZED.value:
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
        except ConfigurationError as error:
            raise ToolError("refused", str(error)) from error

    return Tool(WRITE, write, idempotent=True, wants_call=True, description="Write one file of a light show.")


def written(show: Show, what: str, path: Path) -> dict[str, Any]:
    """Write one file of a show, unless it is there already.

    Raises:
        OSError: it cannot be written.
        ConfigurationError: a sequence is there that must not be overwritten, or the song has changed.
    """
    content = CONTENT[what](show)
    if not path.is_file() or path.read_bytes() != content:
        if what == "sequence":
            Output.from_plain(show.request["output"]).check()
        write_file(path, content)
    return {"path": str(path), "bytes": len(content)}


async def show_of(store: Store, run_id: str) -> Show:
    """What a run has come to, its end included that is about to be written."""
    run = await load(store, run_id)
    entries = [entry async for entry in read(store, run_id)]
    proposal = run.proposal
    if proposal is not None and END in proposal.outcome:
        end = proposal.outcome[END]
        last = entries[-1]
        entry = Entry(last.seq + 1, last.at, last.epoch, body_from_plain(end["kind"], end["body"]))
        entries.append(entry)
        run.apply(entry)
    result = result_in_journal(run, entries)
    request = dict(result.request)
    reference = run.data.get(PREPARED)
    if reference is not None and (raw := await store.blob(reference["$blob"])) is not None:
        request = decode(raw)
    machine = OrchestrationStateMachine.from_journal(entries, max_iterations=result.settings.max_iterations)
    return Show(request, result, machine)


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    """A store that is open already, and stays so."""
    yield store
