"""A hold token is a name and the number of the entry that asked."""

from __future__ import annotations

import pytest

from detent.kernel.entries import Ended, Entry, Held, Released, Started
from detent.kernel.errors import HoldNotOpen
from detent.kernel.hold_token import HoldToken
from detent.kernel.run import Run
from detent.kernel.status import Status


@pytest.mark.parametrize("name", ["approval", "effect:0c1f", "ask[1]", "ada@example.org", "two words", "é"])
def test_a_token_is_read_as_it_was_written(name):
    assert HoldToken.read(str(HoldToken(name, 17))) == HoldToken(name, 17)


@pytest.mark.parametrize("text", ["", "approval", "@17", "approval@", "a@x", "a@-1", "a@" + "9" * 99, "a@١"])
def test_what_is_no_token_is_not_read_as_one(text):
    assert HoldToken.read(text) is None


def run(*bodies):
    started = Started("flow", "work", "flow", 1, "f")
    return Run.fold("r1", [Entry(number, 0.0, 1, body) for number, body in enumerate([started, *bodies], 1)])


def test_the_same_name_asked_twice_has_two_tokens():
    first = run(Held("approval", "person"))
    second = run(Held("approval", "person"), Released("approval", "yes"), Held("approval", "person"))
    assert (first.token("approval"), second.token("approval")) == ("approval@2", "approval@4")
    assert second.token() == "approval@4"


def test_a_hold_that_is_not_open_has_no_token():
    with pytest.raises(HoldNotOpen, match="Run r1 has no open hold 'approval'. .* is running and"):
        run(Held("approval", "person"), Released("approval", "yes")).token("approval")
    with pytest.raises(HoldNotOpen, match="Run r1 has no open hold. "):
        run().token()
    with pytest.raises(HoldNotOpen, match="Run r1 has 2 open holds.* Open now: 'one@2', 'two@3'."):
        run(Held("one", "person"), Held("two", "person")).token()


def test_an_ended_run_says_so_when_a_token_is_asked_for():
    ended = run(Held("approval", "person"), Released("approval", "yes"), Ended(Status.SUCCEEDED, "done"))
    with pytest.raises(HoldNotOpen, match="has ended as succeeded and does not wait for an answer."):
        ended.token("approval")


def test_a_saved_fold_keeps_the_tokens():
    asked = run(Held("one", "person"), Held("two", "person"))
    again = Run.from_plain(asked.to_plain())
    assert (again.token("one"), again.token("two")) == ("one@2", "two@3")
