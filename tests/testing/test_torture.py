"""Killed at every boundary and at random, stopped past their lease: the results do not show it."""

from __future__ import annotations

import pytest

from detent.testing.torture import torture
from tests.examples import ALL


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.postgres),
    ]
)
def store_url(request, tmp_path):
    """Address of an empty store that other processes can reach."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'store.db'}"
    server = request.getfixturevalue("postgres_server")
    schema = request.getfixturevalue("postgres_schema")
    return f"{server}#{schema}"


KILLS = 120 if ALL else 40
pytestmark = [
    pytest.mark.torture,
    pytest.mark.slow,
    pytest.mark.timeout(1200),  # hundreds of processes, on a machine that may be busy with others
]


@pytest.mark.parametrize(
    "store_url",
    ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive])],
    indirect=True,
)
async def test_killed_at_every_boundary_a_run_ends_as_if_undisturbed(store_url):
    report = await torture(store_url, kills=0, pauses=0, stops=0, jumps=0, cuts=0)
    assert report.ok, str(report)
    assert report.boundaries > 100
    assert report.found.takeovers > 100
    assert report.found.effects["probed"] > 0
    assert report.found.effects["told"] > 0
    assert report.found.lost > 0
    assert report.settled["again"] > 0
    print(report)


async def test_killed_at_random_two_workers_on_one_store_lose_and_repeat_nothing(store_url):
    report = await torture(
        store_url, boundaries=False, kills=KILLS, pauses=0, stops=0, jumps=0, cuts=0, workers=2, seed=1
    )
    assert report.ok, str(report)
    assert report.kills == KILLS
    assert report.found.takeovers > 0
    assert report.found.folds > 0
    print(report)


async def test_a_worker_that_slept_through_its_lease_is_refused(store_url):
    report = await torture(
        store_url, boundaries=False, kills=0, pauses=0, stops=12, jumps=0, cuts=0, workers=2, seed=2
    )
    assert report.ok, str(report)
    assert report.stops == 12
    assert report.fenced > 0
    print(report)


async def test_workers_paused_amid_plain_functions_keep_their_runs_and_repeat_nothing(store_url):
    """On one machine: another worker has places to spare, and takes nothing from a process that is alive."""
    report = await torture(
        store_url, boundaries=False, kills=0, pauses=12, stops=0, jumps=0, cuts=0, workers=2, seed=3
    )
    assert report.ok, str(report)
    assert report.pauses == 12
    print(report)


async def test_workers_whose_clocks_jump_and_who_are_cut_off_repeat_nothing(store_url):
    report = await torture(
        store_url, boundaries=False, kills=0, pauses=0, stops=0, jumps=10, cuts=10, workers=2, seed=4
    )
    assert report.ok, str(report)
    assert (report.jumps, report.cuts) == (10, 10)
    assert report.found.takeovers > 0
    print(report)
