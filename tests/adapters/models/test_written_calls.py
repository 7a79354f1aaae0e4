"""Calls that a model without native ones writes into its reply, and JSON that is none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from detent.adapters.models import written_calls
from detent.adapters.models.streamed_text import StreamedText
from detent.dispatch.conversation import Conversation, Message
from tests.adapters.models import strict
from tests.adapters.models.server import Server, delta, event, said, stream
from tests.adapters.models.talk import ASKED, TOOLS, Heard, asked, executor, request

READ = '{"tool": "read_file", "arguments": {"filepath": "a.py"}}'
PRETTY = json.dumps(json.loads(READ), indent=2)
LIST = '{"tool": "list_dir", "arguments": {}}'
A = ("read_file", {"filepath": "a.py"})
LS: tuple[str, Any] = ("list_dir", {})


def made(text: str) -> tuple[str, list[tuple[str, Any]]]:
    reply = written_calls.read(text, TOOLS)
    return reply.text, [(call.name, call.arguments) for call in reply.calls]


CALLS: dict[str, tuple[str, str, list[tuple[str, Any]]]] = {
    "alone": (READ, "", [A]),
    "over several lines": (PRETTY, "", [A]),
    "behind text": (f"I read it first.\n{READ}", "I read it first.", [A]),
    "before text": (f"{READ}\n\nThen I fix it.", "Then I fix it.", [A]),
    "between texts": (f"First.\n\n{READ}\n\nThen.", "First.\n\nThen.", [A]),
    "with text behind it in its line": (f"{READ} This reads it.", "This reads it.", [A]),
    "behind a colon": (f"I call the tool: {READ}", "I call the tool:", [A]),
    "behind a label": (f"Thought: I look.\nAction: {READ}\n", "Thought: I look.\nAction:", [A]),
    "indented": (f"Look:\n    {READ}", "Look:", [A]),
    "windows lines": (f"Look.\r\n{READ}\r\nDone.\r\n", "Look.\n\nDone.", [A]),
    "fence json": (f"```json\n{PRETTY}\n```\n", "", [A]),
    "fence without a label": (f"```\n{READ}\n```", "", [A]),
    "fence of a tool": (f"~~~~ tool_call\n{READ}\n~~~~", "", [A]),
    "indented fence": (f"   ```json\n   {READ}\n   ```", "", [A]),
    "fence that is not closed": (f"```json\n{READ}", "", [A]),
    "fence behind thoughts": (f"<think>\nhm\n</think>\n```json\n{READ}\n```", "<think>\nhm\n</think>", [A]),
    "fence before a line": (f"```json\n{READ}\n```\n{LIST}", "", [A, LS]),
    "fence behind a line": (f"{LIST}\n```json\n{READ}\n```", "", [LS, A]),
    "a line beside a fence that is shown": (
        f"The form is\n```json\n{LIST}\n```\nso:\n{READ}", f"The form is\n```json\n{LIST}\n```\nso:", [A]
    ),
    "behind a lone end of thoughts": (f"hm\n{LIST}\nno </think>\n{READ}", f"hm\n{LIST}\nno </think>", [A]),
    "two in a fence": (f"```json\n{READ}\n{READ}\n```", "", [A, A]),
    "two lines": (f"{READ}\n{READ}", "", [A, A]),
    "two with text between": (f"{READ}\nand\n{READ}", "and", [A, A]),
    "two in a line": (f"{READ} {READ}", "", [A, A]),
    "two with a comma": (f"{READ},\n{READ}", "", [A, A]),
    "two fences": (f"```json\n{READ}\n```\n```json\n{READ}\n```", "", [A, A]),
    "a list": (f"[{READ}, {READ}]", "", [A, A]),
    "calls": (f'{{"calls": [{READ}, {{"tool": "list_dir"}}]}}', "", [A, LS]),
    "calls with args": ('{"calls": [{"tool": "read_file", "args": {"filepath": "a.py"}}]}', "", [A]),
    "tool_calls": (
        '{"tool_calls": [{"id": "x", "type": "function", "function": {"name": "read_file", '
        '"arguments": "{\\"filepath\\": \\"a.py\\"}"}}]}', "", [A],
    ),
    "name": ('{"name": "read_file", "arguments": {"filepath": "a.py"}}', "", [A]),
    "name and parameters": ('{"name": "read_file", "parameters": {"filepath": "a.py"}}', "", [A]),
    "type": ('{"type": "function", "name": "read_file", "parameters": {"filepath": "a.py"}}', "", [A]),
    "tool_use": ('{"type": "tool_use", "name": "read_file", "input": {"filepath": "a.py"}}', "", [A]),
    "action": ('{"action": "read_file", "action_input": {"filepath": "a.py"}}', "", [A]),
    "function": ('{"function": "read_file", "args": {"filepath": "a.py"}}', "", [A]),
    "function_name": ('{"function_name": "read_file", "kwargs": {"filepath": "a.py"}}', "", [A]),
    "tool_name": ('{"tool_name": "read_file", "tool_input": {"filepath": "a.py"}}', "", [A]),
    "with a thought": (
        '{"thought": "I look.", "tool": "read_file", "arguments": {"filepath": "a.py"}}', "", [A],
    ),
    "arguments first": ('{"arguments": {"filepath": "a.py"}, "tool": "read_file"}', "", [A]),
    "arguments beside the name": ('{"tool": "read_file", "filepath": "a.py"}', "", [A]),
    "arguments as text": ('{"tool": "read_file", "arguments": "{\\"filepath\\": \\"a.py\\"}"}', "", [A]),
    "no arguments": ('{"tool": "list_dir"}', "", [LS]),
    "arguments null": ('{"tool": "list_dir", "arguments": null}', "", [LS]),
    "arguments empty": ('{"tool": "list_dir", "arguments": ""}', "", [LS]),
    "tag": (f"<tool_call>\n{READ}\n</tool_call>", "", [A]),
    "tag with name": (
        '<tool_call>{"name": "read_file", "arguments": {"filepath": "a.py"}}</tool_call>', "", [A],
    ),
    "tag behind text": (f"I look. <tool_call>{READ}</tool_call> Wait.", "I look.\n\nWait.", [A]),
    "two tags": (f"<tool_call>{READ}</tool_call>\n<tool_call>{READ}</tool_call>", "", [A, A]),
    "tag that is not closed": (f"I look.\n<tool_call>\n{READ}", "I look.", [A]),
    "tag in a fence": (f"```\n<tool_call>{READ}</tool_call>\n```", "", [A]),
    "mistral": (
        '[TOOL_CALLS] [{"name": "read_file", "arguments": {"filepath": "a.py"}}]', "", [A],
    ),
    "llama": ('<|python_tag|>{"name": "list_dir", "parameters": {}}', "", [LS]),
    "line breaks inside a text": (
        '{"tool": "write_file", "arguments": {"filepath": "a", "content": "one\ntwo\n```\n"}}', "",
        [("write_file", {"filepath": "a", "content": "one\ntwo\n```\n"})],
    ),
    "code inside a text": (
        'Here:\n{"tool": "write_file", "arguments": {"filepath": "a", "content": '
        '"{\\"tool\\": \\"bash\\"}\\n```json\\n<think>\\n<tool_call>"}}', "Here:",
        [("write_file", {"filepath": "a", "content": '{"tool": "bash"}\n```json\n<think>\n<tool_call>'})],
    ),
    "an unknown tool": (
        'I edit.\n{"tool": "edit", "arguments": {"path": "a"}}', "I edit.", [("edit", {"path": "a"})],
    ),
    "an unknown tool in a tag": (
        '<tool_call>{"name": "edit", "arguments": {}}</tool_call>', "", [("edit", {})],
    ),
    "an unknown tool that is the whole reply": (
        '{"name": "edit", "arguments": {"path": "a"}}', "", [("edit", {"path": "a"})],
    ),
    "text for arguments": ('{"tool": "bash", "arguments": "ls -la"}', "", [("bash", "ls -la")]),
    "a list for arguments": ('{"tool": "bash", "arguments": ["ls"]}', "", [("bash", '["ls"]')]),
    "the last brace is missing": (
        'Go.\n{"tool": "read_file", "arguments": {"filepath": "a.py"}\n', "Go.", [A],
    ),
    "the last brace is missing, twice": (f"{READ[:-1]}\n{READ[:-1]}\n", "", [A, A]),
    "cut off": (
        '{"tool": "write_file", "arguments": {"filepath": "a", "content": "abc', "",
        [("write_file", '{"filepath": "a", "content": "abc')],
    ),
    "broken, and a good one behind it": (
        f'{{"tool": "bash", "arguments": {{command: ls}}}}\n{READ}', "", [("bash", "{command: ls}}"), A],
    ),
    "broken in a fence": (
        '```json\n{"tool": "bash", "arguments": {command: "ls"}}\n```\n', "",
        [("bash", '{command: "ls"}}')],
    ),
    "broken in a tag": (
        '<tool_call>{"name": "bash", "arguments": {"command": ls}}</tool_call> Then.', "Then.",
        [("bash", '{"command": ls}}')],
    ),
    "nameless in a tag": ('<tool_call>{"path": "a"}</tool_call>', "", [("", '{"path": "a"}')]),
    "garbage in a tag": ("<tool_call>{read a.py}</tool_call>", "", [("", "{read a.py}")]),
    "numbers that no journal holds": (
        '{"tool": "bash", "arguments": "{\\"n\\": 1e999}"}', "", [("bash", '{"n": 1e999}')],
    ),
    "results made up by the model": (
        f"I read.\n{READ}\nRESULT of read_file\nprint(1)\n{READ}\nTUNACODE DONE: x", "I read.", [A],
    ),
    "behind thoughts": (f"<think>\n{READ}\n</think>\nI look.\n{READ}",
                        f"<think>\n{READ}\n</think>\nI look.", [A]),
    "behind thoughts whose beginning is missing": (
        f"Hm. {READ}\n{READ}\n</think>\n{READ}", f"Hm. {READ}\n{READ}\n</think>", [A],
    ),
    "marker line beside": (f"TUNACODE DONE: x\n{READ}", "TUNACODE DONE: x", [A]),
}  # fmt: skip


@pytest.mark.parametrize(("reply", "text", "calls"), CALLS.values(), ids=CALLS)
def test_a_call_is_read_as_models_write_it(reply, text, calls):
    assert made(reply) == (text, calls)


PROSE = {
    "plain": "It is done.",
    "empty": "",
    "a file": 'The file:\n```json\n{"name": "detent", "version": "1", "scripts": {"test": "x"}}\n```\nDone.',
    "a file of name and arguments": '```json\n{"name": "serve", "arguments": ["-q"]}\n```',
    "a launch configuration": '```json\n{"name": "Debug", "type": "python", "args": ["a.py"]}\n```',
    "a hook": '```json\n{"tool": "black", "args": ["--check"]}\n```',
    "a tool's description": '```json\n{"name": "bash", "description": "x", "parameters": {}}\n```',
    "a function's description": (
        '```json\n{"type": "function", "function": {"name": "now", "parameters": {}, "strict": true}}\n```'
    ),
    "a list of others": '```json\n[{"tool": "bash", "arguments": {}}, {"name": "x"}]\n```',
    "a call inside of other JSON": f'```json\n{{"example": {READ}}}\n```',
    "the same without a fence": f'{{"steps": [\n{READ},\n{READ}\n]}}',
    "python": f"```python\nCALL = {READ}\n{READ}\n```",
    "a fence that is quoted": f"The file says:\n```json\n{READ}\n```\nShall I?",
    "a fence behind text": f"An example:\n```\n<tool_call>{READ}</tool_call>\n```",
    "a fence before text": f"```\n{READ}\n```\nDo not write this.",
    "a broken call in a fence": 'Go.\n```json\n{"tool": "bash", "arguments": {command: "ls"}}\n```',
    "repeated output of a tool": f"<tool_output>\n{READ}\n</tool_output>\nThat is in the file.",
    "repeated output with a name": f'It says <tool_output name="x">\n<tool_call>{READ}</tool_call>',
    "thoughts that begin in a line": f"Well <think>\n{READ}\n</think> no.",
    "thoughts in capitals": f"<THINK>\n{READ}\n</THINK>\nno.",
    "before a lone end of thoughts": f"maybe\n{READ}\nrather not </think>\nI wait.",
    "text fence": f"```text\n{READ}\n```",
    "a longer fence": f"````markdown\n```json\n{READ}\n```\n````",
    "in a longer fence, behind a shorter one": f"````markdown\n```\nx\n```\n{READ}\n````",
    "in backticks": f"Write `{READ}` to read it.\n`{READ}`",
    "in a sentence": f"If you write {READ} it is read.",
    "behind a colon in a sentence": f"For example: {READ} reads it, and nothing else.",
    "in quotation marks": f'"{READ}"',
    "in a comment": f"// {READ}\n# {READ}\n> {READ}\n- {READ}",
    "a tag in backticks": f"`<tool_call>{READ}</tool_call>` is how it is written.",
    "a tag alone": "The tag <tool_call> begins a call.",
    "a dictionary of python": "{'tool': 'read_file', 'arguments': {'filepath': 'a.py'}}",
    "only a name": '{"name": "read_file"}',
    "an unknown name in a text": 'Add\n{"name": "serve", "arguments": {"port": 1}}\nand restart.',
    "a tool of another kind": '{"tool": "ruff", "command": "check"}',
    "a tool with other keys": '{"tool": "bash", "version": 5}',
    "another key first": '{"filepath": "a.py", "tool": "read_file"}',
    "an answer": '{"answer": 42}',
    "no calls": '{"calls": []}',
    "numbers": "[1, 2, 3]\n{1, 2}\n{}\n[]",
    "only thoughts": f"<think>\n{READ}\n</think>",
    "endless thoughts": f"<think>\nI could write\n{READ}",
    "results of other kinds": "RESULT of the tests\n12 passed {x}",
}


@pytest.mark.parametrize("reply", PROSE.values(), ids=PROSE)
def test_prose_with_json_stays_prose(reply):
    assert made(reply) == (reply, [])


HOSTILE = {
    "braces": "{" * 200_000,
    "lines of braces": "{\n" * 100_000,
    "lines of objects that never end": '{"tool":\n' * 100_000,
    "lines of lists that never end": '[{"tool": [\n' * 50_000,
    "lines of half calls": '{"tool": "bash", "arguments": {\n' * 20_000,
    "indented half calls": ' {"tool": "bash", "arguments": {\n' * 20_000,
    "texts that never end": '{"tool": "' * 50_000,
    "tags": "<tool_call>{" * 50_000,
    "tags and blanks": "<tool_call>{" + " " * 200_000,
    "fences": "```json\n{\n" * 50_000,
    "fences of growing length": "\n".join("`" * (3 + n % 300) for n in range(20_000)),
    "colons": "a: " * 100_000 + "{",
    "calls in a line": '{"tool":"list_dir"} ' * 20_000,
    "closed thoughts": "</think>\n" * 50_000 + "{",
    "open thoughts": "<think>\n" * 50_000 + "{",
    "deep": '{"tool": "bash", "arguments": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001,
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_reply_is_read_in_time_in_proportion_to_its_length(reply):
    """Work in proportion to the square would run into the time limit of a test."""
    long = (reply * (1_000_000 // len(reply) + 1))[:1_000_000]
    read = written_calls.read(long, TOOLS)
    assert len(read.text) + sum(len(str(call.arguments)) for call in read.calls) <= len(long)
    watched = StreamedText(TOOLS)
    shown = watched.add(long[:100_000])
    assert shown + watched.held() == long[:100_000]


@pytest.mark.parametrize("line", ['{"tool":\n', '{"tool": "bash", x\n'], ids=["nested", "broken"])
def test_the_end_of_a_reply_made_to_be_slow_is_text(line):
    """What each line costs grows with its place, so that reading them all would never end."""
    assert made(f"{line * 10}\n{READ}")[1][-1:] == [A]
    assert made(f"{line * 5_000}\n{READ}")[1] == []


def parts_of(text: str, length: int) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]


class TestStreamed:
    """Text is heard as it is written; calls are not."""

    @pytest.mark.parametrize(("reply", "text", "calls"), CALLS.values(), ids=CALLS)
    def test_what_is_shown_is_the_text_without_its_calls(self, reply, text, calls):
        for length in (1, 7, 1000):
            watched = StreamedText(TOOLS)
            shown = "".join(watched.add(part) for part in parts_of(reply, length))
            assert (shown + written_calls.read(watched.held(), TOOLS).text).split() == text.split()

    @pytest.mark.parametrize("reply", PROSE.values(), ids=PROSE)
    def test_prose_is_shown_word_for_word(self, reply):
        for length in (1, 7, 1000):
            watched = StreamedText(TOOLS)
            shown = "".join(watched.add(part) for part in parts_of(reply, length))
            assert shown + watched.held() == reply

    async def test_what_is_heard_is_what_is_said(self):
        """Over HTTP: texts, calls, and JSON that begins as a call does and is none."""
        for reply, text, count in [
            (f"I look.\n{READ}\nThen.\n", "I look.\n\nThen.", 1),
            (f"I look.\n```json\n{READ}\n```\nThen.\n", f"I look.\n```json\n{READ}\n```\nThen.\n", 0),
            (f"I look.\n{READ}\n{READ[:-1]}", "I look.", 2),
            (PROSE["a file"], PROSE["a file"], 0),
            (PROSE["in a sentence"], PROSE["in a sentence"], 0),
            (PROSE["another key first"], PROSE["another key first"], 0),
        ]:
            heard = Heard()
            events = [delta(content=part) for part in parts_of(reply, 3)]
            got = await asked(
                stream([*events, delta(finish="stop"), event("[DONE]")]), native=False, heard=heard
            )
            assert (got.text, len(got.calls)) == (text, count)
            assert heard.text.split() == text.split()
            assert len(heard.chunks) > 1

    def test_only_what_may_be_a_call_is_held_back(self):
        """Code and prose come at once, also behind JSON that turned out to be none."""
        watched = StreamedText(TOOLS)
        assert watched.add("I look [1] at {x} and <b>.") == "I look [1] at {x} and <b>."
        assert watched.add('\n```json\n{"name": "detent"') == "\n"
        assert watched.add("}\n```") == ""
        assert watched.add("\nmore") == '```json\n{"name": "detent"}\n```\nmore'
        assert watched.add("\n```python\nx = {") == "\n```python\nx = {"
        assert watched.add('"tool": 1}\n```\n') == '"tool": 1}\n```\n'
        assert watched.add(' {"tool') == " "
        assert watched.add('": "bash"}\nand so on') == ""
        assert watched.held() == '{"tool": "bash"}\nand so on'

    async def test_a_server_that_does_not_stream_is_heard_without_the_calls(self):
        heard = Heard()
        await asked(said(f"I look.\n{READ}"), native=False, heard=heard)
        assert heard.chunks == [("I look.", "output")]

    async def test_text_before_a_call_is_heard_before_the_call_is_written(self):
        gate, heard = asyncio.Event(), Heard()
        events = [delta(content=f"I look.\n{READ[:20]}"), delta(content=READ[20:]), delta(finish="stop")]
        async with Server(stream([*events, event("[DONE]")], gates={1: gate})) as server:
            model = executor(server, native=False)
            reply = asyncio.ensure_future(model.reply(request(heard=heard)))
            await heard.first.wait()
            assert (heard.text, reply.done()) == ("I look.\n", False)
            gate.set()
            assert (await reply).calls
            await model.close()


class TestConversation:
    """What a model without native calls is sent."""

    async def test_it_is_told_of_its_tools_and_not_held_to_a_form(self):
        async with Server(said("Done.")) as server:
            model = executor(server, native=False)
            got = await model.reply(request())
            await model.close()
        body = server.asked[0].body
        assert (got.text, got.calls) == ("Done.", ())
        assert body.keys().isdisjoint({"tools", "response_format"})
        system = body["messages"][0]["content"]
        assert system.startswith("You code.\n\n")
        assert '{"tool": "<name>", "arguments": {…}}' in system
        assert "- read_file: The tool read_file." in system
        assert '{"answer"' not in system

    async def test_its_text_and_its_calls_are_in_what_it_said_and_read_again_as_the_same(self):
        reply = f"I look.\n{READ}\n{READ}"
        async with Server(said(reply), said("Done."), refuses=strict.alternating) as server:
            model = executor(server, native=False)
            got = await model.reply(request())
            conversation = Conversation(ASKED)
            calls = conversation.with_ids(got.calls)
            conversation.add(Message("assistant", got.text, calls))
            conversation.add(*(Message("tool", f"text of {call.id}", answers=call.id) for call in calls))
            conversation.add(Message("user", "Go on."))
            await model.reply(request(conversation.messages))
            await model.close()
        assert server.refused == 0
        said_, results = (message["content"] for message in server.asked[1].body["messages"][2:])
        assert said_ == reply
        assert results == ("RESULT of read_file\ntext of t2c1\n\nRESULT of read_file\ntext of t2c2\n\nGo on.")

    async def test_where_no_tool_is_offered_any_more_calls_are_still_told_in_words(self):
        call = Conversation().with_ids(written_calls.read(READ, TOOLS).calls)  # type: ignore[arg-type]
        messages = [*ASKED, Message("assistant", "", call), Message("tool", "x", answers=call[0].id)]
        async with Server(said("Done."), refuses=strict.alternating) as server:
            model = executor(server, native=False)
            await model.reply(request(messages, tools=()))
            await model.close()
        assert server.refused == 0
        assert server.asked[0].body["messages"][0]["content"] == "You code."
