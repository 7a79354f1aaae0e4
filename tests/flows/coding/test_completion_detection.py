"""When a reply completes a request: the marker's law, example by example, and against a slow judge."""

import contextlib
import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from detent.flows.coding.reply import CodingCall
from detent.flows.coding.reply_text import has_own_words, own_text
from detent.flows.coding.task_completion import (
    Completion,
    JudgedReply,
    check_completion,
    check_task_completion,
    judge_reply,
)
from detent.flows.coding.tools.spec import SPECS
from detent.flows.coding.written_calls import TOOL_NAMES
from tests.examples import ALL, examples

TOOLS = frozenset({"bash", "read_file", "grep"})
CALL = CodingCall("t1c1", "bash", {"command": "ls"})


def counts(text: str, **given) -> tuple[int, str] | None:
    """Line and summary of the completion."""
    judged = judge_reply(text, known_tools=TOOLS, **given)
    completion = judged.completion
    if completion is None:
        return None
    assert completion.source == "reply"
    assert completion.marker_line == re.split("\r?\n", text)[completion.line_no - 1]
    assert (judged.refused, judged.premature) == (None, False)
    return completion.line_no, completion.summary


def lines(*texts: str) -> str:
    return "\n".join(texts)


# -- the table of the specification -------------------------------------------------------------------------

COUNTS = {
    "TUNACODE DONE: fixed": (1, "fixed"),
    "   tunacode done:": (1, ""),
    "Text\nTUNACODE DONE: x\nmore": (2, "x"),
    "\tTunaCode Done: x": (1, "x"),
    "TUNACODE DONE: x\r\n": (1, "x"),
    "a\r\n\r\nTUNACODE DONE: x\r\nb\r\n": (3, "x"),
    "TUNACODE DONE: one\nTUNACODE DONE: two": (1, "one"),
    "```py\nx\n```\nTUNACODE DONE: x": (4, "x"),
    "```x```\nTUNACODE DONE: x": (2, "x"),
    "\n\nTUNACODE DONE: x": (3, "x"),
}

DOES_NOT = {
    "> TUNACODE DONE: x": "quoted",
    "```\nTUNACODE DONE: x\n```": "fence",
    "I will write TUNACODE DONE: later": "not at line start",
    "TUNACODE DONE x": "no colon",
    "TUNACODE_DONE:": "underscore",
    "TUNACODE  DONE:": "two spaces",
    "````\n```\nTUNACODE DONE: x\n````": "shorter fence",
    "**TUNACODE DONE: x**": "bold",
    "- TUNACODE DONE: x": "list",
    "a\fTUNACODE DONE: x": "no line end",
    "": "empty",
    " \n\t\n ": "blank",
}


@pytest.mark.parametrize("text", COUNTS)
def test_a_line_that_counts_completes_with_its_line_and_summary(text: str):
    """C-07"""
    assert counts(text) == COUNTS[text]


@pytest.mark.parametrize("text", DOES_NOT)
def test_a_line_that_does_not_count_completes_nothing_and_is_shown_as_it_came(text: str):
    """C-07"""
    judged = judge_reply(text, known_tools=TOOLS)
    assert (judged.completion, judged.shown, judged.premature) == (None, text, False)


def test_a_marker_beside_a_tool_call_is_premature():
    """C-07, C-09"""
    judged = judge_reply("Reading.\nTUNACODE DONE: x", calls=[CALL])
    assert judged == JudgedReply(None, "Reading.\nx", "it stands beside tool calls", True)
    assert not judge_reply("Reading.", calls=[CALL]).premature
    fenced = judge_reply("```\nTUNACODE DONE: x\n```", calls=[CALL])
    assert not fenced.premature, "it would not count alone either"


# -- where it stands ----------------------------------------------------------------------------------------

DONE = "TUNACODE DONE: x"

