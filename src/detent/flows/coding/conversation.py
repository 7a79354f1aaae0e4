"""The conversation of a session as a model is sent it: made of the messages in the journals of its runs.

A message is read and measured once: each session's conversation is kept in memory and grows with its runs. It
can always be made again from the journals, and is when another process has gone on with the session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.dispatch.conversation import Conversation, Message, Opaque, ToolCall
from detent.engine.context import StepContext
from detent.flows.coding import request_data
from detent.flows.coding.explicit_assistant import NEEDS_PERSON
from detent.flows.coding.paired_messages import paired
from detent.flows.coding.request_data import RequestData
from detent.kernel.errors import RunNotFound
from detent.kernel.run import Run

MOST_KEPT = 16
"""Sessions whose conversations are kept in memory."""
PURGED = "(purged)"

Kept = Callable[[Mapping[str, Any]], Awaitable[bytes | None]]
"""Gives a value that is kept outside the journal, by its reference."""
FromFile = Callable[[str], Sequence[Any]]
"""Gives the messages of a session's file, for a session whose first runs are in no journal here."""


@dataclass(slots=True)
class _Known:
    """A conversation as far as it is known."""

    run_id: str
    """The last run with messages in it."""
    turns: int
    """Messages of that run in it."""
    conversation: Conversation = field(default_factory=Conversation)
    before: int = 0
    """Messages of earlier runs, from the beginning."""


class Conversations:
    """The conversations of the sessions under way here."""

    def __init__(self, from_file: FromFile = lambda session: ()) -> None:
        self._from_file = from_file
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def of(self, ctx: StepContext, system: str) -> Conversation:
        """The whole conversation of a run's session, to which the caller may add messages of its own."""
        data = RequestData(ctx.values)
        key = data.session or ctx.run_id
        known = self._known.get(key)
        if known is not None and known.run_id == data.earlier and await self._caught_up(ctx, known):
            known.run_id, known.turns = ctx.run_id, 0
            known.before = len(known.conversation.messages)
        if known is None or known.run_id != ctx.run_id or known.turns > len(data.turns):
            known = await self._read(ctx, data, system)
        self._known[key] = known
        self._known.move_to_end(key)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        await add_turns(known.conversation, data.turns[known.turns :], ctx.kept)
        known.turns = len(data.turns)
        branch = known.conversation.branch()
        prompt = next((number for number, turn in enumerate(data.turns) if turn["role"] == "user"), 0)
        branch.always = frozenset({known.before + prompt})
        return branch

    async def _caught_up(self, ctx: StepContext, known: _Known) -> bool:
        """Add what the run before has said since; False if it cannot be read."""
        try:
            earlier = await ctx.other(known.run_id)
        except RunNotFound:
            return False
        turns = RequestData(earlier.data).turns
        if known.turns > len(turns):
            return False
        await add_turns(known.conversation, turns[known.turns :], ctx.kept)
        return True

    async def _read(self, ctx: StepContext, data: RequestData, system: str) -> _Known:
        conversation = Conversation([Message("system", system)])
        chain = await runs_before(ctx, data)
        if data.session is not None and _continues_file(chain[0].data if chain else ctx.values):
            await add_turns(conversation, paired(self._from_file(data.session)), ctx.kept)
        for run in chain:
            await add_turns(conversation, RequestData(run.data).turns, ctx.kept)
        return _Known(ctx.run_id, 0, conversation, len(conversation.messages))


async def runs_before(ctx: StepContext, data: RequestData) -> list[Run]:
    """The runs of the session before this one, the first one first, as far as they are in the store."""
    chain: list[Run] = []
    earlier = data.earlier
    while earlier is not None:
        try:
            run = await ctx.other(earlier)
        except RunNotFound:
            break
        chain.append(run)
        earlier = RequestData(run.data).earlier
    return chain[::-1]


def _continues_file(data: Mapping[str, Any]) -> bool:
    """Whether a session's first run goes on with messages that only its file has."""
    return bool(data.get("from_file"))


async def add_turns(conversation: Conversation, turns: Sequence[request_data.Message], kept: Kept) -> None:
    """Add the messages of a run to a conversation, as a model is sent them."""
    for turn in turns:
        if turn.get("gave_up") in (None, NEEDS_PERSON):  # what code said in place of a model is for people
            conversation.add(await _message(turn, kept))


async def _message(turn: request_data.Message, kept: Kept) -> Message:
    text = await text_of(turn.get("content"), kept)
    match turn["role"]:
        case "assistant":
            calls = tuple(
                ToolCall(str(call["id"]), str(call["tool"]), call["args"])
                for call in turn.get("tool_calls") or ()
            )
            opaque = turn.get("opaque")
            return Message("assistant", text, calls, opaque=None if opaque is None else Opaque(**opaque))
        case "tool":
            error = turn.get("error")
            shown = f"ERROR {error}: {text}" if error else text
            return Message("tool", shown or "(no output)", answers=str(turn["tool_call_id"]))
        case _:
            return Message("user", text)


async def text_of(content: Any, kept: Kept) -> str:
    """A message's text, also where it is kept outside the journal."""
    if isinstance(content, Mapping) and "$blob" in content:
        raw = await kept(content)
        return PURGED if raw is None else raw.decode("utf-8", "surrogatepass")
    return "" if content is None else str(content)
