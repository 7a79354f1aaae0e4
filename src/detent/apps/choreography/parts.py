"""The choreographer's parts for the refine flow: analyse, plan, validate, implement, judge.

Each works on the prepared request alone, as JSON values in and out, so that code and agents see the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from detent.apps.choreography.domain import brief
from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.judge import judge
from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
from detent.apps.choreography.domain.planner import plan_show
from detent.apps.choreography.domain.rubric import rubric
from detent.apps.choreography.domain.validation import validate
from detent.apps.choreography.request import song_of, stage_of
from detent.apps.choreography.songs import analysed
from detent.flows.refine.attempt import Attempt
from detent.flows.refine.evaluation import Evaluation, Rubric, ValidationReport
from detent.flows.refine.feedback import Feedback, render
from detent.flows.refine.part import Part, Parts, Rejected, show_progress
from detent.insight.formatting import count
from detent.kernel.errors import ConfigurationError


def prepare(request: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the song, and take down what the sequence to start from is."""
    from detent.apps.choreography.audio.problem import AudioProblem
    from detent.apps.choreography.show.xsq import Base
    from detent.apps.choreography.show.xsq_reader import fingerprint, sequence_bytes

    path, frame_ms = request["xsq_path"], request["frame_ms"]
    base: dict[str, Any] = {"xsq_path": None}
    try:
        if path is not None:
            source = sequence_bytes(Path(path))
            base, frame_ms = fingerprint(source, path), Base(source).frame_ms
        audio = analysed(request, progress=show_progress)
    except AudioProblem as problem:
        raise Rejected(problem.code, str(problem)) from problem
    except (OSError, ConfigurationError) as error:
        raise Rejected("base", f"{path} cannot be added to: {error}") from error
    if round(audio["duration_s"] * 1000) < frame_ms:
        raise Rejected(
            "too_short", f"{request['audio_path']}: shorter than a frame of a show, {frame_ms} ms."
        )
    return {**request, "audio_sha256": audio["audio_sha256"], "audio": audio, "base": base}


def plan(
    request: Mapping[str, Any], feedback: Sequence[Feedback], previous: Attempt | None
) -> dict[str, Any]:
    """Plan a light show for a song, section by section, in bars."""
    iteration = 1 if previous is None else previous.iteration + 1
    return plan_show(song_of(request), stage_of(request), feedback, iteration).to_plain()


def check(request: Mapping[str, Any], plan: Mapping[str, Any]) -> ValidationReport:
    """Check a plan against the song, the templates and the rules of the stage."""
    return validate(song_of(request), AgentPlan.model_validate(plan), stage_of(request))


def expand(
    request: Mapping[str, Any],
    plan: Mapping[str, Any],
    feedback: Sequence[Feedback],
    previous: Attempt | None,
) -> dict[str, Any]:
    """Expand a plan onto the heads: which template runs on which heads in which bars."""
    implementation, _ = implement(
        song_of(request),
        AgentPlan.model_validate(plan),
        stage_of(request),
        feedback,
        _implementation(previous),
    )
    return implementation.to_plain()


def evaluate(
    request: Mapping[str, Any], plan: Mapping[str, Any], implementation: Mapping[str, Any]
) -> Evaluation:
    """Judge a show by the rubric: eight categories, each from 0 to 100."""
    return judge(
        song_of(request),
        AgentPlan.model_validate(plan),
        AgentImplementation.model_validate(implementation),
        stage_of(request),
    )


def rubric_of(request: Mapping[str, Any]) -> Rubric:
    """The rubric for the rig of a run."""
    return rubric(stage_of(request))


def _implementation(attempt: Attempt | None) -> AgentImplementation | None:
    if attempt is None or attempt.implementation is None:
        return None
    return AgentImplementation.model_validate(attempt.implementation)


def _planner_brief(request: Any, feedback: Any, previous: Any) -> dict[str, Any]:
    return brief.planner_brief(song_of(request), stage_of(request), render(feedback))


def _implementer_brief(request: Any, plan: Any, feedback: Any, previous: Any) -> dict[str, Any]:
    shown = AgentPlan.model_validate(plan)
    before = _implementation(previous)
    return brief.implementer_brief(song_of(request), shown, stage_of(request), render(feedback), before)


def _judge_brief(request: Any, plan: Any, implementation: Any) -> dict[str, Any]:
    return brief.judge_brief(
        song_of(request),
        AgentPlan.model_validate(plan),
        AgentImplementation.model_validate(implementation),
        stage_of(request),
    )


def _song_note(request: Mapping[str, Any]) -> str:
    song = song_of(request)
    minutes, seconds = divmod(round(song.duration_s), 60)
    return (
        f"{minutes}:{seconds:02}, {song.tempo_bpm:.0f} BPM, {count(song.bars, 'bar')}, "
        f"{count(len(song.sections), 'section')}"
    )


def _plan_note(plan: Mapping[str, Any]) -> str:
    sections = plan["sections"]
    templates = {template for section in sections for template in section["templates"]}
    return f"{count(len(sections), 'section')}, {count(len(templates), 'template')}"


PREPARER = Part(prepare, note=_song_note, blocking=True)
PLANNER = Part(
    plan,
    output_schema=lambda request: brief.plan_schema(stage_of(request)),
    parse=brief.parse_plan,
    brief=_planner_brief,
    note=_plan_note,
)
VALIDATOR = Part(check)
IMPLEMENTER = Part(
    expand,
    output_schema=lambda request: brief.implementation_schema(stage_of(request)),
    parse=brief.parse_implementation,
    brief=_implementer_brief,
    note=lambda implementation: count(len(implementation["sections"]), "part"),
)
JUDGE = Part(evaluate, brief=_judge_brief)
PARTS = Parts(PLANNER, VALIDATOR, IMPLEMENTER, JUDGE, PREPARER, rubric_of)
"""All of them."""