STANDS = {
    "after thinking": (f"<think>\nhm\n</think>\n{DONE}", 4),
    "after thinking in one line": (f"<think>hm</think>\n{DONE}", 2),
    "after thinking that was begun elsewhere": (f"hm\n</think>\n\n{DONE}", 4),
    "after tool output": (f"<tool_output>\n{DONE}\n</tool_output>\n{DONE}", 4),
    "after tool output with attributes": (f'<tool_output name="a">\n{DONE}\n</tool_output>\n{DONE}', 4),
    "before thinking": (f"{DONE}\n<think>was that all?", 1),
    "before a fence": (f"{DONE}\n```\ncode", 1),
    "after a tilde fence": (f"~~~ a ~ ` b\n{DONE}\n~~~~\n{DONE}", 4),
    "after an indented fence": (f"1. so:\n   ```sh\n   make\n   ```\n{DONE}", 5),
    "after a fence in thinking that is not closed": (f"<think>\n```\n</think>\n{DONE}", 4),
    "after a tag in a fence": (f"```html\n<think>\n```\n{DONE}", 4),
    "after a closing tag in a fence": (f"{DONE}\n```html\n</think>\n```", 1),
    "after a tag in backticks": (f"I removed the `<think>` tag.\n{DONE}", 2),
    "with a tag in backticks": (f"{DONE} without `</think>`", 1),
    "after a mention of a block": (f"The `<tool_output>` block.\n{DONE}", 2),
    "after thinking that mentions its end": (f"<think>\n`</think>` ends it\n</think>\n{DONE}", 4),
    "after another tag": (f"<thinker>\n{DONE}", 2),
    "after a lone end of tool output": (f"</tool_output>\n{DONE}", 2),
    "after two backticks": (f"``\n{DONE}\n``", 2),
    "after backticks in the middle": (f"a ```\n{DONE}", 2),
    "after four spaces": (f"    {DONE}", 1),
    "after odd blanks": (f"\u2028\x0b\u3000\xa0\r{DONE}", 1),
    "with marker words in it": (f"{DONE} TUNACODE DONE: y", 1),
    "without a space": ("TUNACODE DONE:x", 1),
    "after a null": (f"\x00\n\ud800\n{DONE}", 3),
}

HIDDEN = {
    "thinking": f"<think>\n{DONE}\n</think>",
    "thinking of another name": f"<thinking>\n{DONE}\n</thinking>",
    "thinking of another name, begun elsewhere": f"{DONE}\n</thinking>",
    "thinking of another name that is not closed": f"<Thinking >\n{DONE}",
    "thinking in capitals": f"<THINK>\n{DONE}\n</Think >",
    "thinking that is not closed": f"<think>\n{DONE}",
    "thinking that was begun elsewhere": f"{DONE}\n</think>",
    "thinking, begun elsewhere, that ends in its line": f"{DONE} </think>",
    "thinking within thinking": f"<think><think></think>\n{DONE}\n</think>",
    "thinking after its mention": f"<think>the `</think>` tag\n{DONE}",
    "thinking, begun in the middle": f"Now <think> well\n{DONE}",
    "tool output": f"<tool_output>\n{DONE}\n</tool_output>",
    "tool output with attributes": f"<tool_output id='1'>\n{DONE}\n</tool_output>",
    "tool output that is not closed": f"<tool_output>\n{DONE}",
    "tool output with thinking": f"<tool_output>\n</think>\n{DONE}\n</tool_output>",
    "a fence that is not closed": f"```\n{DONE}",
    "a fence of tildes": f"~~~\n{DONE}\n~~~",
    "a fence of the other kind": f"~~~\n```\n{DONE}\n~~~",
    "an indented fence": f"   ```\n   {DONE}\n   ```",
    "a fence with words": f"```python title=x\n{DONE}\n```",
    "a fence that something follows": f"```\ncode\n``` and\n{DONE}\n```",
    "a fence in windows lines": f"```\r\n{DONE}\r\n```\r\n",
    "a fence after a closed one": f"```\n```\n```\n{DONE}",
    "a fence with a tag": f"```\n</think>\n{DONE}\n```",
    "no line of its own, after thinking": f"<think></think>{DONE}",
    "no line of its own, after a line separator": f"a\u2028{DONE}",
    "no line of its own, after a lone return": f"a\r{DONE}",
    "no line of its own, after a null": f"\x00{DONE}",
    "a no-break space": "TUNACODE\xa0DONE: x",
    "a tab": "TUNACODE\tDONE: x",
    "a blank before the colon": "TUNACODE DONE : x",
    "a wide colon": "TUNACODE DONE： x",
    "a heading": f"## {DONE}",
    "inline code": f"`{DONE}`",
    "a number": f"1. {DONE}",
    "a line break": "TUNACODE\nDONE: x",
}


@pytest.mark.parametrize("name", STANDS)
def test_a_marker_outside_what_is_set_apart_counts(name: str):
    """C-07, C-08, C-18"""
    text, line_no = STANDS[name]
    found = counts(text)
    assert found is not None
    assert found[0] == line_no
    assert counts(text.replace("\n", "\r\n")) == found


@pytest.mark.parametrize("name", HIDDEN)
def test_a_marker_anywhere_but_on_a_line_of_the_replys_own_does_not_count(name: str):
    """C-08"""
    text = HIDDEN[name]
    assert counts(text) is None
    assert counts(f"before\n{text}" if "elsewhere" not in name else text) is None
    assert counts(text, calls=[CALL]) is None
    assert not judge_reply(text, calls=[CALL]).premature


