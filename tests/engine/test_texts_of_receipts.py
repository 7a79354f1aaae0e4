"""Texts with receipts in them: put together once the effects before them are performed."""

from __future__ import annotations

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Outcome, Receipt, Text
from detent.engine.placeholders import written
from detent.engine.tools import Tool
from detent.kernel.machine import Machine
from detent.kernel.placeholders import fill, receipts_in
from detent.kernel.status import Status

MACHINE = Machine("desk", start="open", moves={"open": ["done"]}, ends={"done": Status.SUCCEEDED})
TEXT = Text(("Ticket ", Receipt("k1", "id"), " is open."))


def test_a_text_is_put_together_from_what_the_receipts_say():
    plain = written({"body": TEXT})
    assert receipts_in(plain) == {"k1"}
    assert fill(plain, {"k1": {"id": "T-1"}}) == {"body": "Ticket T-1 is open."}


def test_what_a_skipped_effect_does_not_say_is_a_dash():
    assert fill(written(TEXT), {"k1": None}) == "Ticket – is open."


@pytest.mark.parametrize(
    "data", [{"$text": ["a", {"$receipt": "k1.id"}]}, {"x": {"$text": 3}}, [{"$text": [], "more": 1}]]
)
def test_data_that_looks_like_one_comes_back_as_it_is(data):
    assert receipts_in(written(data)) == set()
    assert fill(written(data), {}) == data


async def test_a_later_effect_names_the_number_an_earlier_one_gave():
    sent = []

    async def opened(what: str) -> dict[str, str]:
        return {"id": "T-77"}

    async def send(body: str) -> dict[str, str]:
        sent.append(body)
        return {"status": "sent"}

    async def both(ctx):
        ticket = ctx.propose("open", what="printer")
        ctx.propose("send", body=Text(("Your ticket: ", ticket["id"])))
        return Outcome("done", set={"said": Text((ticket["id"], "!"))})

    flow = Flow(MACHINE, {"open": both}, tools=[Tool("open", opened), Tool("send", send, private=True)])
    async with Engine(MemoryStore(), [flow]) as engine:
        run = await engine.run("desk")
    assert sent == ["Your ticket: T-77"]
    assert run.data == {"said": "T-77!"}
