"""Whether a call may be made, must not be, or is for a person to decide.

The order is fixed: what is denied, what is allowed, else a question. Only options, settings of a trusted
project and answers of a person come in here; nothing that a model, a tool or a session file says.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from detent.engine.tools import ToolError
from detent.flows.coding.permission_patterns import (
    COMMAND,
    PATH_OF,
    Rule,
    allows_command,
    denies_command,
    denies_path,
    matches_path,
    parse_protected,
    parse_rule,
)
from detent.flows.coding.tools.secret_names import is_secret
from detent.flows.coding.tools.text_form import counted
from detent.flows.coding.workspace import Workspace, possible
from detent.kernel.plain import digest, to_plain

__all__ = ["Decision", "Grant", "Rules", "decide", "excluded", "grant_for", "parse_rule", "question"]

CONFIGURES = "it configures Detent itself, so that only a person may change it"
SECRET = "its name looks like that of a file with secrets"
UNASKED = "it changes something, and no rule allows it"
_WRITES = frozenset({"write_file", "update_file"})
_READS = frozenset({"read_file", "update_file", "grep"})
"""Tools that show what is in a file they are called for; `update_file` shows lines that resemble a target."""
_DENIED_WITH: Mapping[str, tuple[str, ...]] = {"update_file": ("update_file", "read_file")}
"""Tools that are denied by rules about others, too: an update tells what is in the file."""
_LEAVES_OUT: Mapping[str, tuple[str, ...]] = {
    "grep": ("grep", "read_file"), "glob": ("glob",), "list_dir": ("list_dir",),
    "write_file": ("write_file",), **_DENIED_WITH,
}  # fmt: skip
"""For each tool that finds its files itself, or writes one, the tools whose denied paths it leaves alone."""
_LONGEST = 200
"""Characters of a value in a question."""

Verdict = Literal["allow", "deny", "ask", "refuse"]
"""`refuse`: no tool may have this path, whatever the rules say."""


@dataclass(frozen=True)
class Rules:
    """A person's rules for the calls of a request."""

    allow: tuple[str, ...] = ()
    """Patterns of calls that need no question."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that are refused, whatever allows them."""
    yes: bool = False
    """Nothing needs a question, but for what configures Detent."""
    read_only: bool = False
    """Nothing is changed."""
    protect: tuple[str, ...] = ()
    """Patterns of paths that no file tool may change."""


class Decision(NamedTuple):
    """What becomes of a call."""

    verdict: Verdict
    why: str
    """The rule, or the reason for the question, as part of a sentence."""
    place: str | None = None
    """What its path leads to, relative to the workspace: the decision holds for this place alone."""
    code: str = "denied"
    """Of what is denied or refused: the error that the assistant is told."""


class Grant(NamedTuple):
    """A person's "always in this session"."""

    tool: str
    scope: str
    """The very folder of a file, or a digest of the exact command with its folder and environment."""


def decide(
    rules: Rules,
    tool: str,
    args: Mapping[str, Any],
    *,
    workspace: str | Workspace,
    kind: str,
    granted: Collection[Grant] = (),
) -> Decision:
    """What becomes of a call whose arguments have the right form.

    Raises:
        ConfigurationError: a rule means nothing.
    """
    path = _Path.of(tool, args, workspace)
    for rule in _denying(rules.deny, tool):
        if denies_command(rule, args) if tool == COMMAND else path.is_denied_by(rule):
            return Decision("deny", f"the rule '{rule.text}' denies it", path.place)
    for pattern, rule in _protecting(rules.protect, tool):
        if path.is_denied_by(rule):
            return Decision("deny", f"'{pattern}' is protected (coding.protect)", path.place, "protected")
    if rules.read_only and kind == "effect":
        return Decision("deny", "nothing may be changed in this request (--read-only)", path.place)
    if path.refusal is not None:
        return Decision("refuse", path.refusal.message, code=path.refusal.code)
    try:
        with possible(path.name):
            verdict, why = _decide(rules, tool, args, path, kind, granted)
    except ToolError as error:
        return Decision("refuse", error.message, code=error.code)
    return Decision(verdict, why, path.place)


class _Path(NamedTuple):
    """The path of a call, followed once: every rule is about the same place."""

    space: Workspace | None
    name: str
    """As the call has it; empty for a tool that takes none."""
    place: str | None = None
    """What it leads to, relative to the workspace."""
    refusal: ToolError | None = None
    """Why no tool may have it."""

    @classmethod
    def of(cls, tool: str, args: Mapping[str, Any], workspace: str | Workspace) -> _Path:
        """The path of a call."""
        name = str(args.get(PATH_OF[tool], ".")) if tool in PATH_OF else ""
        space = None
        try:
            space = Workspace.at(workspace) if isinstance(workspace, str) else workspace
            return cls(space, name, space.relative_name(name) if name else None)
        except ToolError as error:
            return cls(space, name, refusal=error if name else None)

    def is_denied_by(self, rule: Rule) -> bool:
        """Whether a rule that denies is about this path."""
        if rule.is_bare:
            return True
        # The path as it is spelled, too: a rule about a link is about what the link leads to.
        paths = (self.place, self.space.spelled(self.name) if self.space is not None else self.name)
        return any(path is not None and denies_path(rule, path) for path in paths)

    @property
    def configures(self) -> bool:
        """Whether it is that of a file that configures Detent."""
        if self.space is None or self.place is None:
            return False
        return self.space.configures(self.name, self.space.root / self.place)

    @property
    def is_secret(self) -> bool:
        """Whether it is that of a file with secrets, by its own name or that of what it leads to."""
        if self.space is None or self.place is None:
            return False
        return (is_secret(self.name) or is_secret(self.place)) and not (self.space.root / self.place).is_dir()


