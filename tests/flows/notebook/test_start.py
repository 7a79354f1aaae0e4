"""How a run begins: what is read, what is copied, what is refused."""

from __future__ import annotations

import dataclasses
import os

import pytest

from detent.flows.notebook.run_view import NotebookRun
from detent.flows.notebook.start import limited, prepared, read, start_notebook
from detent.flows.notebook.state.state_checks import check_state
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError
from tests.flows.notebook.samples import beginning, running


def began(folder, **changed):
    return dataclasses.replace(beginning(folder), **changed)


class TestStart:
    """N-02, N-18, N-109."""

    def test_the_first_state_holds_the_problem_and_paths_that_a_cell_can_open(self, tmp_path):
        start = began(tmp_path)
        document = NotebookRun(prepared(start, read(start))).document
        assert check_state(document) == ()
        assert document.variables == {
            "user_problem": "Predict price; R2 > 0.5", "user_submit_files": ["assets/houses.csv"],
        }  # fmt: skip
        copy = start.work / "assets" / "houses.csv"
        assert copy.read_bytes() == start.files[0].read_bytes()

    def test_a_copy_is_not_the_users_file(self, tmp_path):
        start = began(tmp_path)
        prepared(start, read(start))
        (start.work / "assets" / "houses.csv").write_text("spoilt")
        assert start.files[0].read_text().startswith("area,rooms,price")

    def test_a_changed_file_of_the_same_size_is_copied_anew(self, tmp_path):
        start = began(tmp_path)
        prepared(start, read(start))
        body = start.files[0].read_bytes()
        start.files[0].write_bytes(body.replace(b"area,rooms,price", b"aria,rooms,price"))
        prepared(start, read(start))
        assert (start.work / "assets" / "houses.csv").read_bytes().startswith(b"aria")

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"problem": " \n"}, "empty"),
            ({"files": []}, "data file"),
            ({"target": "prize"}, "price"),
        ],
        ids=["no problem", "no file", "no such target"],
    )
    def test_what_cannot_begin_is_refused_before_anything_is_written(self, tmp_path, change, why):
        with pytest.raises(ConfigurationError) as refused:
            read(began(tmp_path, **change))
        assert why in str(refused.value)
        assert not (tmp_path / "work").exists()

    def test_a_file_that_is_missing_or_named_like_another_is_refused(self, tmp_path):
        missing = tmp_path / "none.csv"
        with pytest.raises(ConfigurationError, match=r"none\.csv"):
            read(began(tmp_path, files=[missing]))
        (tmp_path / "other").mkdir()
        twin = tmp_path / "other" / "houses.csv"
        twin.write_bytes((tmp_path / "houses.csv").read_bytes())
        with pytest.raises(ConfigurationError, match=r"houses\.csv"):
            read(began(tmp_path, files=[tmp_path / "houses.csv", twin]))

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
    def test_a_file_that_cannot_be_read_is_refused(self, tmp_path):
        start = began(tmp_path)
        start.files[0].chmod(0)
        with pytest.raises(ConfigurationError):
            read(start)


class TestLimits:
    @pytest.mark.parametrize(
        ("budget", "expected"),
        [
            (None, Budget(steps=500)),
            (Budget(tokens=9), Budget(tokens=9, steps=500)),
            (Budget(steps=3), Budget(steps=3)),
            (Budget(steps=900, cost_usd=1.0), Budget(steps=500, cost_usd=1.0)),
        ],
    )
    def test_a_budget_comes_beside_the_number_of_transitions(self, budget, expected):
        """The first limit that is reached ends the run; a higher one of the other kind does not lift it."""
        assert limited(budget, 500) == expected

    async def test_a_run_that_is_started_with_a_budget_keeps_the_setting_too(self, tmp_path):
        async with running(tmp_path, max_transitions=7) as engine:
            run_id = await start_notebook(
                engine, beginning(tmp_path), budget=Budget(tokens=9), drive=False
            )  # fmt: skip
            assert (await engine.get(run_id)).budget == Budget(tokens=9, steps=7)
