"""Two runs are the same, or there is a first point at which they are not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.insight.compare import compare, render
from detent.kernel.entries import Claimed, EffectDone, Moved, Started
from detent.kernel.status import Status
from tests.insight.samples import CLAIM, claims, entries, every_kind, journal

ALL = ("times", "epochs", "run_ids", "takeovers", "retries", "notes")


async def test_two_runs_of_the_same_work_say_the_same_though_one_had_to_try_again():
    smooth, _ = await journal(claims(), {"serial": "A1"})
    rough, _ = await journal(claims(flaky=True), {"serial": "A1"})
    found = compare(smooth, rough)
    assert found.equal
    assert found.a.path == found.b.path == ("look-up", "approve", "pay", "paid")
    assert found.a.effects == ("bank.pay",)
    assert found.a.tokens == 130
    assert "do not differ" in render(found)
    assert not compare(smooth, rough, also=["retries"]).equal
    assert not compare(smooth, rough, also=["run_ids"]).equal


async def test_another_answer_is_where_two_runs_part():
    yes, _ = await journal(claims(), {"serial": "A1"})
    no, _ = await journal(claims(), {"serial": "A1"}, answer="no")
    found = compare(yes, no)
    assert found.divergence is not None
    assert found.divergence.seq_a is not None
    assert found.divergence.seq_b is not None
    assert yes[found.divergence.seq_a - 1].kind == no[found.divergence.seq_b - 1].kind == "released"
    assert [(item.aspect, item.path, item.a, item.b) for item in found.divergence.differences] == [
        ("hold", "answer", "yes", "no")
    ]
    assert (found.a.status, found.b.status) == ("succeeded", "degraded")
    text = render(found, "r1", "r2")
    assert "r1 and r2 differ first at entry" in text
    assert "look-up → approve → refuse → refused" in text


async def test_different_data_is_named_by_its_key_path():
    one, _ = await journal(claims(), {"serial": "A1", "who": {"name": "x"}})
    two, _ = await journal(claims(), {"serial": "A2", "who": {"name": "y"}})
    found = compare(one, two).divergence
    assert found is not None
    assert (found.seq_a, found.seq_b) == (1, 1)
    assert [(item.aspect, item.path) for item in found.differences] == [
        ("data", "data.serial"), ("data", "data.who.name"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        ("A1", "A2", ("A1", "A2")),
        ("x" * 80 + "one", "x" * 80 + "two", ('…xxxxxxxxxxone"', '…xxxxxxxxxxtwo"')),
        ("1", 1, ('"1"', "1")),
    ],
)
def test_two_values_that_differ_are_never_printed_alike(a, b, shown):
    def started(serial):
        data = {"serial": serial}
        return entries(Started("claim", "look-up", "claim", 1, CLAIM.fingerprint, data))

    lines = render(compare(started(a), started(b)), "r1", "r2").splitlines()
    assert lines[1] == "  both  started claim v1 in 'look-up'"
    (line,) = [line.split() for line in lines if "data.serial" in line]
    assert line == ["data.serial", shown[0], "|", shown[1]]


async def test_a_fork_parts_from_its_original_where_its_data_was_changed():
    async def fork(engine, run_id):
        forked = await engine.fork(run_id, 1, set={"serial": "B7"})
        await engine.finish(forked)
        return forked

    one, _ = await journal(claims(), {"serial": "A1"}, answer=None)
    two, _ = await journal(claims(), {"serial": "A1"}, answer=None, then=fork)
    found = compare(one, two).divergence
    assert found is not None
    assert found.seq_b is not None
    assert two[found.seq_b - 1].kind == "forked"


def test_take_overs_are_passed_over_unless_asked_for():
    start = Started("claim", "look-up", "claim", 1, "f" * 16)
    move = Moved("look-up", "approve")
    plain, taken = entries(start, move), entries(start, Claimed("w2", "w1"), move, start=5.0, apart=9.0)
    assert compare(plain, taken).equal
    assert not compare(plain, taken, also=["takeovers"]).equal
    assert not compare(plain, taken, also=["times"]).equal


@pytest.mark.parametrize(
    ("changed", "aspect", "path"),
    [
        ({"to": "refuse"}, "state", "to"),
        ({"by": "agent"}, "who", "by"),
        ({"reason": "other"}, "reason", "reason"),
        ({"event": "go"}, "event", "event"),
        ({"set": {"device": {"status": "lost"}}}, "data", "data.device.status"),
        ({"append": {"log": [1, 3]}}, "data", "added.log[1]"),
        ({"looked": [{"tool": "registry", "answer": 2}]}, "looked", "looked[0].answer"),
        ({"status": Status.FAILED}, "state", "status"),
    ],
)
def test_what_differed_is_named(changed, aspect, path):
    start = Started("claim", "look-up", "claim", 1, "f" * 16)
    move = Moved(
        "look-up", "approve", reason="covered", set={"device": {"status": "valid"}}, append={"log": [1, 2]},
        looked=[{"tool": "registry", "answer": 1}],
    )  # fmt: skip
    found = compare(entries(start, move), entries(start, move._replace(**changed))).divergence
    assert found is not None
    assert [(item.aspect, item.path) for item in found.differences] == [(aspect, path)]


def test_a_run_that_stops_earlier_differs_where_the_other_goes_on():
    lines = entries(Started("claim", "look-up", "claim", 1, "f" * 16), Moved("look-up", "approve"))
    found = compare(lines, lines[:1]).divergence
    assert found is not None
    assert (found.seq_a, found.seq_b, found.what_b) == (2, None, "(nothing more)")


def test_an_effect_with_another_receipt_differs_in_it():
    start = Started("claim", "pay", "claim", 1, "f" * 16)
    one = entries(start, EffectDone("k", "bank.pay", {"id": 1}))
    two = entries(start, EffectDone("k", "bank.pay", {"id": 2}, "probed"))
    found = compare(one, two).divergence
    assert found is not None
    assert [(item.aspect, item.path) for item in found.differences] == [("effects", "receipt.id")]


def test_what_cannot_be_compared_is_refused_by_name():
    with pytest.raises(ValueError, match="colours"):
        compare([], [], also=["colours"])  # type: ignore[list-item]


@given(st.sets(st.sampled_from(ALL)), st.integers(0, 21))
def test_a_journal_equals_itself_however_it_is_compared(also, length):
    lines = every_kind()[:length]
    found = compare(lines, lines, also=also)
    assert found.equal
    assert found.a == found.b
    json.dumps(found.to_plain(), allow_nan=False)


STATES = st.sampled_from([CLAIM.named(state) for state in CLAIM.states])
DATA = st.dictionaries(st.text(max_size=3), st.booleans() | st.integers() | st.none())
MOVES = st.builds(
    lambda frm, to, reason, changes: Moved(frm, to, reason=reason, set=changes),
    STATES, STATES, st.none() | st.text(max_size=5), DATA,
)  # fmt: skip


@given(st.lists(MOVES, max_size=6), st.lists(MOVES, max_size=6))
def test_a_comparison_the_other_way_round_finds_the_same_point(one, two):
    start = Started("claim", "look-up", "claim", 1, "f" * 16)
    first, second = entries(start, *one), entries(start, *two)
    there, back = compare(first, second), compare(second, first)
    assert there.same == back.same
    assert there.equal == back.equal
    if there.divergence is not None and back.divergence is not None:
        assert there.divergence.differences
        mirrored = {(item.path, repr(item.a), repr(item.b)) for item in there.divergence.differences}
        assert mirrored == {(item.path, repr(item.b), repr(item.a)) for item in back.divergence.differences}
