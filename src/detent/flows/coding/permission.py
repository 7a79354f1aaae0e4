"""Whether a call may be made, must not be, or is for a person to decide.

The order is fixed: what is denied, what is allowed, else a question. Only options, settings of a trusted
project and answers of a person come in here; nothing that a model, a tool or a session file says.
"""

from __future__ import annotations

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
    parse_rule,
)
from detent.flows.coding.tools.secret_names import is_secret
from detent.flows.coding.tools.text_form import counted
from detent.flows.coding.workspace import Workspace
from detent.kernel.plain import digest, to_plain

__all__ = ["Decision", "Grant", "Rules", "decide", "excluded", "grant_for", "parse_rule", "question"]

CONFIGURES = "it configures Detent itself, so that only a person may change it"
SECRET = "its name looks like that of a file with secrets"
UNASKED = "it changes something, and no rule allows it"
_WRITES = frozenset({"write_file", "update_file"})
_READS = frozenset({"read_file", "update_file", "grep"})
"""Tools that show what is in a file they are called for; `update_file` shows lines that resemble a target."""
_SEARCHES: Mapping[str, tuple[str, ...]] = {
    "grep": ("grep", "read_file"), "glob": ("glob",), "list_dir": ("list_dir",),
}  # fmt: skip
"""For each search, the tools whose denied paths it must leave out."""
_LONGEST = 200
"""Characters of a value in a question."""

Verdict = Literal["allow", "deny", "ask"]


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


class Decision(NamedTuple):
    """What becomes of a call."""

    verdict: Verdict
    why: str
    """The rule, or the reason for the question, as part of a sentence."""


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

    A path that the tool itself refuses, or a workspace that is not there, needs no question.

    Raises:
        ConfigurationError: a rule means nothing.
    """
    space = _workspace(workspace)
    name = str(args.get(PATH_OF[tool], ".")) if tool in PATH_OF else ""
    for rule in _about(rules.deny, tool):
        if _denies(rule, tool, args, space, name):
            return Decision("deny", f"the rule '{rule.text}' denies it")
    if rules.read_only and kind == "effect":
        return Decision("deny", "nothing may be changed in this request (--read-only)")
    place = _place(space, name) if name else None
    if name and (space is None or place is None):
        return Decision("allow", "the tool itself refuses this path")
    if space is not None and tool in _WRITES and space.configures(name):
        return Decision("ask", CONFIGURES)
    is_granted = _as_tuple(_grant_for(tool, args, space)) in {_as_tuple(grant) for grant in granted}
    if (
        tool in _READS
        and not (rules.yes or is_granted)
        and space
        and _is_secret_file(space, name, place or "")
    ):
        return Decision("ask", SECRET)
    if kind != "effect":
        return Decision("allow", "it changes nothing")
    if rules.yes:
        return Decision("allow", "everything is allowed (--yes)")
    for rule in _about(rules.allow, tool):
        if allows_command(rule, args) if tool == COMMAND else matches_path(rule, place or ""):
            return Decision("allow", f"the rule '{rule.text}' allows it")
    if is_granted:
        return Decision("allow", "a person has allowed it for this session")
    return Decision("ask", UNASKED)


def excluded(rules: Rules, tool: str) -> list[str]:
    """The patterns of paths that a search must leave out: its argument `denied`."""
    return [
        pattern.text
        for name in _SEARCHES.get(tool, ())
        for rule in _about(rules.deny, name)
        for pattern in rule.paths
    ]


def _about(patterns: Collection[str], tool: str) -> Iterator[Rule]:
    """The rules among these patterns that are about a tool."""
    for text in patterns:
        rule = _read(text, tool)
        if rule.tool == tool:
            yield rule


def _read(text: str, tool: str) -> Rule:
    name = text.strip().partition(":")[0]
    return parse_rule(text, (name,) if name else ())


def _denies(rule: Rule, tool: str, args: Mapping[str, Any], space: Workspace | None, name: str) -> bool:
    if rule.is_bare:
        return True
    if tool == COMMAND:
        return denies_command(rule, args)
    # The path as it is spelled, too: a rule about a link is about what the link leads to.
    paths = (_place(space, name), space.spelled(name) if space is not None else name)
    return any(path is not None and denies_path(rule, path) for path in paths)


def _is_secret_file(space: Workspace, name: str, place: str) -> bool:
    """Whether a path is that of a file with secrets, by its own name or that of what it leads to."""
    return (is_secret(name) or is_secret(place)) and not (space.root / place).is_dir()


def _workspace(workspace: str | Workspace) -> Workspace | None:
    try:
        return Workspace.at(workspace) if isinstance(workspace, str) else workspace
    except ToolError:
        return None


def _place(space: Workspace | None, name: str) -> str | None:
    """The place a path leads to, relative to the workspace; None if the tool will refuse it."""
    try:
        return None if space is None else space.relative_name(name)
    except ToolError:
        return None


def grant_for(tool: str, args: Mapping[str, Any], workspace: str | Workspace) -> Grant:
    """What "always in this session" stands for: this tool in this very folder, or this exact call."""
    return _grant_for(tool, args, _workspace(workspace))


def _grant_for(tool: str, args: Mapping[str, Any], space: Workspace | None) -> Grant:
    if tool in PATH_OF:
        place = _place(space, str(args.get(PATH_OF[tool], ".")))
        if space is not None and place is not None:
            is_file = PATH_OF[tool] == "filepath" or not (space.root / place).is_dir()
            return Grant(tool, os.path.dirname(place) or "." if is_file else place)
    exact = dict(args)
    if tool == COMMAND:
        folder = _place(space, str(args.get("cwd", ".")))
        exact = {
            "command": args.get("command"), "cwd": folder or args.get("cwd"), "env": args.get("env") or {}
        }  # fmt: skip
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
