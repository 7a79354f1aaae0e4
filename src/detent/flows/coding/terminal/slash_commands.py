"""The commands of a conversation: what begins with a slash and is no prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from detent.adapters.disk import open_private
from detent.cli.output import clean, columns, cut, paint, say, table
from detent.flows.coding.permission import parse_rule
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.result import result_of
from detent.flows.coding.terminal.ending import closing_lines
from detent.flows.coding.terminal.plain_text import one_line
from detent.flows.coding.terminal.questions import commands_of, open_questions, question_lines
from detent.flows.coding.terminal.session_page import moment_shown
from detent.kernel.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from detent.flows.coding.sessions.folder import SessionFolder
    from detent.flows.coding.terminal.conversation import Conversation

LONGEST_LISTED = 30
"""Sessions, or messages, that are listed."""


class Leave(Exception):
    """The conversation is over."""


class Command(NamedTuple):
    """One command."""

    what: str
    """What it does, and what it takes."""
    act: Callable[[SlashCommands, str], Awaitable[None]]


class SlashCommands:
    """Performs the commands of one conversation."""

    def __init__(self, conversation: Conversation, attach: Callable[[str], Awaitable[None]]) -> None:
        """`attach` makes another session the one that is gone on with."""
        self._conversation = conversation
        self._attach = attach

    async def perform(self, text: str) -> None:
        """Perform a command; one that is wrong is explained.

        Raises:
            Leave: the person wants to leave.
        """
        name, _, rest = text.strip()[1:].partition(" ")
        command = COMMANDS.get(name.lower())
        if command is None:
            hint = nearest(name, COMMANDS).replace("'", "/", 1).replace("'", "")
            say(f"There is no command /{clean(name)}.{hint} See /help. A prompt may begin with a blank.")
            return
        try:
            await command.act(self, rest.strip())
        except ConfigurationError as error:
            say(clean(str(error)))

    async def _help(self, rest: str) -> None:
        for name, command in COMMANDS.items():
            say(f"  {paint(f'/{name}', bold=True)}{' ' * (10 - len(name))}{command.what}")
        say('  Ctrl-C interrupts a request, "continue" goes on with it; Ctrl-D leaves.')
        if self._conversation.model is None:
            say("  Without a model: show, list, find, grep, replace … with … in …, run tests.")

    async def _state(self, rest: str) -> None:
        conversation = self._conversation
        say(f"session    {conversation.session or 'new; it begins with the first prompt'}")
        say(f"workspace  {clean(conversation.setup.folder)}")
        say(f"model      {clean(conversation.model or 'none; plain requests only')}")
        run = await conversation.last()
        if run is None:
            say("state      user_input")
            return
        data = RequestData(run.data)
        result = await result_of(conversation.engine, run.id)
        turns = f"turn {data.counter('iterations')}/{data.options.max_iterations}"
        complete = ", complete" if result.done else ""
        say(f"state      {run.state}{complete}   {turns}   run {run.id}")
        for line in closing_lines(result):
            say(f"           {line.strip()}")
        for question in await open_questions(conversation.engine, run):
            for line in (*question_lines(question), *commands_of(conversation.setup.project, question)):
                say(f"         {line}")

    async def _history(self, rest: str) -> None:
        await self._written()
        record = self._folder.existing(self._id())
        turns = record.turns
        if len(turns) > LONGEST_LISTED:
            say(paint(f"… {len(turns) - LONGEST_LISTED} messages before; all: /export FILE", dim=True))
        for turn in turns[-LONGEST_LISTED:]:
            role = str(turn["role"])
            calls = ", ".join(str(call["tool"]) for call in turn.get("tool_calls") or ())
            failed = "" if role != "tool" or turn["ok"] else "failed: "
            name = str(turn.get("tool") or turn.get("kind") or role) if role in ("tool", "nudge") else role
            text = one_line(str(turn["content"])) + (f" [{calls}]" if calls else "")
            room = (columns() or 100) - 13
            by_person = role == "user"
            label = paint(f"{name:<11}", bold=by_person, dim=not by_person)
            say(f"{label}  {cut(clean(failed + text.strip()), room)}")

    async def _tools(self, rest: str) -> None:
        registry, options = self._conversation.flow.registry, self._conversation.options
        rows = []
        for tool in registry.offered(options):
            spec = registry.spec(tool.name)
            kind = spec.kind if spec is not None else tool.kind
            asks = "asks, unless allowed" if kind == "effect" and not options.yes else ""
            rows.append([tool.name, kind, asks, tool.description.partition(". ")[0]])
        table(["TOOL", "KIND", "", "DOES"], rows)

    async def _allow(self, rest: str) -> None:
        conversation = self._conversation
        if rest:
            parse_rule(rest, conversation.flow.registry.further)
            conversation.allow(rest)
            say(f"From the next request on, no question for: {clean(rest)}")
            return
        options = conversation.options
        for name, rules in (("allow", options.allow), ("deny", options.deny)):
            for rule in rules:
                say(f"  {name:<6} {clean(rule)}")
        granted = conversation.runner.granted.get(conversation.session or "", {})
        for words in granted:
            say(f"  always {clean(words)}   (until this program ends)")
        if options.yes:
            say("  Everything is allowed (--yes).")
        elif not (options.allow or granted):
            say("  Nothing is allowed without a question, but reading.")
        say("  Further: /allow TOOL[:PATTERN], such as /allow bash:pytest *")

    async def _todo(self, rest: str) -> None:
        run = await self._conversation.last()
        todos = [] if run is None else list(RequestData(run.data).todos)
        if not todos:
            say("Nothing is on the list.")
        for item in todos:
            sign = {"completed": "✓", "in_progress": "…"}.get(str(item.get("status")), " ")
            number, what, how = (clean(item.get(name)) for name in ("id", "content", "priority"))
            say(f"  {sign} {number}  {what}  ({how})")

    async def _sessions(self, rest: str) -> None:
        await self._written()
        here = str(self._conversation.setup.folder)
        listed = [item for item in self._folder.list() if item.problem is not None or item.workspace == here]
        rows = [
            [
                item.id, item.problem or item.outcome or str(item.state), moment_shown(item.changed),
                cut(one_line(item.prompt), 60),
            ]
            for item in listed[:LONGEST_LISTED]
        ]  # fmt: skip
        if rows:
            table(["SESSION", "OUTCOME", "CHANGED", "BEGAN WITH"], rows)
        else:
            say("There is no session of this workspace yet.")
        if (more := len(listed) - len(rows)) > 0:
            command = self._conversation.setup.project.command(
                "sessions", "list", "--limit", str(len(listed))
            )
            say(paint(f"{more:,} more: {command}", dim=True))

    async def _resume(self, rest: str) -> None:
        if not rest:
            raise ConfigurationError("Say which: /resume ID, or /resume last. See /sessions.")
        await self._attach(rest)

    async def _export(self, rest: str) -> None:
        from detent.flows.coding.sessions.files import file_bytes

        if not rest:
            raise ConfigurationError("Say where: /export FILE.")
        await self._written()
        raw = file_bytes(self._folder.plain(self._folder.existing(self._id())))
        _write_new(Path(rest), raw)
        say(f"Written to {clean(rest)}.")

    async def _quit(self, rest: str) -> None:
        raise Leave

    # -- the session's file ---------------------------------------------------------------------------------

    async def _written(self) -> None:
        """Have the files say what the journals say."""
        await self._conversation.runner.write_sessions()

    @property
    def _folder(self) -> SessionFolder:
        folder = self._conversation.setup.sessions(self._conversation.flow)
        if folder is None:
            raise ConfigurationError("No session files are kept here.")
        return folder

    def _id(self) -> str:
        if self._conversation.session is None:
            raise ConfigurationError("Nothing has been said yet.")
        return self._conversation.session


def _write_new(place: Path, raw: bytes) -> None:
    """Write a file that is not there yet, for its owner alone.

    Raises:
        ConfigurationError: it is there, or cannot be written.
    """
    try:
        with open_private(place.expanduser(), "xb") as file:
            file.write(raw)
    except FileExistsError:
        raise ConfigurationError(f"{place} exists already; name a new file.") from None
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be written: {error.strerror}.") from None


COMMANDS: Mapping[str, Command] = {
    "help": Command("This list.", SlashCommands._help),
    "state": Command("Where the session is, and what is open.", SlashCommands._state),
    "history": Command("What was said.", SlashCommands._history),
    "tools": Command("The tools of the assistant.", SlashCommands._tools),
    "allow": Command("What needs no question; /allow TOOL[:PATTERN] adds to it.", SlashCommands._allow),
    "todo": Command("The session's list of things to do.", SlashCommands._todo),
    "sessions": Command("The sessions of this workspace.", SlashCommands._sessions),
    "resume": Command("Go on with another session: /resume ID, or last.", SlashCommands._resume),
    "export": Command("Write the session to a file: /export FILE.", SlashCommands._export),
    "quit": Command("Leave; so does Ctrl-D.", SlashCommands._quit),
}