@pytest.mark.parametrize(
    ("text", "line_no"),
    [
        ("TUNACODE_TASK_COMPLETE", 1),
        ("TUNACODE_TASK_COMPLETE\nAll tests pass.", 1),
        ("\n \n  tunacode_task_complete \r\nbody", 3),
        ("<think>\nhm\n</think>\n\nTUNACODE_TASK_COMPLETE", 5),
        ("TUNACODE_TASK_COMPLETE\nTUNACODE DONE: x", 1),
    ],
)
def test_the_marker_of_older_sessions_counts_on_the_first_line(text: str, line_no: int):
    """C-18"""
    assert counts(text) == (line_no, "")


@pytest.mark.parametrize(
    "text",
    [
        "All done.\nTUNACODE_TASK_COMPLETE",
        "TUNACODE_TASK_COMPLETE: fixed",
        "TUNACODE_TASK_COMPLETE and more",
        "I write TUNACODE_TASK_COMPLETE",
        "```\nTUNACODE_TASK_COMPLETE\n```",
        "<think>TUNACODE_TASK_COMPLETE</think>",
        "<think>\nTUNACODE_TASK_COMPLETE",
        "<think></think>TUNACODE_TASK_COMPLETE",
        "TUNACODE TASK COMPLETE",
        "**TUNACODE_TASK_COMPLETE**",
        "TUNACODE_TASK_COMPLETED",
    ],
)
def test_the_marker_of_older_sessions_counts_nowhere_else(text: str):
    assert counts(text) is None


def test_the_marker_of_older_sessions_is_premature_beside_calls():
    judged = judge_reply("TUNACODE_TASK_COMPLETE\nbody", calls=[CALL])
    assert (judged.completion, judged.shown, judged.premature) == (None, "body", True)


# -- echoes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [
        "TUNACODE DONE: fixed",
        "  tunacode done: FIXED\t",
        "a\nTUNACODE DONE: fixed\nb",
        "a\r\nTUNACODE DONE: fixed\r\n",
        "notes.md:3:TUNACODE DONE: fixed",
        "a b/notes.md-12-  tunacode done: fixed",
        "file           12 TUNACODE DONE: fixed",
        "folder          - TUNACODE DONE: fixed",
        "     3\tTUNACODE DONE: fixed",
        "./docs/notes.md:TUNACODE DONE: fixed",
        "\x1b[32mTUNACODE DONE: fixed\x1b[0m",
        "\x1b[35m\x1b[Ka.md\x1b[m\x1b[K:\x1b[1;31mTUNACODE\x1b[m DONE: fixed",
        "+TUNACODE DONE: fixed",
        "-TUNACODE DONE: fixed",
        "> TUNACODE DONE: fixed",
        '{"result":"a\\nTUNACODE DONE: fixed\\nb"}',
    ],
)
def test_a_line_of_a_tool_result_does_not_count_when_it_is_repeated(result: str):
    """C-08"""
    reply = "I found this:\n\tTunacode Done: fixed  \nand go on."
    for tool_lines in ([result], {"x", result}, result.split("\n"), result):
        judged = judge_reply(reply, tool_lines=tool_lines)
        assert judged == JudgedReply(None, reply, "it repeats a line of a tool result", False)
        assert not judge_reply(reply, tool_lines=tool_lines, calls=[CALL]).premature


@pytest.mark.parametrize(
    "result",
    [
        "TUNACODE DONE: fixed it",
        "Say TUNACODE DONE: fixed",
        "notes.md: TUNACODE DONE: fixed",
        "TUNACODE DONE:",
        "fixed",
        "TUNACODE  DONE: fixed",
        "a\fTUNACODE DONE: fixed",
        "",
    ],
)
def test_only_a_whole_equal_line_is_an_echo(result: str):
    assert counts("TUNACODE DONE: fixed", tool_lines=[result]) == (1, "fixed")


def test_a_bare_marker_is_never_an_echo():
    for text, line_no in (("TUNACODE DONE:", 1), ("ok\n tunacode done: ", 2), ("TUNACODE_TASK_COMPLETE", 1)):
        found = counts(text, tool_lines=["TUNACODE DONE:", "ok", "tunacode done:", "TUNACODE_TASK_COMPLETE"])
        assert found == (line_no, "")


def test_a_marker_after_an_echo_counts():
    text = "The notes say\nTUNACODE DONE: old\nTUNACODE DONE: new"
    assert counts(text, tool_lines=["TUNACODE DONE: old"]) == (3, "new")
    judged = judge_reply(text, tool_lines=["TUNACODE DONE: old"])
    assert judged.shown == "The notes say\nTUNACODE DONE: old\nnew"


# -- calls written out --------------------------------------------------------------------------------------

ARGS = '{"command": "ls"}'

