"""Every decision comes with its reason, its grounds, its maker and what else was possible."""

import json
from dataclasses import replace

from detent.insight.why import render, why
from detent.kernel.budget import Spend
from detent.kernel.entries import CalledOff, Held, Moved, Started
from tests.insight.samples import CLAIM, claims, entries, every_kind, journal


def of_kind(decisions, kind):
    return [decision for decision in decisions if decision.kind == kind]


async def test_a_move_tells_what_it_looked_at_what_it_changed_and_what_else_the_table_allowed():
    lines, _ = await journal(claims(flaky=True), {"serial": "A1"})
    first = of_kind(why(lines, CLAIM), "move")[0]
    assert (first.state, first.to, first.reason, first.by) == ("look-up", "approve", "covered", "handler")
    assert first.attempts == 2
    assert first.failures == ("Transient: registry away",)
    assert first.spend == Spend(105, 25, 0.011)
    (look,) = first.looked
    assert (look.tool, look.args, look.answer) == (
        "registry", {"serial": "A1"}, {"status": "valid", "serial": "A1"},
    )  # fmt: skip
    assert {change.key: change.added for change in first.changed} == {"device": False, "log": True}
    refuse, failed = first.alternatives
    assert (refuse.to, refuse.when, refuse.held) == ("refuse", "device.status = expired or lost", False)
    assert (failed.to, failed.held) == ("failed", True)


async def test_a_description_gives_the_alternatives_without_asking_their_conditions():
    lines, _ = await journal(claims(), {"serial": "A1"})
    first = of_kind(why(lines, CLAIM.describe()), "move")[0]
    assert [(other.to, other.held) for other in first.alternatives] == [("refuse", None), ("failed", None)]
    assert of_kind(why(lines), "move")[0].alternatives == ()


async def test_an_end_tells_of_the_effects_performed_for_it_with_their_failures():
    lines, _ = await journal(claims(flaky=True), {"serial": "A1"})
    decisions = why(lines, CLAIM)
    (end,) = of_kind(decisions, "end")
    assert (end.state, end.to, end.status, end.by, end.reason) == (
        "pay", "paid", "succeeded", "agent", "claim settled",
    )  # fmt: skip
    (effect,) = end.effects
    assert (effect.tool, effect.args, effect.how, effect.receipt) == (
        "bank.pay", {"amount": 10}, "performed", {"receipt": 7},
    )  # fmt: skip
    assert effect.failures == ("busy: the bank is busy",)
    (alone,) = of_kind(decisions, "effect")
    assert alone.effects == end.effects
    assert alone.attempts == 2


async def test_a_hold_tells_who_answered_what_and_what_else_could_have_been():
    lines, _ = await journal(claims(), {"serial": "A1"})
    (hold,) = of_kind(why(lines), "hold")
    assert (hold.question, hold.answer, hold.by, hold.answered) == ("Pay this claim?", "yes", "person", True)
    assert [other.to for other in hold.alternatives] == ["no"]


def test_a_hold_nobody_answered_says_so():
    lines = entries(
        Started("claim", "approve", "claim", 1, "f" * 16), Held("approval", "person", "Pay?", ["yes", "no"])
    )
    (hold,) = why(lines)
    assert hold.answered is False
    shown = render([hold])
    assert "nobody yet" in shown
    assert "     open question, choices: yes, no" in shown.splitlines()
    assert "instead of" not in shown


def test_what_is_kept_beside_the_journal_is_told_by_its_size_and_nothing_added_is_not_told():
    lines = entries(
        Started("claim", "look-up", "claim", 1, "f" * 16),
        Moved(
            "look-up", "pay", reason="x", set={"text": {"$blob": "a" * 64, "size": 204}}, append={"log": []}
        ),
    )
    told = render(why(lines))
    assert "set          text = <204 bytes outside the journal>" in told
    assert "added" not in told


async def test_a_child_is_named_where_it_was_waited_for():
    lines, _ = await journal(claims(), {"serial": "A1"}, run_id="r1")
    second = of_kind(why(lines), "move")[1]
    assert second.children == ("r1.check: succeeded",)


async def test_of_many_children_those_that_did_not_succeed_are_shown_and_how_many_there_were():
    lines, _ = await journal(claims(), {"serial": "A1"}, run_id="r1")
    second = of_kind(why(lines), "move")[1]
    good = tuple(f"r1.each[{n}]: succeeded" for n in range(500))
    shown = [line.split(None, 1) for line in render([replace(second, children=good)]).splitlines()]
    assert [line[1] for line in shown if line[:1] == ["child"]] == [
        *good[:3], "… 500 in all, 0 of them did not succeed",
    ]  # fmt: skip
    mixed = (*good, "r1.each[500]: failed")
    shown = [line.split(None, 1) for line in render([replace(second, children=mixed)]).splitlines()]
    assert [line[1] for line in shown if line[:1] == ["child"]] == [
        "r1.each[500]: failed", "… 501 in all, 1 of them did not succeed",
    ]  # fmt: skip


async def test_a_fallback_is_a_decision_of_its_own():
    lines, _ = await journal(claims("expired"), {"serial": "A1"})
    (fallback,) = of_kind(why(lines), "fallback")
    assert (fallback.state, fallback.reason, fallback.failures) == ("refuse", "timeout", ("too slow",))
    assert "fell back to the handler: timeout" in render([fallback])


def test_a_run_called_off_tells_who_asked_and_why_before_it_has_ended():
    lines = entries(Started("claim", "look-up", "claim", 1, "f" * 16, {}), CalledOff("ordered twice", "ann"))
    (asked,) = why(lines, CLAIM)
    assert (asked.kind, asked.state, asked.by, asked.reason) == (
        "cancellation", "look-up", "ann", "ordered twice",
    )  # fmt: skip
    text = render([asked])
    assert "look-up  cancellation" in text
    assert "because      ordered twice" in text
    assert "decided by   ann" in text


def test_every_kind_of_entry_can_be_read_and_written_as_json():
    decisions = why(every_kind(), CLAIM)
    assert {decision.kind for decision in decisions} == {
        "move", "end", "hold", "effect", "cancellation", "migration", "fork", "reopening",
    }  # fmt: skip
    json.dumps([decision.to_plain() for decision in decisions], allow_nan=False)
    assert render(decisions)


async def test_the_text_tells_an_effect_once_under_the_move_it_was_for():
    lines, _ = await journal(claims(), {"serial": "A1"})
    text = render(why(lines, CLAIM))
    assert text.count("bank.pay") == 1
    assert "because      covered" in text
    assert "looked at    registry" in text
    assert "instead of   refuse when device.status = expired or lost (did not hold)" in text
