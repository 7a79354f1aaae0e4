"""`AgentOrchestrator`: a show in one call, with and without the state machine."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.apps.choreography.orchestrator import AgentOrchestrator
from detent.apps.choreography.settings import AgentSettings, JobConfig
from detent.flows.refine.checkpoints import CheckpointManager, CheckpointType
from detent.flows.refine.state_machine import OrchestrationState
from detent.kernel.errors import ConfigurationError

STRICT = AgentSettings(success_threshold=99.9, max_iterations=2)
STATES = ["planning", "validating", "implementing", "judging", "succeeded"]


class Ears:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.moves: list[Any] = []
        self.metrics: list[Any] = []

    def on_state_transition(self, transition: Any) -> None:
        """Keep a transition."""
        self.moves.append(transition)

    def on_metrics_update(self, metrics: Any) -> None:
        """Keep the figures."""
        self.metrics.append(metrics)


def made(config: JobConfig | None = None, **wishes: Any) -> tuple[AgentOrchestrator, Any]:
    orchestrator = AgentOrchestrator(config)
    return orchestrator, orchestrator.run("song.wav", analyser="builtin", picture=False, **wishes)


def test_a_show_is_made_in_one_call(studio):
    """R-18, R-28: the state machine is folded from the journal; observers hear of each move."""
    orchestrator, ears = AgentOrchestrator(JobConfig(agent=AgentSettings(max_iterations=5))), Ears()
    orchestrator.add_observer(ears)
    result = orchestrator.run("song.wav", analyser="builtin", picture=False)
    assert (result.status, result.iterations, result.tokens_used) == ("success", 1, 0)
    assert [move.to_state.value for move in orchestrator.state_machine.history] == STATES
    assert [move.to_state.value for move in ears.moves] == STATES
    assert len(ears.metrics) == len(STATES)
    assert ears.moves[1].context["plan"] == result.plan
    assert (orchestrator.state_machine.max_iterations, orchestrator.token_budget_manager.total_used) == (5, 0)
    assert all(Path(path).is_file() for path in result.files)


async def test_it_blocks_inside_a_running_event_loop(studio):
    """R-28"""
    _, result = made()
    assert result.status == "success"


@pytest.mark.parametrize("agent", [AgentSettings(), STRICT, AgentSettings(success_threshold=99.9)])
def test_the_plain_loop_makes_the_same_show(studio, agent):
    """R-38: status, score, iterations and files."""
    machine, kept = made(JobConfig(agent=agent), out=studio / "kept")
    loop, plain = made(
        JobConfig(agent=agent.model_copy(update={"use_state_machine": False})), out=studio / "plain"
    )
    assert (kept.status, kept.iterations, kept.reason) == (plain.status, plain.iterations, plain.reason)
    assert kept.evaluation.overall_score == plain.evaluation.overall_score
    names = [[str(Path(path).relative_to(studio / folder)) for path in result.files]
             for folder, result in (("kept", kept), ("plain", plain))]  # fmt: skip
    assert names[0] == names[1]
    for name in names[0]:
        if name.endswith((".xsq", "plan.json", "implementation.json", "evaluation.json", "audio.json")):
            assert (studio / "kept" / name).read_bytes() == (studio / "plain" / name).read_bytes(), name
    assert plain.run_id == ""
    assert loop.state_machine.current_state is machine.state_machine.current_state
    assert len(loop.state_machine.history) == len(machine.state_machine.history)
    assert kept.warnings == plain.warnings


def test_only_configuration_is_raised(studio):
    """R-28: every other end is a result."""
    (studio / "text.mp3").write_text("no music " * 100)
    result = AgentOrchestrator().run("text.mp3", analyser="builtin")
    assert (result.status, result.reason) == ("failed", "Input rejected: format")
    assert "wav, flac, ogg or mp3" in result.error
    with pytest.raises(ConfigurationError, match=r"nowhere.wav: there is no such file"):
        AgentOrchestrator().run("nowhere.wav")


@pytest.mark.parametrize("threshold", [70, 99.9])
def test_all_seven_checkpoints_are_written_and_none_is_read(studio, threshold):
    """R-65: each is the JSON it stands for; broken ones change nothing."""
    folder = studio / "song"
    config = JobConfig(agent=AgentSettings(success_threshold=threshold, max_iterations=1))
    checkpoints = CheckpointManager(folder, "song")
    for kind in CheckpointType:
        checkpoints.path(kind).parent.mkdir(parents=True, exist_ok=True)
        checkpoints.path(kind).write_text("{broken")
    orchestrator, result = made(config)
    assert result.status == ("success" if threshold == 70 else "incomplete")
    content = {kind.value: checkpoints.read_checkpoint(kind) for kind in CheckpointType}
    assert content["audio"] == json.loads((folder / "audio.json").read_text())
    assert content["raw"] == result.plan
    assert content["implementation"] == result.implementation
    assert content["evaluation"]["overall_score"] == result.evaluation.overall_score
    assert content["final"]["status"] == result.status
    assert content["sequence"] == {"xsq_path": None}
    machine = checkpoints.load_state_machine()
    assert machine is not None
    assert machine.current_state.value == result.final_state
    assert [move.to_state for move in machine.history] == [
        move.to_state for move in orchestrator.state_machine.history
    ]
    assert machine.history[1].from_state is OrchestrationState.PLANNING
    assert machine.history[1].context["plan"] == result.plan


def test_a_base_sequence_keeps_what_is_not_ours_and_its_frame_time(studio):
    """R-52: added to in another place, and in its own place only by force."""
    made(JobConfig(frame_ms=50), out=studio / "first.xsq")
    text = (studio / "first.xsq").read_text().replace("Made with Detent", "Made by hand")
    (studio / "base.xsq").write_text(text.replace("Dmx MH4", "Tree"))
    _, result = made(xsq_path=studio / "base.xsq", out=studio / "second")
    assert result.status == "success"
    written = (studio / "second" / "song" / "song_detent_mh.xsq").read_text()
    assert "<sequenceTiming>50 ms</sequenceTiming>" in written
    assert 'name="Tree"' in written
    sequence = json.loads((studio / "second/song/checkpoints/song_sequence.json").read_text())
    assert sequence["xsq_path"] == str(studio / "base.xsq")
    assert sequence["effect_type_histogram"]["DMX"] > 0
    with pytest.raises(ConfigurationError, match="was not made by Detent"):
        made(xsq_path=studio / "base.xsq", out=studio / "base.xsq")
    _, forced = made(xsq_path=studio / "base.xsq", out=studio / "base.xsq", force=True)
    assert forced.status == "success"
    assert (studio / "base.xsq").read_text() == written


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("<xsequence><head>", "the XML is malformed"),
        ("<xsequence><head><version>1</version></head></xsequence>", "lacks a usable"),
        ("no XML at all", "cannot be read"),
    ],
)
def test_a_base_that_cannot_be_used_is_refused_before_any_work(studio, content, problem):
    """R-52"""
    (studio / "base.xsq").write_text(content)
    with pytest.raises(ConfigurationError, match=problem):
        made(xsq_path=studio / "base.xsq")
    assert not (studio / "song").exists()


def test_nothing_is_asked_of_the_network(studio, monkeypatch):
    """R-56: no model, no key; a socket would be an error."""

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    _, result = made()
    assert result.status == "success"


def test_shows_of_a_shared_store_are_kept(studio):
    """R-28: with a store, a show can be looked at afterwards."""
    orchestrator = AgentOrchestrator(store=SQLiteStore(studio / "runs.db"))
    result = orchestrator.run("song.wav", analyser="builtin", picture=False)
    assert result.run_id
    assert (studio / "runs.db").exists()