WRITTEN = {
    "a call": f'{{"tool": "bash", "arguments": {ARGS}}}',
    "by name": f'{{"name": "bash", "arguments": {ARGS}}}',
    "by function": f'{{"function": "bash", "args": {ARGS}}}',
    "in a tag of its name": "<function=bash>\n<parameter=command>ls</parameter>\n</function>",
    "in a tag that invokes it": '<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>',
    "in a tag that invokes it, among others": '<function_calls>\n<invoke name=\'bash\'>\n</invoke>',
    "with parameters": f'{{"name": "bash", "parameters": {ARGS}}}',
    "with input": f'{{"action": "bash", "action_input": {ARGS}}}',
    "arguments first": f'{{"arguments": {ARGS}, "name": "bash"}}',
    "arguments as text": '{"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}',
    "no arguments": '{"name": "bash", "arguments": {}}',
    "null for arguments": '{"name": "bash", "arguments": null}',
    "only a tool": '{"tool": "bash"}',
    "flat arguments": '{"tool": "bash", "command": "ls"}',
    "over several lines": '{\n  "tool": "bash",\n  "arguments": {\n    "command": "ls"\n  }\n}',
    "after prose": 'Let me look: {"tool": "read_file", "arguments": {"filepath": "a.py"}} Then I go on.',
    "a namespace": f'{{"recipient_name": "functions.bash", "parameters": {ARGS}}}',
    "in a list": f'[{{"name": "bash", "arguments": {ARGS}}}]',
    "within another": f'{{"tool_calls": [{{"function": {{"name": "bash", "arguments": {ARGS}}}}}]}}',
    "capital keys": f'{{"Tool": "bash", "Arguments": {ARGS}}}',
    "single quotes": "{'tool': 'bash', 'arguments': {'command': 'ls', 'env': None}}",
    "after a brace of prose": f'if (x) {{ y }} and {{"tool": "bash", "arguments": {ARGS}}}',
    "after a quotation mark of prose": f'the set {{"}} and {{"tool": "bash", "arguments": {ARGS}}}',
    "broken off": '{"name": "bash", "arguments": {"command": "ls"',
    "broken off in a text": '{"name": "bash", "arguments": {"command": "ls',
    "without its last brace": f'{{"name": "bash", "arguments": {ARGS}',
    "with a comma too many": '{"name": "bash", "arguments": {"command": "ls",},}',
    "with a line break in a text": '{"name": "bash", "arguments": {"command": "a\nb"}}',
    "after texts in a row": f'{{"a" "b" {{"tool": "bash", "arguments": {ARGS}}}',
    "after a list that a brace ends": f'{{"a": [1}} {{"tool": "bash", "arguments": {ARGS}}}',
    "deep down": '{"a": [' * 100 + '{"tool": "bash"}',
    "with a made-up result": f'{{"tool": "bash", "arguments": {ARGS}, "output": "12 passed"}}',
    "a block": f'<tool_call>\n{{"name": "anything", "arguments": {ARGS}}}\n</tool_call>',
    "a block of anything": "<tool_call>list_files(path=x)</tool_call>",
    "a block in capitals": "<TOOL_CALL>x</TOOL_CALL>",
    "a block in tags": "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</function>\n</tool_call>",
    "a block that is not closed": '<tool_call>\n{"name": "anything"',
    "a block that is not closed, in prose": 'Now <tool_call> {"name": "anything"',
    "a block that is not closed, with words": "<tool_call>\nlist the files",
    "a block in a line": "Now <tool_call>list the files</tool_call> please",
    "deep arguments first": '{"arguments": {"a": {"b": [{"c": {"d": [[]]}}]}}, "name": "bash"}',
    "after thinking": '<think>I call it.</think>{"tool": "bash"}',
}  # fmt: skip

