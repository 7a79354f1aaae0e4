"""Outcomes, effects and receipts as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from pydantic import BaseModel

from detent.engine.outcome import Effect, Hold, Outcome, Receipt
from detent.kernel.placeholders import fill, receipts_in
from detent.kernel.plain import to_plain
from detent.kernel.status import Status


@dataclass(frozen=True)
class Ticket:
    tool: ClassVar[str] = "crm.open"
    serial: str
    effect_key: str | None = None


class Mail(BaseModel):
    tool: ClassVar[str] = "mail.send"
    to: str


class TestOf:
    def test_everything_a_handler_may_return_is_an_outcome(self):
        assert Outcome.of(None) == Outcome()
        assert Outcome.of("next") == Outcome(next="next")
        assert Outcome.of({"a": 1}) == Outcome(set={"a": 1})
        assert Outcome.of(Hold("x")) == Outcome(hold=Hold("x"))
        outcome = Outcome("there")
        assert Outcome.of(outcome) is outcome

    def test_the_written_form_says_only_what_was_said(self):
        assert Outcome().to_plain() == {}
        said = Outcome("there", "go", {"a": (1,)}, {"b": iter([2])}, reason="so", end=Status.FAILED)
        assert said.to_plain() == {
            "next": "there", "event": "go", "reason": "so", "set": {"a": [1]}, "append": {"b": [2]},
            "end": "failed",
        }  # fmt: skip


class TestEffect:
    def test_a_dataclass_or_a_model_that_names_its_tool_is_an_effect(self):
        assert Effect.of(Ticket("A1")) == Effect("crm.open", {"serial": "A1"})
        assert Effect.of(Mail(to="ada")) == Effect("mail.send", {"to": "ada"})
        assert Effect.of(Ticket("A1", "second")).key == "second"

    @pytest.mark.parametrize("value", ["crm.open", {"tool": "crm.open"}, 3, None])
    def test_anything_else_is_none(self, value):
        with pytest.raises(TypeError, match="is not an effect"):
            Effect.of(value)

    def test_equal_actions_of_one_step_have_one_identity(self):
        assert Effect("t", {"a": 1, "b": 2}).identity("s") == Effect("t", {"b": 2, "a": 1}).identity("s")

    @pytest.mark.parametrize(
        ("other", "step"),
        [
            (Effect("t", {"a": 2}), "s"),
            (Effect("u", {"a": 1}), "s"),
            (Effect("t", {"a": 1}, "again"), "s"),
            (Effect("t", {"a": 1}), "elsewhere"),
        ],
    )
    def test_other_actions_have_another_identity(self, other, step):
        assert Effect("t", {"a": 1}).identity("s") != other.identity(step)

    def test_text_that_is_no_unicode_has_an_identity_too(self):
        assert Effect("t", {"a": "\ud800"}).identity("s") != Effect("t", {"a": "\ud801"}).identity("s")


class TestReceipt:
    def test_a_receipt_may_be_gone_into(self):
        assert to_plain(Receipt("k")) == {"$receipt": "k"}
        assert to_plain(Receipt("k").ticket["id"]) == {"$receipt": "k.ticket.id"}

    def test_stand_ins_are_found_and_filled_wherever_they_stand(self):
        value = to_plain({"a": [1, {"b": Receipt("k").id}], "c": Receipt("k"), "d": Receipt("k").gone})
        assert receipts_in(value)
        assert not receipts_in({"a": [1, {"b": "$receipt"}]})
        assert fill(value, {"k": {"id": 7}}) == {"a": [1, {"b": 7}], "c": {"id": 7}, "d": None}

    def test_a_receipt_of_nothing_is_an_error(self):
        with pytest.raises(KeyError):
            fill({"$receipt": "k"}, {})
