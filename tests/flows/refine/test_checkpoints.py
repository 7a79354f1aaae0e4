"""Checkpoint files: whole or not there, and refused by name when they are not ours."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from detent.flows.refine.checkpoints import CheckpointError, CheckpointManager, CheckpointType
from detent.flows.refine.state_machine import OrchestrationState as S
from detent.flows.refine.state_machine import OrchestrationStateMachine


@pytest.fixture
def files(tmp_path):
    return CheckpointManager(tmp_path, "song")


def machine():
    made = OrchestrationStateMachine(max_iterations=5, clock=lambda: 1790000000.25)
    made.transition(S.PLANNING, {"a": [1, {"b": None}]}, "because", 1.5, 10)
    made.transition(S.VALIDATING, {"plan": {"x": "é"}})
    return made


def test_each_type_has_its_place(files, tmp_path):
    """R-65: seven of them."""
    for kind in CheckpointType:
        files.write_checkpoint(kind, {"kind": kind, "text": "é"})
        assert files.read_checkpoint(kind.value) == {"kind": kind.value, "text": "é"}
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json"))
    plans = ("evaluation", "final", "implementation", "raw", "state_machine")
    assert names == [
        "checkpoints/plans/" + f"song_{kind}.json" for kind in plans
    ] + ["checkpoints/song_audio.json", "checkpoints/song_sequence.json"]  # fmt: skip
    assert "é" in (tmp_path / "checkpoints/song_audio.json").read_text(encoding="utf-8")


def test_what_was_never_written_is_none(files):
    """R-32"""
    assert files.read_checkpoint("raw") is None
    assert files.load_state_machine() is None


def test_a_machine_survives_to_the_byte(files):
    """R-31: contexts, max_iterations and all."""
    path = files.save_state_machine(machine())
    first = path.read_bytes()
    loaded = files.load_state_machine()
    assert loaded.to_dict() == machine().to_dict()
    assert (loaded.max_iterations, loaded.history[0].context) == (5, {"a": [1, {"b": None}]})
    files.save_state_machine(loaded)
    assert path.read_bytes() == first


def test_the_smaller_shape_of_the_seed_loads(files):
    """R-32"""
    plain = machine().to_dict()
    for name in ("schema_version", "machine", "max_iterations"):
        del plain[name]
    for row in plain["history"]:
        del row["context"]
    files.write_checkpoint("state_machine", plain)
    loaded = files.load_state_machine()
    assert (loaded.max_iterations, loaded.history[0].context) == (3, {})


def changed(**values):
    return {**machine().to_dict(), **values}


@pytest.mark.parametrize(
    ("plain", "field"),
    [
        (changed(current_state="planing"), "current_state"),
        (changed(current_state="planning"), "current_state"),
        (changed(history=machine().to_dict()["history"][::-1]), "history"),
        (changed(history=[{**machine().to_dict()["history"][0], "to_state": "x"}]), "history"),
        (changed(machine={**machine().to_dict()["machine"], "fingerprint": "0" * 16}), "machine"),
        (changed(schema_version=2), "schema_version"),
        (changed(iteration_count=-1), "iteration_count"),
    ],
)
def test_a_damaged_or_foreign_machine_is_refused_by_file_and_field(files, plain, field):
    """R-32"""
    path = files.write_checkpoint("state_machine", plain)
    with pytest.raises(CheckpointError) as error:
        files.load_state_machine()
    assert error.value.file == path
    assert error.value.field.startswith(field)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe"])
def test_an_unreadable_file_is_neither_read_nor_overwritten(files, content):
    """R-32"""
    path = files.write_checkpoint("final", {})
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="song_final"):
        files.read_checkpoint("final")
    with pytest.raises(CheckpointError):
        files.write_checkpoint("final", {"new": 1})
    assert path.read_bytes() == content


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_infinity_is_written(files, value):
    """R-33: and nothing is left behind."""
    files.write_checkpoint("raw", {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        files.write_checkpoint("raw", {"a": value})
    assert files.read_checkpoint("raw") == {"a": 1}
    assert [path.name for path in files.path("raw").parent.iterdir()] == ["song_raw.json"]


KILLED = """
import os, sys
from detent.flows.refine.checkpoints import CheckpointManager
files = CheckpointManager(sys.argv[1], "song")
kill = lambda *_: os._exit(9)
setattr(os, sys.argv[3], kill)
files.write_checkpoint(sys.argv[2], {"new": "x" * 100000})
"""


@pytest.mark.parametrize(
    ("kind", "at"), [(kind, ("fsync", "replace")[number % 2]) for number, kind in enumerate(CheckpointType)]
)
def test_a_kill_while_it_is_written_leaves_the_old_file(files, tmp_path, kind, at):
    """R-65"""
    files.write_checkpoint(kind, {"old": 1})
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), kind.value, at], check=False)
    assert done.returncode == 9
    assert files.read_checkpoint(kind) == {"old": 1}
    files.write_checkpoint(kind, {"new": 1})
    assert json.loads(files.path(kind).read_text()) == {"new": 1}


@pytest.mark.parametrize("project", ["", "../x", "a/b"])
def test_a_project_is_a_name(tmp_path, project):
    with pytest.raises(ValueError, match="name"):
        CheckpointManager(tmp_path, project)