NO_CALL = {
    "prose": "I ran bash and read_file, then grep.",
    "a sentence like a call": "I called bash(command='ls') twice.",
    "another tool": '{"tool": "pytest", "arguments": {"path": "x"}}',
    "data with a name": '{"name": "grep", "version": "3.1"}',
    "data with a name and arguments in a list": '{"name": "bash", "args": ["-c", "ls"]}',
    "data about calls": '{"tool": "bash", "calls": 3}',
    "a result": '{"tool_call_id": "t1c1", "tool": "bash", "ok": true, "content": "x"}',
    "what a tool takes": '{"name": "bash", "parameters": {"type": "object", "properties": {"command": {}}}}',
    "what a tool takes, by tool": '{"tool": "bash", "parameters": {"properties": {}, "type": "object"}}',
    "an example": '{"tool": "bash", "arguments": {…}}',
    "an example with dots": '{"name": "bash", "arguments": {...}, "more": 1}',
    "a name only": '{"name": "bash"}',
    "the name as a value": '{"shell": "bash", "arguments": {}}',
    "the name as a key": '{"bash": {"arguments": {}}}',
    "the name in a text": '{"text": "{\\"tool\\": \\"bash\\", \\"arguments\\": {}}"}',
    "half of the name": '{"tool": "bash -c ls", "arguments": {}}',
    "arguments that are a number": '{"name": "bash", "args": 3}',
    "arguments that are words": '{"name": "bash", "input": "how it is typed"}',
    "name and arguments in two objects": '{"name": "bash"} {"arguments": {}}',
    "name and arguments at two levels": '{"name": "bash", "more": {"arguments": {}}}',
    "a set of braces": "{bash} and {'bash'} and {{tool: bash}}",
    "a fence": f'```json\n{{"tool": "bash", "arguments": {ARGS}}}\n```',
    "a fenced block": "```\n<tool_call>x</tool_call>\n```",
    "thinking": f'<think>{{"tool": "bash", "arguments": {ARGS}}}</think>',
    "thinking begun elsewhere": f'```\n```\n{{"tool": "bash", "arguments": {ARGS}}}\n</think>',
    "tool output": f'<tool_output>{{"tool": "bash", "arguments": {ARGS}}}</tool_output>',
    "a tag in backticks": "The `<tool_call>` tag and the `</tool_call>` tag.",
    "a tag in prose": "I read <tool_call> tags now.",
    "an elided block": "It looks like <tool_call>…</tool_call> or <tool_call> ... </tool_call>.",
    "the end of a block": "</tool_call>",
    "an object cut by a fence": '{"tool":\n```\n```\n"bash"}',
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_written_out_holds_the_marker_back(name: str):
    """C-07, C-09"""
    for text in (f"{WRITTEN[name]}\nTUNACODE DONE: x", f"TUNACODE DONE: x\n\n{WRITTEN[name]}"):
        judged = judge_reply(text, known_tools=TOOLS)
        assert (judged.completion, judged.premature) == (None, True)
        assert "TUNACODE" not in judged.shown
        assert judged.refused is not None
        named = "<tool_call> block" if "block" in name else "read_file" if name == "after prose" else "bash"
        assert named in judged.refused
        if "tool_call>" not in text.lower():
            assert counts(text.replace("bash", "else").replace("read_file", "else")) is not None


def test_older_code_knows_the_tools_of_the_catalogue():
    assert frozenset(SPECS) == TOOL_NAMES


@pytest.mark.parametrize("name", NO_CALL)
def test_what_only_looks_like_a_call_holds_nothing_back(name: str):
    """C-07"""
    text = f"{NO_CALL[name]}\nTUNACODE DONE: x"
    assert counts(text) == (text.count("\n") + 1, "x")
    if "elsewhere" not in name:
        assert counts(f"TUNACODE DONE: x\n{NO_CALL[name]}") == (1, "x")


KEYS = st.sampled_from(["tool", "name", "args", "x", "ok"]) | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["bash", "tool"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(1000))
@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_any_json_is_read_as_json_reads_it(value, ascii_only: bool, indent: int | None):
    """The one pass over the text finds what reading each object finds."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    if "tunacode" in text.lower():
        return
    found = judge_reply(f'of "this": {text}, and that\nTUNACODE DONE: x', known_tools=["bash"])
    assert found.premature is _calls(json.loads(text))


SCRAPS = st.sampled_from([
    "{", "}", "[", "]", ",", ":", '"', '"a"', '"tool"', '"args"', '"bash"', "1", "null", "x", "\n", " ", "\\",
    "…", '{"tool": "bash", "args": {}}', '{"name":"bash","args":{"a":"b"}}', '{"tool":"bash"}', '{"a": "',
    ',{"b":', "it's", "`", '{"a":[1,"x"],',
])  # fmt: skip


@settings(max_examples=examples(2000))
@given(st.lists(SCRAPS, max_size=14).map("".join))
@example('{"a": "oops {"tool": "bash", "args": {}}')
@example('{"a": [1} {"tool":"bash"}')
def test_a_call_is_found_in_any_scraps_around_it(scraps: str):
    """Whatever stands before it, an object that reads as JSON from its brace on is not missed."""
    if "```" in scraps:
        return  # a fence: what it quotes is no call
    decoder, found = json.JSONDecoder(), False
    for place, char in enumerate(scraps):
        if char == "{" and not found:
            with contextlib.suppress(ValueError):
                found = _calls(decoder.raw_decode(scraps, place)[0])
    judged = judge_reply(f"TUNACODE DONE: x\n{scraps}", known_tools=["bash"])
    assert judged.premature or not found


def _calls(value) -> bool:
    """Whether a value is or holds a call of bash, read as the words of the module say."""
    if isinstance(value, list):
        return any(map(_calls, value))
    if not isinstance(value, dict):
        return False
    keys: dict[str, object] = {}
    names, given = set(), False
    for key, inner in value.items():
        name = key.strip().lower()
        keys[name] = inner
        if name in ("tool", "name") and isinstance(inner, str) and inner.strip() == "bash":
            names.add(name)
        if name == "args":
            text = isinstance(inner, str) and (not inner.strip() or inner.strip().startswith("{"))
            given |= text or inner is None or isinstance(inner, dict)
    is_call = bool(names) and (given or ("tool" in names and "ok" not in keys))
    return is_call or any(map(_calls, value.values()))


# -- what is shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("TUNACODE DONE: fixed", "fixed"),
        ("   tunacode done:", ""),
        ("Fixed it.\n\nTUNACODE DONE:", "Fixed it."),
        ("Text\nTUNACODE DONE: x\nmore", "Text\nx\nmore"),
        ("Text\r\nTUNACODE DONE: x\r\nmore\r\n", "Text\r\nx\r\nmore"),
        ("Text\r\nTUNACODE DONE:\r\nmore", "Text\r\nmore"),
        ("TUNACODE DONE: one\nTUNACODE DONE: two", "one\ntwo"),
        ("TUNACODE_TASK_COMPLETE\n\n  All done", "  All done"),
        ("```\nTUNACODE DONE: a\n```\nTUNACODE DONE: b", "```\nTUNACODE DONE: a\n```\nb"),
        ("\n\nTUNACODE DONE: x\n\n", "x"),
        ("I write TUNACODE DONE: now\nTUNACODE DONE: x", "I write TUNACODE DONE: now\nx"),
        ("TUNACODE DONE: x\r", "x"),
    ],
)
def test_the_reply_is_shown_without_the_words_of_the_marker(text: str, shown: str):
    judged = judge_reply(text)
    assert judged.completion is not None
    assert judged.shown == shown
    assert judge_reply(text, calls=[CALL]).shown == shown


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("plain\n", "plain\n"),
        ("<think>hm</think>\n\n  Hello", "  Hello"),
        ("hm\n</think>\nHello", "Hello"),
        ("a\n<think>\nb\n</think>\nc", "a\nc"),
        ("a <think>b</think> c", "a  c"),
        ("a\n<tool_output>x</tool_output>\n", "a"),
        ("a\n```\n<think>\n```\n", "a\n```\n<think>\n```\n"),
        ("<think>never closed", ""),
        ("a<think>b</think>c</think>d", "d"),
        ("<think>a</think><tool_output>b</tool_output>\nc", "c"),
        ("  <think>a</think>\nc", "c"),
        ("the `<think>` tag", "the `<think>` tag"),
        ("a\r\n<think>x\r\n</think>\r\nb", "a\r\nb"),
    ],
)
def test_thinking_and_tool_output_are_no_text_for_people(text: str, own: str):
    assert own_text(text) == own


def test_words_of_ones_own_are_words_outside_thinking():
    assert [has_own_words(content) for content in ("a", {"$blob": "x"}, "<think>a</think>b")] == [True] * 3
    assert [has_own_words(content) for content in ("", " \n", None, "<think>a", {})] == [False] * 5


# -- why not ------------------------------------------------------------------------------------------------


SPELLING = "it is not spelled TUNACODE DONE: with one space and a colon"
PLACE = "its line does not start with it"

WHY = {
    "I am done.": None,
    "the tunacode project is done": None,
    "<think>I may write TUNACODE DONE: soon</think>Hello": None,
    "```py\nprint('TUNACODE DONE: x')\n```": None,
    "> TUNACODE DONE: x": PLACE,
    "**TUNACODE DONE: x**": PLACE,
    "I will write TUNACODE DONE: later": PLACE,
    "TUNACODE DONE x": SPELLING,
    "tunacode_done: x": SPELLING,
    "TUNACODE  DONE: x": SPELLING,
    "**TUNACODE_DONE:** x": SPELLING,
    "TUNACODE DONE : x": SPELLING,
    "TUNACODEDONE: x": SPELLING,
    "Done.\nTUNACODE_TASK_COMPLETE": "TUNACODE_TASK_COMPLETE counts only alone on the first line",
    "```\nTUNACODE DONE: x\n```": "it stands within fenced code",
    "```\nTUNACODE DONE: x": "it stands within fenced code, which is not closed",
    "<think>\nTUNACODE DONE: x": "it stands within <think>, which is not closed",
    "<think>\nTUNACODE DONE: x\n</think>": "it stands within <think>",
    "TUNACODE DONE: x\n</think>": "it stands within <think>",
    "<tool_output>\nTUNACODE DONE: x\n</tool_output>": "it stands within <tool_output>",
    "<think>\nTUNACODE DONE: x\n</think>\n**TUNACODE DONE: x**": PLACE,
    "I wrote TUNACODE DONE: before\nTUNACODE_DONE: x": SPELLING,
}


@pytest.mark.parametrize("text", WHY)
def test_the_reason_says_what_keeps_the_words_from_counting(text: str):
    """C-20, as far as the words alone show it"""
    assert judge_reply(text) == JudgedReply(None, text, WHY[text], False)


# -- older code ---------------------------------------------------------------------------------------------


def test_older_code_gets_whether_it_is_done_and_the_cleaned_text():
    """C-18"""
    assert check_task_completion("Fixed.\nTUNACODE DONE: x") == (True, "Fixed.\nx")
    assert check_task_completion("TUNACODE_TASK_COMPLETE\nFixed.") == (True, "Fixed.")
    assert check_completion("TUNACODE DONE: x", []) == (True, "x")
    assert check_completion("TUNACODE DONE: x", None) == (True, "x")


@pytest.mark.parametrize(
    "text", ["", None, "  text \n", "> TUNACODE DONE: x", '{"tool": "todo"}\nTUNACODE DONE: x']
)
def test_older_code_gets_back_a_text_that_is_not_done_as_it_came(text):
    assert check_task_completion(text) == (False, text)
    assert check_completion(text, []) == (False, text)


def test_older_code_is_not_done_beside_tool_calls():
    text = "Reading.\nTUNACODE DONE: x\n"
    for calls in ([CALL], [{"tool": "bash"}], ("read_file",)):
        assert check_completion(text, calls) == (False, text)


# -- hostile texts ------------------------------------------------------------------------------------------

LENGTH = 5_000_000
SAMPLE = 400_000
"""Characters, where reading takes more than looking for the next mark."""
CHEAP = ("`", "<think>", "<tool_output ", "    \n", " ")
HOSTILE = (
    *CHEAP, "```\n", "````\n```\n", "``` `\n", "<think></think>", "</think>\n", "`<think>`", "<think    ",
    "x <tool_call> ", "TUNACODE DONE: bash\n", "TUNACODE DONE: ", "tunacode_", "{", '{"', '{"bash":',
    '{"tool":[1,', '{"\\', "{'a{\"b", "\r\n", "\ud800<",
)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_are_judged_in_time_proportional_to_them(piece: str):
    """Anything quadratic takes minutes here, or hours: the test ends as one that takes too long."""
    body = piece * ((LENGTH if ALL or piece in CHEAP else SAMPLE) // len(piece))
    judge_reply(f"{body}\nTUNACODE DONE: bash", known_tools=TOOLS, tool_lines=[body, f"x{body}"])
    judged = judge_reply(f"TUNACODE DONE: bash\n{body}", known_tools=TOOLS)
    assert (judged.completion is None) is (piece == "</think>\n")
    own_text(body)


def test_a_marker_is_found_among_a_hundred_thousand_lines_and_fences():
    text = "line\n" * 100_000 + "```\ncode\n```\n" * 100_000 + "TUNACODE DONE: x"
    assert counts(text, tool_lines=[text[:1_000_000]]) == (400_001, "x")
    results = {f"TUNACODE DONE: {number}" for number in range(100_000)}
    assert counts("TUNACODE DONE: 99999\nTUNACODE DONE: new", tool_lines=results) == (2, "new")


# -- against a slow judge -----------------------------------------------------------------------------------


def slow_places(text: str) -> list[str]:
    """For every character whether it is the reply's own, and if not what it is; one by one."""
    places = ["own"] * len(text)
    here = 0

    def tag(at: int) -> tuple[bool, str, int] | None:
        for name in ("think", "tool_output"):
            for closing in ("", "/"):
                opening = f"<{closing}{name}"
                if text[at : at + len(opening)].lower() != opening:
                    continue
                end = text.find(">", at)
                inner = text[at + len(opening) : end]
                if end < 0 or "\n" in inner or "<" in inner:
                    continue
                if inner.strip(" \t") and not (name == "tool_output" and not closing and inner[0] in " \t"):
                    continue
                if at > 0 and text[at - 1] == "`" and text[end + 1 : end + 2] == "`":
                    continue
                return closing == "/", name, end + 1
        return None

    def hide(start: int, end: int, what: str) -> None:
        places[start:end] = [what] * (end - start)

    while here < len(text):
        if here == 0 or text[here - 1] == "\n":
            line = text[here:].split("\n", 1)[0]
            bare = line.strip()
            mark = bare[:1]
            run = len(bare) - len(bare.lstrip(mark)) if mark in ("`", "~") and mark else 0
            if run >= 3 and not (mark == "`" and "`" in bare[run:]):
                end = here + len(line)
                start = end + 1
                while True:
                    if start > len(text):
                        end = len(text)
                        break
                    line = text[start:].split("\n", 1)[0]
                    end = start + len(line)
                    bare = line.strip()
                    if len(bare) >= run and set(bare) == {mark}:
                        break
                    start = end + 1
                hide(here, end, "fence")
                here = end
                continue
        found = tag(here)
        if found is None:
            here += 1
            continue
        closing, name, after = found
        if closing:
            if name == "think":
                hide(0, after, "think")
            here = after
            continue
        end = after
        while end < len(text) and (tag(end) or ())[:2] != (True, name):
            end += 1
        end = (tag(end) or (0, 0, len(text)))[2] if end < len(text) else len(text)
        hide(here, end, name)
        here = end
    return places


def slow_judge(text: str, tool_lines: list[str]) -> tuple[int, str] | None:
    """The line and summary that count where there is no call, by the letter of the law."""
    places = slow_places(text)
    shown = [line for result in tool_lines for line in result.split("\n")]
    shown += [line[1:] for line in shown if line[:1] in ("-", "+", ">", "|")]
    echoes = {line.strip().lower() for line in shown}
    start, first_own = 0, True
    for number, line in enumerate(text.split("\n"), 1):
        here = places[start : start + len(line)]
        begin = len(line) - len(line.lstrip())
        own = begin < len(line) and here[begin] == "own"
        bare = line.strip()
        if first_own and own and bare.lower() == "tunacode_task_complete":
            return number, ""
        if any(
            place in ("own", "fence") and not char.isspace() for place, char in zip(here, line, strict=True)
        ):
            first_own = False
        if own and bare[:14].lower() == "tunacode done:":
            summary = bare[14:].strip()
            if not summary or bare.lower() not in echoes:
                return number, summary
        start += len(line) + 1
    return None


PIECES = st.sampled_from([
    "\n", "\n", "\n", "\r\n", "\r", "\f", "\u2028", "\x00", "\ud800", " ", "  ", "\t", "a", "b:",
    "`", "``", "```", "````", "```py", "~~~", "~~~~", "~~~ x", "> ", "- ", "**",
    "<think>", "</think>", "<Think >", "<tool_output>", "</tool_output>", '<tool_output a="b">', "<think",
    "<tool_outputs>", ">", "<", "TUNACODE DONE:", "TUNACODE DONE: a", "tunacode done: b", "TUNACODE  DONE:",
    "TUNACODE_DONE:", "TUNACODE_TASK_COMPLETE", "\nTUNACODE DONE: b", "\n```\n", "\n~~~\n", "\n</think>\n",
])  # fmt: skip


@settings(max_examples=examples(6000))
@given(st.lists(PIECES, max_size=14).map("".join), st.lists(PIECES, max_size=4).map("".join))
@example("<think>`</think>`\nTUNACODE DONE: b\n</think>", "")
@example("</think>\n```\n</think>\nTUNACODE DONE: b", "")
@example("`<think>\n`</think>`\nTUNACODE DONE:", "TUNACODE DONE:")
def test_the_judge_agrees_with_a_slow_one(text: str, result: str):
    """C-07, C-08"""
    expected = slow_judge(text, [result])
    judged = judge_reply(text, tool_lines=[result])
    found = judged.completion
    assert (None if found is None else (found.line_no, found.summary)) == expected
    beside = judge_reply(text, tool_lines=[result], calls=[CALL])
    assert (beside.completion, beside.premature) == (None, expected is not None)
    assert (judged.refused is None) or found is None
    if expected is None:
        assert judged.shown == text
    else:
        assert judged.shown == beside.shown
        left = text.lower().count("tunacode") - judged.shown.lower().count("tunacode")
        assert left >= 1
    places = zip(text, slow_places(text), strict=True)
    words = [char for char, place in places if place in ("own", "fence") and not char.isspace()]
    assert "".join(own_text(text).split()) == "".join(words)


ANY_CHARACTER = st.characters(codec=None, categories=None)


@settings(max_examples=examples(300))
@given(st.text(ANY_CHARACTER), st.text(ANY_CHARACTER.filter(lambda char: char not in "`~<{\r")))
def test_any_text_is_judged(text: str, harmless: str):
    """Lone surrogates, nulls and every other character."""
    assert judge_reply(text, tool_lines=[text], known_tools=TOOLS) == JudgedReply(None, text, None, False)
    first, _, rest = harmless.partition("\n")
    judged = judge_reply(f"{rest}\nTUNACODE DONE:{first}\n{text}", calls=[])
    if "<" not in text:
        marker = f"TUNACODE DONE:{first}"
        assert judged.completion == Completion(rest.count("\n") + 2, marker, first.strip(), "reply")
