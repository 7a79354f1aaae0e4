"""Runs that an earlier version left behind are read, and go on."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.journal_reader import read
from detent.kernel.run import Run
from detent.kernel.status import Status
from tests.engine.kept_runs import flows

STORE = Path(__file__).with_name("kept_runs.sql")
"""A SQLite store as an earlier version wrote it: a run that waits, after two children."""


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    file = tmp_path / "detent.db"
    database = sqlite3.connect(file)
    database.executescript(STORE.read_text(encoding="utf-8"))
    database.close()
    return SQLiteStore(file)


async def test_a_run_that_waited_is_answered_and_ends_with_each_effect_once(store):
    booked = ["first"]
    async with Engine(store, flows(booked)) as engine:
        run = await engine.get("waits")
        assert (run.status, run.data, run.tags) == (
            Status.WAITING,
            {"parcel": "p", "kg": 4, "sum": 30},
            ["kept", "heavy"],
        )
        await engine.release("waits", "yes", hold=run.token("ok"))
        ended = await engine.finish("waits")
    assert (ended.status, booked) == (Status.SUCCEEDED, ["first", "second"])


async def test_every_journal_of_it_adds_up_to_what_its_row_says(store):
    async with Engine(store, flows([])) as engine:
        for run_id in ("waits", "waits.a", "waits.b"):
            run = Run(run_id)
            async for entry in read(store, run_id):
                run.apply(entry)
            row = await engine.store.row(run_id)
            assert (row.now.status, row.now.state, row.now.steps, row.seq) == (
                run.status, run.state, run.steps, run.seq,
            )  # fmt: skip
