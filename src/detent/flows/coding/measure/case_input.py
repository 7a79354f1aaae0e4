"""The scenario in an eval case: the keys of its input, and every mistake in them with its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar

from detent.authoring.problem import DocumentError, Problem, in_order
from detent.evals.case import EvalTestCase
from detent.flows.coding.measure.scenario import FileGoal, Goal, Scenario, ScriptedCall, ScriptedReply
from detent.kernel.errors import nearest

INPUT: Mapping[str, type] = {
    "prompt": str, "files": dict, "replies": list, "tasks": dict, "deny": tuple, "goal": dict, "check": str,
}  # fmt: skip
"""Keys of a case's `input`, with their types."""

T = TypeVar("T")


def scenario_of(case: EvalTestCase) -> Scenario:
    """The scenario in an eval case.

    Raises:
        DocumentError: lists all its problems.
    """
    reader = _InputReader(case)
    scenario = reader.scenario()
    if reader.problems:
        raise DocumentError(case.file or case.scenario_id, in_order(reader.problems))
    return scenario


class _InputReader:
    """Reads the input of one case and collects its problems."""

    def __init__(self, case: EvalTestCase) -> None:
        self.case = case
        self.problems: list[Problem] = []

    def wrong(self, path: str, message: str) -> None:
        """Note a problem."""
        path = f"input.{path}" if path else "input"
        self.problems.append(Problem("", message, self.case.place(path), path))

    def scenario(self) -> Scenario:
        """The scenario, as far as the input is usable."""
        given, case = self.case.input, self.case
        for key in ("prompt", "replies", "goal"):
            if not given.get(key):
                self.wrong("", f"'input.{key}' is missing.")
        return Scenario(
            case.scenario_id,
            case.description,
            str(given.get("prompt") or ""),
            self.replies(given.get("replies") or (), "replies"),
            self.goal(given.get("goal") or {}),
            case.category,
            dict(self.mapping(given.get("files"), "files", self.file)),
            dict(self.mapping(given.get("tasks"), "tasks", self.replies)),
            self.texts(given.get("deny"), "deny"),
            given.get("check"),
        )

    def mapping(self, value: Any, path: str, read: Callable[[Any, str], T]) -> list[tuple[str, T]]:
        """The items of a mapping whose keys are texts."""
        items: list[tuple[str, T]] = []
        for key, item in (value or {}).items():
            if self.is_text(key, path, "a key"):
                items.append((key, read(item, f"{path}.{key}")))
                if path in ("files", "goal.files"):
                    self.check_path(key, path)
        return items

    def check_path(self, name: str, path: str) -> None:
        """A file of the workspace lies in it."""
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\\" in name:
            self.wrong(path, f"'{name}' is no path within the workspace, such as src/app.py.")

    def is_text(self, value: Any, path: str, what: str = "this") -> bool:
        """Whether a value is text; a problem if not."""
        if isinstance(value, str):
            return True
        self.wrong(path, f"{what} must be text, but it is {value!r}. Put it in quotes.")
        return False

    def known(self, value: Mapping[Any, Any], keys: Sequence[str], path: str, what: str) -> None:
        """Report the keys that are not known."""
        for key in value:
            if key not in keys:
                hint = nearest(str(key), keys)
                self.wrong(path, f"{what} has no key '{key}'.{hint} It has: {', '.join(keys)}.")

    def file(self, value: Any, path: str) -> str:
        """The text of a file."""
        return value if self.is_text(value, path, "a file") else ""

    def replies(self, value: Any, path: str) -> tuple[ScriptedReply, ...]:
        """A list of replies."""
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            if value:
                self.wrong(path, "replies are a list of texts, or mappings of text, calls and finish.")
            return ()
        return tuple(self.reply(item, f"{path}[{index}]") for index, item in enumerate(value))

    def reply(self, value: Any, path: str) -> ScriptedReply:
        """One reply."""
        if isinstance(value, str):
            return ScriptedReply(value)
        if not isinstance(value, Mapping):
            self.wrong(path, f"a reply is a text, or a mapping of text, calls and finish, not {value!r}.")
            return ScriptedReply()
        self.known(value, ("text", "calls", "finish"), path, "a reply")
        text = value.get("text") or ""
        finish = value.get("finish") or "stop"
        if finish not in ("stop", "length"):
            self.wrong(path, f"finish is '{finish}'; it must be stop or length.")
        calls = value.get("calls") or ()
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            self.wrong(path, "calls are a list of mappings of tool and args.")
            calls = ()
        return ScriptedReply(
            text if self.is_text(text, path, "text") else "",
            tuple(
                call
                for index, item in enumerate(calls)
                if (call := self.call(item, f"{path}.calls[{index}]")) is not None
            ),
            "length" if finish == "length" else "stop",
        )

    def call(self, value: Any, path: str) -> ScriptedCall | None:
        """One call; its arguments may be wrong, for that is a result."""
        if not isinstance(value, Mapping) or not isinstance(value.get("tool"), str):
            self.wrong(path, "a call is a mapping of tool and args, such as {tool: read_file, args: {…}}.")
            return None
        self.known(value, ("tool", "args"), path, "a call")
        args = value.get("args") or {}
        if not isinstance(args, Mapping):
            self.wrong(path, "args are a mapping of arguments.")
            args = {}
        return ScriptedCall(value["tool"], args)

    def goal(self, value: Mapping[str, Any]) -> Goal:
        """What is true once the request is done."""
        self.known(value, ("files", "answer"), "goal", "a goal")
        files = value.get("files") or {}
        if not isinstance(files, Mapping):
            self.wrong("goal.files", "the files of a goal are a mapping of paths.")
            files = {}
        answer = self.texts(value.get("answer"), "goal.answer")
        if value and not files and not answer:
            self.wrong("goal", "a goal is about at least one file, or the answer.")
        return Goal(dict(self.mapping(files, "goal.files", self.file_goal)), answer)

    def file_goal(self, value: Any, path: str) -> FileGoal:
        """What is true of a file: texts it contains, or null if it is not there."""
        if value is None:
            return FileGoal(absent=True)
        if not isinstance(value, Mapping):
            return FileGoal(self.texts(value, path))
        self.known(value, ("contains", "excludes"), path, "a file's goal")
        return FileGoal(
            self.texts(value.get("contains"), f"{path}.contains"),
            self.texts(value.get("excludes"), f"{path}.excludes"),
        )

    def texts(self, value: Any, path: str) -> tuple[str, ...]:
        """A text, or a list of them."""
        items = value if isinstance(value, list) else [] if value is None else [value]
        return tuple(item for item in items if self.is_text(item, path))