def _decide(
    rules: Rules, tool: str, args: Mapping[str, Any], path: _Path, kind: str, granted: Collection[Grant]
) -> tuple[Verdict, str]:
    """What becomes of a call that nothing denies."""
    if tool in _WRITES and path.configures:
        return "ask", CONFIGURES
    is_granted = _as_tuple(_grant_for(tool, args, path)) in {_as_tuple(grant) for grant in granted}
    if tool in _READS and not (rules.yes or is_granted) and path.is_secret:
        return "ask", SECRET
    if kind != "effect":
        return "allow", "it changes nothing"
    if rules.yes:
        return "allow", "everything is allowed (--yes)"
    for rule in _about(rules.allow, tool):
        if _allows(rule, tool, args, path):
            return "allow", f"the rule '{rule.text}' allows it"
    if is_granted:
        return "allow", "a person has allowed it for this session"
    return "ask", UNASKED


def _allows(rule: Rule, tool: str, args: Mapping[str, Any], path: _Path) -> bool:
    if tool != COMMAND:
        return matches_path(rule, path.place or "")
    return allows_command(rule, args, "." if path.space is None else str(path.space.root))


def excluded(rules: Rules, tool: str) -> list[str]:
    """The patterns of paths that a tool must leave alone: its argument `denied`."""
    denying = [rule for name in _LEAVES_OUT.get(tool, ()) for rule in _about(rules.deny, name)]
    denying += [rule for _, rule in _protecting(rules.protect, tool)]
    return [pattern.text for rule in denying for pattern in rule.paths]


def _protecting(patterns: Collection[str], tool: str) -> Iterator[tuple[str, Rule]]:
    """The patterns of protected paths, each as a rule about a tool, if that changes files."""
    if tool in _WRITES:
        yield from ((pattern, parse_protected(pattern, tool)) for pattern in patterns)


def _denying(patterns: Collection[str], tool: str) -> Iterator[Rule]:
    """The rules that deny calls of a tool."""
    for name in _DENIED_WITH.get(tool, (tool,)):
        yield from _about(patterns, name)


def _about(patterns: Collection[str], tool: str) -> Iterator[Rule]:
    """The rules among these patterns that are about a tool."""
    for text in patterns:
        rule = _read(text, tool)
        if rule.tool == tool:
            yield rule


def _read(text: str, tool: str) -> Rule:
    name = text.strip().partition(":")[0]
    return parse_rule(text, (name,) if name else ())


def grant_for(tool: str, args: Mapping[str, Any], workspace: str | Workspace) -> Grant:
    """What "always in this session" stands for: this tool in this very folder, or this exact call."""
    return _grant_for(tool, args, _Path.of(tool, args, workspace))


def _grant_for(tool: str, args: Mapping[str, Any], path: _Path) -> Grant:
    if path.space is not None and path.place is not None:
        is_file = PATH_OF[tool] == "filepath" or not (path.space.root / path.place).is_dir()
        return Grant(tool, os.path.dirname(path.place) or "." if is_file else path.place)
    exact = dict(args)
    if tool == COMMAND:
        folder = str(args.get("cwd", "."))
        with contextlib.suppress(ToolError):
            folder = path.space.relative_name(folder) if path.space is not None else folder
        exact = {"command": args.get("command"), "cwd": folder, "env": args.get("env") or {}}
    return Grant(tool, f"sha256:{digest(to_plain(exact))}")


def _as_tuple(grant: Any) -> tuple[str, ...]:
    """A grant, also one that was kept as a list."""
    return tuple(map(str, grant))


def question(tool: str, args: Mapping[str, Any]) -> str:
    """What a person is asked, on one line; the exact call is shown beside it."""
    say = _QUESTIONS.get(tool)
    return say(args) if say is not None else f"Call {tool} with {shown(_json(args))}?"


def _write(args: Mapping[str, Any]) -> str:
    content = str(args.get("content", ""))
    lines = content.count("\n") + (not content.endswith("\n") if content else 0)
    verb = "Write, or replace," if args.get("overwrite") else "Write"
    return f"{verb} {shown(args.get('filepath'))} ({counted(lines, 'line')})?"


def _update(args: Mapping[str, Any]) -> str:
    every = "every occurrence of " if args.get("replace_all") else ""
    return f"Change {shown(args.get('filepath'))}: replace {every}{shown(args.get('target'), 60)}?"


def _bash(args: Mapping[str, Any]) -> str:
    folder = f" in {shown(args['cwd'])}" if args.get("cwd", ".") != "." else ""
    env = args.get("env")
    names = (
        f", with {', '.join(shown(name, 40) for name in env)} set" if isinstance(env, Mapping) and env else ""
    )
    return f"Run {shown(args.get('command'))}{folder}{names}?"


def _read_secret(verb: str, argument: str, args: Mapping[str, Any]) -> str:
    return f"{verb} {shown(args.get(argument, '.'))}, which may hold secrets?"


_QUESTIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "write_file": _write,
    "update_file": _update,
    COMMAND: _bash,
    "read_file": partial(_read_secret, "Read", "filepath"),
    "grep": partial(_read_secret, "Search", "directory"),
}


def shown(value: Any, longest: int = _LONGEST) -> str:
    """A value from a model in a question: quoted, on one line, nothing in it obeyed by a terminal."""
    text = str(value)
    safe = "".join(char if char.isprintable() else _escaped(char) for char in text[:longest])
    return f"'{safe}{'…' if len(text) > longest else ''}'"


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) > 127 else char.encode("unicode_escape").decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
