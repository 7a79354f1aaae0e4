"""Checkpoint steps: a named point, and a file that says what had been done by then."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.project.checkpoints import Checkpoints
from detent.flows.workflow.events import CheckpointSaved
from detent.flows.workflow.inputs import inputs_hash
from detent.testing.clock import HandClock
from tests.flows.workflow.workshop import Workshop, flow


def written(workshop: Workshop, run: str = "r") -> dict[str, Any]:
    folder = workshop.folder / "checkpoints" / run
    return {file.stem: json.loads(file.read_text()) for file in folder.iterdir()} if folder.exists() else {}


async def test_a_checkpoint_is_written_with_what_had_been_done(workshop: Workshop) -> None:
    """D-61."""
    ran = await workshop.run(
        flow(
            """
            - {name: a, type: python, action: echo, kwargs: {value: "${{ inputs.n }}"}}
            - {name: b, type: python, action: give, when: "false"}
            - {name: mark, type: checkpoint}
            - {name: c, type: python, action: give, kwargs: {value: later}}
            """,
            "inputs: {n: {type: integer}, m: {type: string, default: é}}",
        ),
        {"n": 3},
        engine={"clock": HandClock(1_700_000_000.0)},
    )
    assert written(workshop) == {
        "mark": {
            "checkpoint_id": "mark",
            "workflow_name": "flow",
            "inputs_hash": inputs_hash({"n": 3, "m": "é"}),
            "step_results": [{"name": "a", "output": {"value": 3}}],
            "saved_at": "2023-11-14T22:13:20Z",
            "run_id": "r",
        }
    }
    assert ran.step("mark").output == {"saved": True, "checkpoint_id": "mark", "timestamp": 1_700_000_000.0}
    (saved,) = ran.told(CheckpointSaved)
    assert (saved.checkpoint_id, saved.step_path, saved.run_id) == ("mark", "mark", "r")


def test_the_hash_of_inputs_is_16_hex_of_their_sorted_json() -> None:
    from hashlib import sha256

    text = json.dumps({"a": [1, "ü"], "b": None}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert inputs_hash({"b": None, "a": [1, "ü"]}) == sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("'run-${{ inputs.n }}'", "run-3"),
        ("'${{ inputs.n }}'", "3"),
        ("plain", "plain"),
        ("'with / and ..'", "with / and .."),
    ],
)
async def test_its_id_may_hold_expressions(workshop: Workshop, said: str, expected: str) -> None:
    text = flow(
        f"- {{name: mark, type: checkpoint, checkpoint_id: {said}}}",
        "inputs: {n: {type: integer, default: 3}}",
    )
    ran = await workshop.run(text)
    assert ran.step("mark").output["checkpoint_id"] == expected
    (document,) = written(workshop).values()
    assert document["checkpoint_id"] == expected
    inside = [file.name for file in (workshop.folder / "checkpoints").rglob("*.json")]
    assert len(inside) == 1  # nothing was written outside of its run's folder


@pytest.mark.parametrize("value", [None, "", "   ", "x" * 201, True, [1], {"a": 1}])
async def test_what_can_be_no_id_fails_the_step(workshop: Workshop, value: Any) -> None:
    """D-61."""
    text = flow(
        "- {name: mark, type: checkpoint, checkpoint_id: '${{ inputs.o.id }}'}", "inputs: {o: {type: object}}"
    )
    ran = await workshop.run(text, {"o": {"id": value}})
    assert ran.step("mark").status == "failed"
    assert "its id must" in (ran.step("mark").error or "")
    assert written(workshop) == {}


class Full:
    """A disk that is full for so many writes."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.saved: list[str] = []

    async def save(self, root: str, checkpoint_id: str, document: Any) -> None:
        if self.left:
            self.left -= 1
            raise OSError(28, "No space left on device")
        self.saved.append(checkpoint_id)


async def test_a_write_error_fails_the_step(workshop: Workshop) -> None:
    """D-61."""
    workshop.checkpoints = Full(1)
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: put, kwargs: {text: a}}
        - {name: mark, type: checkpoint}
        """)
    )
    assert ran.run.status.value == "failed"
    assert "No space left" in (ran.step("mark").error or "")
    assert ran.told(CheckpointSaved) == []
    assert ran.effects == [("put", "a"), ("take", "a")]
    assert workshop.checkpoints.saved == []


async def test_checkpoints_in_a_loop_have_a_file_each(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: each
          type: loop
          for_each: [x, y]
          steps:
            - {name: a, type: python, action: give, kwargs: {value: "${{ item }}"}}
            - {name: mark, type: checkpoint, checkpoint_id: "m-${{ item }}"}
        """)
    )
    found = written(workshop)
    assert set(found) == {"m-x", "m-y"}
    assert found["m-y"]["step_results"] == [{"name": "a", "output": "y"}]
    assert found["m-y"]["run_id"] == "r.each[1]"
    assert found["m-x"]["inputs_hash"] == inputs_hash({})
    assert [one.step_path for one in ran.told(CheckpointSaved)] == ["each/[0]/mark", "each/[1]/mark"]


async def test_the_same_id_again_replaces_the_file(workshop: Workshop) -> None:
    await workshop.run(
        flow("""
        - {name: one, type: checkpoint, checkpoint_id: here}
        - {name: a, type: python, action: give, kwargs: {value: 1}}
        - {name: two, type: checkpoint, checkpoint_id: here}
        """)
    )
    (document,) = written(workshop).values()
    assert [one["name"] for one in document["step_results"]] == ["one", "a"]


async def test_a_file_that_cannot_be_written_whole_leaves_the_one_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that breaks off in its middle: the disk refuses what is put on it."""
    saving = Checkpoints(tmp_path)
    await saving.save("r", "here", {"checkpoint_id": "here", "number": 1})

    def refuse(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="Input/output"):
        await saving.save("r", "here", {"checkpoint_id": "here", "number": 2})
    monkeypatch.undo()
    (file,) = (tmp_path / "r").iterdir()
    assert json.loads(file.read_text())["number"] == 1
