"""The assistant that needs no model: the next reply of a request that `grammar` understands.

Pure: the request, the results of its own calls so far and the test command decide; no file is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from detent.flows.coding.grammar import (
    FORMS,
    MAX_STEPS,
    Find,
    Help,
    ListFolder,
    Replace,
    RunTests,
    Search,
    Show,
    Step,
    parse_request,
)
from detent.flows.coding.reply import AssistantReply, CodingCall, ToolResult
from detent.flows.coding.task_completion import MARKER
from detent.flows.coding.test_command import TestsRun, read_tests_run

NEEDS_MODEL: Final = "needs_model"
NEEDS_PERSON: Final = "needs_person"
CANNOT: Final = (
    "I cannot do that without a model. I can: show, list, find, grep, replace … with … in …, run tests. "
    "Set a model with --model."
)
"""The answer to every request that is not understood as a whole."""
TESTS_TIMEOUT: Final = 600
"""Seconds that tests may take."""
WINDOW: Final = 2000
"""Lines that `read_file` shows at once."""
NO_TESTS: Final = (
    "no test command was found. Looked for: a Makefile with the target test, a pytest configuration or "
    "tests/, package.json with a script test, Cargo.toml, go.mod. Set coding.test_command."
)


def next_reply(
    prompt: str, results: Sequence[ToolResult], *, test_command: str | None, turn: int
) -> AssistantReply:
    """The reply of a turn: the call of the next step, or the end.

    `results` are those of this assistant's own calls in this request, in order; `turn` numbers the call.
    """
    steps = parse_request(prompt)
    if steps is None or not _own(steps, results):
        return AssistantReply(CANNOT, give_up=NEEDS_MODEL)
    done: list[str] = []
    for number, (step, result) in enumerate(_performed(steps, results), 1):
        call = _call(step, test_command)
        if result is None and call is not None:
            return AssistantReply(tool_calls=(CodingCall(f"t{turn}c1", *call),))
        problem = _problem(step, result, test_command)
        if problem is not None:
            return AssistantReply(_not_done(steps, number, problem), give_up=NEEDS_PERSON)
        done.append(_done(step, result, test_command))
    return AssistantReply(_final_text(done, results))


def added_results(prompt: str, results: Sequence[ToolResult]) -> str:
    """What is shown after the final text: the results of the steps that succeeded, tests that failed too."""
    steps = parse_request(prompt)
    if steps is None or not _own(steps, results):
        return ""
    parts = [
        (describe(step), _content_shown(step, result))
        for step, result in _performed(steps, results)
        if result is not None and _problem(step, result, None) is None
    ]
    if len(parts) == 1:
        return parts[0][1]
    return "\n\n".join(f"--- {title} ---\n{content}" for title, content in parts)


# -- the steps and their results ----------------------------------------------------------------------------


def _own(steps: Sequence[Step], results: Sequence[ToolResult]) -> bool:
    """False if the results are of calls that somebody else made in this request."""
    tools = [tool for step in steps if (tool := _TOOLS.get(type(step))) is not None]
    return [result.tool for result in results] == tools[: len(results)]


_TOOLS: Final[Mapping[type, str]] = {
    Show: "read_file", ListFolder: "list_dir", Find: "glob", Search: "grep", Replace: "update_file",
    RunTests: "bash",
}  # fmt: skip
"""The tool of each step; `Help` has none."""


def _performed(
    steps: Sequence[Step], results: Sequence[ToolResult]
) -> Iterator[tuple[Step, ToolResult | None]]:
    """Each step with its result, as far as there is one."""
    left = iter(results)
    for step in steps:
        yield step, next(left, None) if type(step) in _TOOLS else None


def _call(step: Step, test_command: str | None) -> tuple[str, dict[str, Any]] | None:
    """The tool and arguments of a step."""
    match step:
        case Show(path, None):
            args: dict[str, Any] = {"filepath": path}
        case Show(path, first, last):
            args = {"filepath": path, "start_line": first, "max_lines": (last or 0) - (first or 0) + 1}
        case ListFolder(path):
            args = {"directory": path}
        case Find(name, path):
            pattern = name if re.search(r"[*?\[.]", name) else f"**/*{name}*"
            args = {"pattern": pattern, "directory": path}
        case Search(text, path):
            args = {"pattern": text, "directory": path, "use_regex": False}
        case Replace(target, replacement, path, everywhere):
            args = {"filepath": path, "target": target, "patch": replacement}
            if everywhere:
                args["replace_all"] = True
        case RunTests():
            if test_command is None:
                return None
            args = {"command": test_command, "timeout": TESTS_TIMEOUT}
        case Help():
            return None
    return _TOOLS[type(step)], args


def _problem(step: Step, result: ToolResult | None, test_command: str | None) -> str | None:
    """Why a step has failed; None if it has not. Tests that ran and failed are no failed step."""
    if isinstance(step, RunTests):
        if result is None:
            return NO_TESTS
        run = tests_run(result, test_command)
        return None if run is not None and run.ran else _tests_problem(run, result)
    if result is None or result.ok:
        return None
    return _error_shown(result) or result.error or "it failed"


def _tests_problem(run: TestsRun | None, result: ToolResult) -> str:
    """What is said of tests that could not run."""
    why = [] if run is None else [f"the tests could not run: {run.words}"]
    return "\n".join([*why, result.content.strip("\n")]).strip("\n")


_EXIT_CODE: Final = re.compile(r"exit(?:ed)?(?: code| status| with)?:? *(-?\d{1,9})\b", re.IGNORECASE)


def tests_run(result: ToolResult, test_command: str | None) -> TestsRun | None:
    """What the result of the test command says; None if the command was not run to its end."""
    command = test_command or "the test command"
    if result.ok:
        return read_tests_run(command, 0, result.content)
    if result.error != "nonzero_exit":
        return None
    codes = _EXIT_CODE.findall(result.content)
    return read_tests_run(command, int(codes[-1]) if codes else 1, result.content)


# -- what is said -------------------------------------------------------------------------------------------


def describe(step: Step) -> str:
    """A step in the words of a request, on one line."""
    match step:
        case Show(path, None):
            return f"show {_brief(path)}"
        case Show(path, first, last):
            return f"show {_brief(path)} lines {first}-{last}"
        case ListFolder(path):
            return f"list {_brief(path)}"
        case Find(name, path):
            return f"find {_brief(name)} in {_brief(path)}"
        case Search(text, path):
            return f"grep {_brief(text)} in {_brief(path)}"
        case Replace(target, replacement, path, everywhere):
            every = " everywhere" if everywhere else ""
            return f"replace {_brief(target)} with {_brief(replacement)} in {_brief(path)}{every}"
        case RunTests():
            return "run tests"
        case Help():
            return "help"


def _done(step: Step, result: ToolResult | None, test_command: str | None) -> str:
    """What was done in a step, in words that are safe beside the marker."""
    match step:
        case Show(path, first, last):
            part = None if result is None else _part_shown(step, result)
            if part is not None:
                return f"showed {part.words} of {_place(path)}; the rest: {part.rest}"
            return f"showed {'' if first is None else f'lines {first} to {last} of '}{_place(path)}"
        case ListFolder(path):
            return f"listed {_place(path)}"
        case Find(name, path):
            return f"looked for {_safe(name)} in {_place(path)}"
        case Search(text, path):
            return f"searched {_place(path)} for {_safe(text)}"
        case Replace(target, replacement, path, everywhere):
            every = " everywhere" if everywhere else ""
            return f"replaced {_safe(target)} with {_safe(replacement)} in {_place(path)}{every}"
        case RunTests():
            run = None if result is None else tests_run(result, test_command)
            return f"tests ran: {run.words if run is not None else 'no result'}"
        case Help():
            return f"I can: {'; '.join(FORMS)}; up to {MAX_STEPS} of them with then in between"


def _final_text(done: Sequence[str], results: Sequence[ToolResult]) -> str:
    """The marker and what was done, as a line that is in none of the results (it would count as quoted)."""
    line = f"{MARKER} {'; '.join(done)}"
    start = MARKER.casefold()
    quoted = {
        text
        for result in results
        for shown in result.content.split("\n")
        if (text := shown.strip().casefold()).startswith(start)
    }
    while line.casefold() in quoted:
        line += "."
    return line


def _not_done(steps: Sequence[Step], number: int, problem: str) -> str:
    """The end of a request whose step has failed. No line of it can be taken for the marker."""
    which = "" if len(steps) == 1 else f"Step {number} of {len(steps)}, "
    lines = [
        f"> {line}" if line.lstrip().lower().startswith("tunacode") else line for line in problem.splitlines()
    ]
    text = f"{which}{describe(steps[number - 1])}: {chr(10).join(lines)}"
    left = "; ".join(describe(step) for step in steps[number:])
    return f"{text}\nNot done: {left}." if left else text


# -- results for people -------------------------------------------------------------------------------------

_CUT: Final = re.compile(
    r"Lines? (?P<first>\d+)(?: to (?P<last>\d+))? (?:is|are) shown(?:; the file has (?P<total>[\d,]+))?\."
    r" Go on with start_line=(?P<next>\d+)\."
)
"""What `read_file` says at the end of a text that is not all of it."""
_FOR_PEOPLE: Final = (
    (
        " Take in lines around the one you mean, or set replace_all.",
        ' Quote more of it, or add "everywhere".',
    ),
    (" Read the file and copy the target from it.", ""),
    ("the target occurs", "the text occurs"),
    ("the target does not occur", "the text does not occur"),
    ("target and patch are the same", "both texts are the same"),
    ("; start_line is ", "; the first line asked for is "),
)
"""Words of tools that only models can follow, and those for people."""


class _Part(NamedTuple):
    """The part of a file that was shown."""

    words: str
    rest: str
    """The request that shows what follows."""


def _part_shown(step: Show, result: ToolResult) -> _Part | None:
    """What was shown of a file where it is less than was asked for."""
    note = _CUT.search(result.content.rpartition("\n")[2]) if result.truncated else None
    if note is None:
        return None
    last, following = int(note["last"] or note["first"]), int(note["next"])
    if step.last is not None and last >= step.last:
        return None
    wanted = step.last or following + WINDOW - 1
    total = int(note["total"].replace(",", "")) if note["total"] else wanted
    lines = f"lines {following}-{min(wanted, total)}"
    of = f" of {total:,}" if note["total"] else ""
    return _Part(f"lines {note['first']} to {last}{of}", f"show {_brief(step.path)} {lines}")


def _content_shown(step: Step, result: ToolResult) -> str:
    """A result, with a note on how to see the rest instead of one for models."""
    content = result.content.strip("\n")
    if not isinstance(step, Show) or not result.truncated:
        return content
    text, newline, note = content.rpartition("\n")
    part = _part_shown(step, result)
    following = "" if part is None else f" The rest: {part.rest}"
    return text + newline + re.sub(r" Go on with start_line=\d+\.", lambda _: following, note)


def _error_shown(result: ToolResult) -> str:
    """An error whose first line is for people; file contents may follow."""
    first, newline, more = result.content.strip("\n").partition("\n")
    for of_model, of_people in _FOR_PEOPLE:
        first = first.replace(of_model, of_people)
    return first + newline + more


_LONGEST: Final = 80
_QUESTIONABLE: Final = re.compile(r"[<>{}`\u2028\u2029]|[^\S ]|[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What might be read as markup, a call or a line end beside the marker."""


def _safe(text: str) -> str:
    """A text of the request, where it can stand beside the marker; else what it is, in general words."""
    if not text:
        return "nothing"
    if len(text) > _LONGEST or _QUESTIONABLE.search(text):
        return "the given text"
    return f'"{text}"' if " " in text else text


def _place(path: str) -> str:
    return "the workspace" if path == "." else _safe(path)


def _brief(text: str) -> str:
    """A text of the request on one line, in quotes where it needs them."""
    shown = " ".join(text[: _LONGEST + 1].split())
    if len(text) > _LONGEST:
        shown = f"{shown[:_LONGEST]}…"
    return shown if shown == text and shown and " " not in shown and ";" not in shown else f'"{shown}"'
