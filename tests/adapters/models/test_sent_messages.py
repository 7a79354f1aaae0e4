"""What is sent of a conversation: whatever was said in it, strict servers accept it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from detent.adapters.models import claude
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.sent_messages import NOTHING, sendable
from detent.dispatch.conversation import Message, ModelAnswer, ToolCall
from detent.dispatch.executor_errors import ExecutorError
from tests.adapters.models import strict
from tests.adapters.models.server import Reply, Server, answer, said, stream
from tests.adapters.models.talk import Heard, executor, request
from tests.adapters.models.test_claude import closing, message, opening, text, use, wording

SYSTEM, PROMPT = Message("system", "You code."), Message("user", "Fix it.")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-fake")


def user(text: str = "Now go on.") -> Message:
    return Message("user", text)


def assistant(text: str = "I look.", *calls: ToolCall) -> Message:
    return Message("assistant", text, calls)


def read(id_: str, arguments: Any = None, name: str = "read_file") -> ToolCall:
    return ToolCall(id_, name, {"filepath": "a.py"} if arguments is None else arguments)


def result(id_: str, text: str = "print(1)") -> Message:
    return Message("tool", text, answers=id_)


X, Y = "t2c1", "t2c2"
CONVERSATIONS: dict[str, list[Message]] = {
    "one of a coding session": [
        SYSTEM, PROMPT, assistant("I look.", read(X), read(Y)), result(X), result(Y), user("No marker."),
        assistant("It is done."), user("Again."), user("And this."),
    ],
    "a note behind results": [SYSTEM, PROMPT, assistant("", read(X)), result(X), user("Three are left.")],
    "a note of the system": [
        SYSTEM, PROMPT, assistant("Plan."), Message("system", "No tool was called."),
        assistant("", read("t4c1")), result("t4c1"), Message("system", "Your reply was cut off."),
    ],
    "an empty reply": [SYSTEM, PROMPT, assistant(""), user("Your reply was empty.")],
    "a blank reply": [SYSTEM, PROMPT, assistant(" \n\t"), user("Your reply was empty.")],
    "blank text beside a call": [SYSTEM, PROMPT, assistant(" \n", read(X)), result(X)],
    "an empty prompt": [SYSTEM, user("")],
    "an empty result": [SYSTEM, PROMPT, assistant("", read(X)), result(X, "")],
    "no instructions": [Message("system", " "), PROMPT],
    "instructions in two parts": [SYSTEM, Message("system", "Be brief."), PROMPT],
    "replies in a row": [SYSTEM, PROMPT, assistant("One."), assistant("Two."), user()],
    "a reply at the beginning": [SYSTEM, assistant("Hello."), user()],
    "nothing behind the last reply": [SYSTEM, PROMPT, assistant("It is done.")],
    "only instructions": [SYSTEM],
    "arguments that cannot be read": [
        SYSTEM, PROMPT, assistant("", read(X, '{"filepath": '), read(Y, "[1]")),
        result(X, "ERROR invalid_arguments"), result(Y, "ERROR invalid_arguments"),
    ],
    "names nobody knows": [
        SYSTEM, PROMPT,
        assistant("", read(X, name=""), read(Y, name="rm -rf /"), read("t2c3", name="ü" * 10_240)),
        result(X), result(Y), result("t2c3"),
    ],
    "more calls than digits": [
        SYSTEM, PROMPT, assistant("", *(read(f"t2c{n}") for n in range(1, 1002))),
        *(result(f"t2c{n}") for n in range(1, 1002)),
    ],
    "two turns of calls": [
        SYSTEM, PROMPT, assistant("One.", read(X)), result(X), assistant("Two.", read("t4c1")),
        result("t4c1"),
    ],
}  # fmt: skip


async def sent(
    messages: Sequence[Message], to: Callable[[Server], ModelStepExecutor], refuses: Any, reply: Reply
) -> tuple[Server, ModelAnswer]:
    """What a server is asked that refuses what it should, and its answer."""
    async with Server(reply, refuses=refuses) as server:
        model = to(server)
        try:
            return server, await model.reply(request(messages, Heard()))
        finally:
            await model.close()


def anthropic_model(server: Server) -> ModelStepExecutor:
    return ModelStepExecutor(claude.connect({"base_url": server.url}))


OPENAI = strict.all_of(strict.openai, strict.mistral)
CLAUDE = stream([opening(), *wording("ok"), *closing()])


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
class TestStrictServers:
    async def test_openais_protocol(self, messages):
        _, got = await sent(messages, executor, OPENAI, said("ok"))
        assert got.text == "ok"

    async def test_anthropics_protocol(self, messages):
        _, got = await sent(messages, anthropic_model, strict.anthropic, CLAUDE)
        assert got.text == "ok"

    async def test_chat_templates_without_tools(self, messages):
        def in_words(server: Server) -> ModelStepExecutor:
            return executor(server, native=False)

        server, got = await sent(messages, in_words, strict.alternating, said("ok"))
        assert got.text == "ok"
        written = json.dumps([one["content"] for one in server.asked[0].body["messages"]])
        assert written.count("RESULT of ") == sum(one.role == "tool" for one in messages)

    async def test_nothing_that_was_said_is_lost(self, messages):
        server, _ = await sent(messages, executor, OPENAI, said("ok"))
        written = "\n".join(one["content"] for one in server.asked[0].body["messages"])
        for one in messages:
            assert one.content.strip() in written

    async def test_what_follows_changes_nothing_that_was_sent_before(self, messages):
        """A provider's cache holds the beginning of the request before."""
        before = sendable(messages)
        later = [assistant("More.", read("t99c1")), result("t99c1"), user()]
        assert sendable([*messages, *later])[: len(before)] == before


