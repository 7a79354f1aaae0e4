"""The data of a coding run, read: one run is one request of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from detent.flows.coding.options import RequestOptions
from detent.flows.coding.reply import CodingCall, ToolResult
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain

COUNTERS = ("iterations", "unproductive", "premature", "refused", "suspicious", "tool_calls")
FILE_TOOLS = frozenset({"write_file", "update_file"})

Message = Mapping[str, Any]
"""A message as sessions keep it: `user`, `assistant`, `tool` or `nudge`."""


class RequestData:
    """A view of a run's data."""

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    @property
    def prompt(self) -> str:
        """What the person asked for."""
        return str(self._data.get("prompt") or "")

    @property
    def session(self) -> str | None:
        """The session; None for a sub-run."""
        return self._data.get("session")

    @property
    def workspace(self) -> str:
        """The folder that tools work in, absolute.

        Raises:
            ConfigurationError: the run was started without one.
        """
        folder = self._data.get("workspace")
        if folder is None:
            raise ConfigurationError("A coding request needs a folder to work in: `workspace` in its data.")
        return str(folder)

    @property
    def options(self) -> RequestOptions:
        """What it may do."""
        return RequestOptions.from_plain(self._data.get("options") or {})

    @property
    def earlier(self) -> str | None:
        """The session's request before."""
        return self._data.get("earlier")

    @property
    def turns_before(self) -> int:
        """Replies of the assistant in the session's earlier requests."""
        return int(self._data.get("turns_before") or 0)

    @property
    def turns(self) -> Sequence[Message]:
        """The messages of this request, oldest first; long texts are references."""
        return self._data.get("turns") or ()

    @property
    def todos(self) -> Sequence[Mapping[str, Any]]:
        """The session's list of things to do."""
        return self._data.get("todos") or ()

    @property
    def seen(self) -> Mapping[str, str]:
        """SHA-256 of each file's content that the session has last read or written."""
        return self._data.get("seen") or {}

    def counter(self, name: str) -> int:
        """A figure of this request."""
        return int((self._data.get("counters") or {}).get(name) or 0)

    @property
    def counters(self) -> dict[str, int]:
        """All figures of this request."""
        return {name: self.counter(name) for name in COUNTERS}

    @property
    def current(self) -> Mapping[str, Any]:
        """Facts about the turn under way that the next step needs."""
        return self._data.get("turn") or {}

    @property
    def files_changed(self) -> list[str]:
        """Files that file tools changed."""
        return list(self._data.get("files_changed") or ())

    @property
    def tests_changed(self) -> list[str]:
        """Files of tests, and others that the check runs, that commands changed."""
        return list(self._data.get("tests_changed") or ())

    @property
    def commands_run(self) -> int:
        """Commands that were run."""
        return int(self._data.get("commands_run") or 0)

    @property
    def further_effects(self) -> list[str]:
        """Tools besides the flow's own, such as those of servers, whose effects were performed."""
        return list(self._data.get("further_effects") or ())

    @property
    def has_acted(self) -> bool:
        """Whether an effect of this request, or of a task of it, was performed or may have been."""
        return bool(self.files_changed or self.commands_run or self.further_effects)

    @property
    def check_failures(self) -> int:
        """Checks that failed in a row, with no successful effect between."""
        return int(self._data.get("check_failures") or 0)

    @property
    def last_reply(self) -> Message:
        """The assistant's last message."""
        return next((turn for turn in reversed(self.turns) if turn["role"] == "assistant"), {})

    @property
    def open_calls(self) -> list[CodingCall]:
        """The calls of the last reply."""
        return [
            CodingCall(call["id"], call["tool"], to_plain(call["args"]))
            for call in self.last_reply.get("tool_calls") or ()
        ]

    def results(self) -> Iterator[Message]:
        """The tool messages of this request, oldest first."""
        return (turn for turn in self.turns if turn["role"] == "tool")

    def last_results(self) -> list[Message]:
        """The tool messages that answer the last reply."""
        found: list[Message] = []
        for turn in reversed(self.turns):
            if turn["role"] == "assistant":
                break
            if turn["role"] == "tool":
                found.append(turn)
        return found[::-1]


def tool_message(result: ToolResult) -> dict[str, Any]:
    """A result as a message of a session."""
    return {"role": "tool", **result.to_plain()}
