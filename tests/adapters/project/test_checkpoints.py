"""Checkpoint files are whole or not there, and the latest comes first."""

from __future__ import annotations

import json
import os

import pytest

from detent.adapters.project.checkpoints import Checkpoints


def document(name, at="2026-01-01T00:00:00Z", **more):
    return {"checkpoint_id": name, "saved_at": at, **more}


async def test_a_checkpoint_is_a_file_beside_its_run(tmp_path):
    kept = Checkpoints(tmp_path / "checkpoints")
    await kept.save("r1", "spot", document("spot", run_id="r1"))
    assert json.loads((tmp_path / "checkpoints" / "r1" / "spot.json").read_text()) == kept.all()[0]
    assert kept.all()[0]["run_id"] == "r1"


async def test_saved_again_it_replaces_the_earlier_one_and_leaves_nothing_beside_it(tmp_path):
    kept = Checkpoints(tmp_path)
    for number in (1, 2):
        await kept.save("r1", "spot", document("spot", number=number))
    assert [one["number"] for one in kept.all()] == [2]
    assert os.listdir(tmp_path / "r1") == ["spot.json"]


@pytest.mark.parametrize("name", ["../../out", "a/b", "", "ü" * 150, ".", "CON\n", "x" * 200])
async def test_any_text_is_an_id_and_none_leads_out_of_the_folder(tmp_path, name):
    kept = Checkpoints(tmp_path / "in" / "here")
    await kept.save(name or "run", name, document(name))
    await kept.save(name or "run", f"{name}!", document("other"))
    assert {one["checkpoint_id"] for one in kept.all()} == {name, "other"}
    assert os.listdir(tmp_path) == ["in"]
    assert os.listdir(tmp_path / "in") == ["here"]


async def test_the_latest_comes_first_also_within_one_second(tmp_path):
    kept = Checkpoints(tmp_path)
    for number, run in enumerate(("c", "a", "b")):
        await kept.save(run, "spot", document("spot", of=run))
        os.utime(tmp_path / run / "spot.json", ns=(number, number))
    await kept.save("d", "spot", document("spot", at="2025-12-31T00:00:00Z", of="d"))
    assert [one["of"] for one in kept.all()] == ["b", "a", "c", "d"]


async def test_what_is_no_checkpoint_is_passed_over(tmp_path):
    kept = Checkpoints(tmp_path)
    assert kept.all() == []
    await kept.save("r1", "spot", document("spot"))
    (tmp_path / "r1" / "torn.json").write_text('{"checkpoint_id": ')
    (tmp_path / "r1" / "list.json").write_text("[]")
    assert [one["checkpoint_id"] for one in kept.all()] == ["spot"]


async def test_one_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        await Checkpoints(tmp_path / "file").save("r1", "spot", document("spot"))