REFUSED: dict[str, tuple[Any, Any]] = {
    "an open call": ([SYSTEM, PROMPT, assistant("", read(X)), user()], strict.openai),
    "a call without its result": ([PROMPT, assistant("", read(X), read(Y)), result(X)], strict.openai),
    "results in another order": (
        [PROMPT, assistant("", read(X), read(Y)), result(Y), result(X)], strict.openai,
    ),
    "a result of no call": ([PROMPT, assistant("Hm."), result(X)], strict.openai),
    "an id of two calls": (
        [PROMPT, assistant("", read(X)), result(X), assistant("", read(X)), result(X)], strict.openai,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "refuses"), REFUSED.values(), ids=REFUSED)
async def test_the_strict_servers_of_these_tests_refuse_what_providers_refuse(messages, refuses):
    """Otherwise the tests above could not fail."""
    for to, check in ((executor, refuses), (anthropic_model, strict.anthropic)):
        with pytest.raises(ExecutorError):
            await sent(messages, to, check, said("ok"))


@pytest.mark.parametrize(
    "body",
    [
        [{"role": "user", "content": " "}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}],
        [{"role": "user", "content": None}],
    ],
)
def test_they_refuse_empty_and_late_messages(body):
    assert strict.openai({"messages": body}) is not None


@pytest.mark.parametrize(
    "body",
    [
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        [{"role": "assistant", "content": "b"}, {"role": "user", "content": "a"}],
        [{"role": "user", "content": [{"type": "text", "text": "\n"}]}],
        [{"role": "user", "content": []}],
    ],
)
def test_they_refuse_turns_out_of_order_and_blank_blocks(body):
    assert strict.anthropic({"messages": body}) is not None


class TestSendable:
    def test_what_every_server_accepts_stays_as_it_is(self):
        messages = tuple(CONVERSATIONS["one of a coding session"])
        assert sendable(messages) == messages

    def test_an_empty_result_stays_empty(self):
        """A file without text must not look as if it had some."""
        results = [SYSTEM, PROMPT, assistant("", read(X)), result(X, "")]
        assert sendable(results)[-1].content == ""
        assert sendable([*results, assistant(""), user()])[3].content == ""

    def test_what_stands_for_nothing_is_said_to_be_nothing(self):
        assert sendable([PROMPT, assistant(""), user()])[1].content == NOTHING


# -- what only a provider understands -----------------------------------------------------------------------


@pytest.mark.parametrize("changed", ["I look.", "I look. ", "", "Something else."])
async def test_thoughts_go_back_to_claude_also_where_the_text_beside_them_was_changed(changed):
    """A marker beside calls is taken out of the text; without its thoughts the reply would be refused."""
    blocks = [strict.claude_thinking("Tests first."), text("I look. TUNACODE DONE: x"),
              strict.claude_thinking("Again."), use("toolu_1", "read_file", filepath="a.py")]  # fmt: skip
    refuses = strict.all_of(strict.claude, strict.anthropic)
    async with Server(answer(message(*blocks)), CLAUDE, refuses=refuses) as server:
        model = anthropic_model(server)
        got = await model.reply(request([PROMPT]))
        call = got.calls[0]._replace(id=X)
        reply = Message("assistant", changed, (call,), opaque=got.opaque)
        await model.reply(request([PROMPT, reply, result(X)], Heard()))
        await model.close()
    assert server.refused == 0
    back = server.asked[1].body["messages"][1]["content"]
    kinds = ["thinking", *(["text"] if changed else []), "thinking", "tool_use"]
    assert sorted(one["type"] for one in back) == sorted(kinds)
    assert [one["text"] for one in back if one["type"] == "text"] == ([changed] if changed else [])
    assert back[0]["type"] == "thinking"
    assert back[-1]["type"] == "tool_use"
