"""What the tools of the coding flow take, as an assistant sees them: names, descriptions, JSON Schemas.

What a tool does is in a module of its own; `catalogue` brings the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from detent.adapters.guarded import NOTHING, Guarded
from detent.engine.schemas import misfits
from detent.flows.coding.workspace import Workspace
from detent.kernel.errors import nearest

ToolKind = Literal["query", "effect", "child", "hold", "data"]

LONGEST_PATH = 4000
"""Characters of a path."""
LONGEST_COMMAND = 100_000
LONGEST_TIMEOUT = 600
"""Seconds that a command may take."""
DEFAULT_TIMEOUT = 120
"""Seconds that a command may take that says nothing else."""
EXCLUDED = (".git", "node_modules", "__pycache__", ".venv")
"""Folders that a search leaves out unless it says otherwise."""

DENIED: Mapping[str, Any] = {
    "type": "array", "items": {"type": "string"},
    "description": "Paths that are left out, because a person's rules deny them.",
}  # fmt: skip
"""An argument of searches that code supplies: see `permission.excluded`."""

SEEN: Mapping[str, Any] = {
    "type": ["string", "null"],
    "description": "SHA-256 of what the session has last read or written there.",
}
"""An argument of file tools that code supplies."""

DECIDED: Mapping[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "place": {"type": ["string", "null"]}},
    "required": ["path", "place"],
    "description": "The path of the call, and the place it led to when the call was judged by the rules.",
}
"""An argument of tools on files that code supplies: see `Workspace.check_decided`."""

WRITING: Mapping[str, Mapping[str, Any]] = {"seen": SEEN, "decided": DECIDED, "denied": DENIED}
"""The arguments that code supplies to a change of a file."""

WATCH = {
    "type": "string",
    "description": "The check that follows: say which of its files, and of tests, the command changes.",
}
"""An argument of commands that code supplies."""

SUPPLIED = frozenset({"workspace", "seen", "denied", "secrets", "decided", "watch"})
"""All arguments that code supplies."""


class ToolSpec(NamedTuple):
    """A tool as an assistant sees it."""

    name: str
    kind: ToolKind
    """`child` is a sub-run, `hold` a question to a person, `data` a change of the session's own data: these
    have no code here."""
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments; nothing beyond it is accepted."""


@dataclass(frozen=True)
class ToolSettings:
    """What the tools of one project may do and must leave alone."""

    network: bool = False
    """Whether commands reach the network, where they run in a sandbox."""
    pass_env: tuple[str, ...] = ()
    """Names of environment variables that commands see besides the usual ones."""
    sandbox: bool | None = None
    """None: commands run in a sandbox where there is one. True: they are refused where there is none. False:
    they never do."""
    environ: Mapping[str, str] | None = None
    """The environment that commands are given their part of; None: that of this process."""
    protected: Sequence[Path] = ()
    """Files and folders that no tool may see, such as the store. Git's own files, Detent's folder and the
    store of the workspace's own project are hidden anyway."""
    guarded: Guarded = NOTHING
    """Files that configure the Detent that runs; only a person lets them be written. Those of the workspace's
    own project are known anyway."""
    secrets: frozenset[str] = frozenset()
    """Values that results do not show, and that nothing may be written over by mistake."""
    state: Path | None = None
    """Folder for files that are being written, used where it is on the disk of the workspace. None: Detent's
    folder in the workspace, or the folder of the written file if there is none."""

    def workspace(self, root: str) -> Workspace:
        """The workspace in a folder; raises `ToolError` if there is none."""
        return Workspace.at(root, protected=self.protected, guarded=self.guarded, state=self.state)


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _path(description: str, default: str | None = None) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_PATH, "description": description}
    return schema if default is None else {**schema, "default": default}


def _count(description: str, default: int, least: int = 1, most: int | None = None) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": least, "default": default, "description": description}
    return schema if most is None else {**schema, "maximum": most}


def _switch(description: str, default: bool) -> dict[str, Any]:
    return {"type": "boolean", "default": default, "description": description}


def _choice(description: str, *values: str, default: str | None = None) -> dict[str, Any]:
    schema = {"type": "string", "enum": list(values), "description": description}
    return schema if default is None else {**schema, "default": default}


def _globs(description: str) -> dict[str, Any]:
    items = {"type": "string", "minLength": 1}
    return {"type": ["string", "array"], "items": items, "minLength": 1, "description": description}


_STATUS = _choice("How far it is.", "pending", "in_progress", "completed")
_PRIORITY = _choice("How urgent it is.", "low", "medium", "high")
_CONTENT = {"type": "string", "minLength": 1, "maxLength": 2000, "description": "What is to be done."}

_ALL = (
    ToolSpec(
        "read_file", "query",
        "Read a text file. Returns its text as it is, without line numbers; a long file is cut at a line, "
        "and the end of the result says where to go on.",
        _object(
            {
                "filepath": _path("The file."),
                "start_line": _count("First line to read, from 1.", 1),
                "max_lines": _count("Lines to read at most.", 2000),
            },
            "filepath",
        ),
    ),
    ToolSpec(
        "list_dir", "query",
        "List a folder: kind, size in bytes and name of each entry, sorted by name.",
        _object(
            {
                "directory": _path("The folder.", "."),
                "max_entries": _count("Entries to list at most.", 200, most=10_000),
                "show_hidden": _switch("List names that begin with a dot, too.", False),
            }
        ),
    ),
    ToolSpec(
        "glob", "query",
        "Find files by a pattern of their path: * and ? within a name, ** for any folders, [a-z], {a,b}. A "
        "pattern without / matches names at any depth; one with / is matched from the folder on.",
        _object(
            {
                "pattern": {
                    "type": "string", "minLength": 1, "maxLength": 1000,
                    "description": "The pattern, such as *.py or src/**/test_*.py; with / at its end it "
                    "finds folders.",
                },
                "directory": _path("The folder to search.", "."),
                "recursive": _switch("Search the folders below it, too.", True),
                "include_hidden": _switch("Include names that begin with a dot.", False),
                "exclude_dirs": {
                    "type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 100,
                    "default": list(EXCLUDED),
                    "description": "Names of folders that are left out.",
                },
                "max_results": _count("Paths to return at most.", 500, most=10_000),
                "sort_by": _choice(
                    "Order: by name, newest first, or largest first.", "name", "modified", "size",
                    default="name",
                ),
                "case_sensitive": _switch("Tell capital from small letters.", True),
                "use_gitignore": _switch("Leave out what .gitignore files name.", True),
            },
            "pattern",
        ),
    ),
    ToolSpec(
        "grep", "query",
        "Search the lines of text files. Returns `path:line:text` of each match and `path-line-text` of the "
        "lines around it. Files that .gitignore names, hidden folders, binary files and files above 2 MB are "
        "left out.",
        _object(
            {
                "pattern": {
                    "type": "string", "minLength": 1, "maxLength": 2000,
                    "description": "A regular expression, matched against each line; plain text if use_regex "
                    "is false.",
                },
                "directory": _path("The folder, or the one file, to search.", "."),
                "case_sensitive": _switch("Tell capital from small letters.", False),
                "use_regex": _switch("Whether the pattern is a regular expression.", True),
                "include_files": _globs("Search only files that match: *.py, or several with commas."),
                "exclude_files": _globs("Leave out files that match."),
                "max_results": _count("Matching lines to return at most.", 50, most=5000),
                "context_lines": _count("Lines to show before and after each match.", 2, least=0, most=50),
            },
            "pattern",
        ),
    ),
    ToolSpec(
        "write_file", "effect",
        "Write a whole text file. A new file gets its folders, too; an existing one is replaced only with "
        "overwrite, and only after you have read it. To change a part of a file, use update_file.",
        _object(
            {
                "filepath": _path("The file."),
                "content": {"type": "string", "description": "Its whole text."},
                "overwrite": _switch("Replace the file if it exists.", False),
            },
            "filepath", "content",
        ),
    ),
    ToolSpec(
        "update_file", "effect",
        "Replace a text in a file by another one. The target must be an exact copy of a part of the file "
        "that occurs once: take in lines around it until it does. Nothing else in the file changes.",
        _object(
            {
                "filepath": _path("The file."),
                "target": {
                    "type": "string",
                    "description": "The text to replace, exactly as in the file, indentation included.",
                },
                "patch": {
                    "type": "string",
                    "description": "The text to put in its place; empty to remove the target.",
                },
                "replace_all": _switch("Replace every occurrence of the target.", False),
            },
            "filepath", "target", "patch",
        ),
    ),
    ToolSpec(
        "bash", "effect",
        "Run a command in a shell. Returns its output and exit code. It has no terminal and no input; a "
        "process it leaves in the background is ended with it.",
        _object(
            {
                "command": {
                    "type": "string", "minLength": 1, "maxLength": LONGEST_COMMAND,
                    "description": "The command.",
                },
                "cwd": _path("The folder it starts in.", "."),
                "timeout": {
                    "type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_TIMEOUT,
                    "default": DEFAULT_TIMEOUT,
                    "description": "Seconds it may take.",
                },
                "env": {
                    "type": "object", "additionalProperties": {"type": "string"}, "default": {},
                    "description": "Further environment variables.",
                },
            },
            "command",
        ),
    ),
    ToolSpec(
        "task", "child",
        "Give a part of the work to an assistant of its own, which knows only the prompt and returns a text. "
        "The profile analyzer only reads; migration-auditor reads and audits old sessions; worker may change "
        "files.",
        _object(
            {
                "description": {
                    "type": "string", "minLength": 1, "maxLength": 500,
                    "description": "The work in a few words, for people.",
                },
                "prompt": {
                    "type": "string", "minLength": 1, "maxLength": 100_000,
                    "description": "Everything the other assistant must know.",
                },
                "profile": _choice(
                    "What it may do.", "analyzer", "codebase-analyzer", "migration-auditor", "worker",
                    default="analyzer",
                ),
                "max_iterations": _count("Turns it may take.", 10, most=200),
            },
            "description", "prompt",
        ),
    ),
    ToolSpec(
        "ask", "hold",
        "Ask the person a question that only they can answer, and wait for the answer.",
        _object(
            {
                "question": {
                    "type": "string", "minLength": 1, "maxLength": 4000, "description": "The question.",
                },
                "choices": {
                    "type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 20,
                    "default": [],
                    "description": "Answers to choose from; the person may give another one.",
                },
            },
            "question",
        ),
    ),
    ToolSpec(
        "todo", "data",
        "Keep the list of things to do: add one (content) or several (todos), update one (todo_id with "
        "content, status or priority), complete or remove one (todo_id), or list them.",
        _object(
            {
                "action": _choice(
                    "What to do.", "add", "add_multiple", "update", "complete", "list", "remove"
                ),
                "content": _CONTENT,
                "todo_id": {"type": "string", "minLength": 1, "maxLength": 20, "description": "Which item."},
                "status": _STATUS,
                "priority": _PRIORITY,
                "todos": {
                    "type": "array", "minItems": 1, "maxItems": 50,
                    "items": _object(
                        {"content": _CONTENT, "status": _STATUS, "priority": _PRIORITY}, "content"
                    ),
                    "description": "Items to add.",
                },
            },
            "action",
        ),
    ),
)  # fmt: skip

SPECS: Mapping[str, ToolSpec] = {spec.name: spec for spec in _ALL}
"""All tools of the flow, by name."""


def with_code_arguments(spec: ToolSpec, **further: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments with those that code supplies and no assistant can."""
    properties = {
        "workspace": {"type": "string", "description": "The root of the workspace, absolute."},
        **spec.parameters["properties"],
        **further,
    }
    return _object(properties, "workspace", *spec.parameters["required"])


def problems(spec: ToolSpec, args: Any) -> list[str]:
    """What is wrong with the arguments of a call, each with its place and the nearest name; [] if nothing."""
    if not isinstance(args, Mapping):
        return ["the arguments must be an object"]
    known, names = list(spec.parameters["properties"]), ", ".join(spec.parameters["properties"])
    given = {name: value for name, value in args.items() if name in known}
    unknown = [str(name)[:60] for name in args if name not in known]
    missing = [name for name in spec.parameters["required"] if name not in given]
    wrong = [line for line in misfits(given, spec.parameters) if not line.startswith("/: missing")]
    return [
        *(f"there is no argument '{name}'.{nearest(name, known)} Arguments: {names}" for name in unknown),
        *(f"'{name}' is missing" for name in missing),
        *(_worded(line, args) for line in wrong),
    ]


def _worded(line: str, args: Mapping[str, Any]) -> str:
    """`/place: expectation` as part of a sentence, with the nearest choice where there are some."""
    place, _, expectation = line.partition(": ")
    name = place.strip("/").replace("/", ".")
    hint = ""
    if expectation.startswith(_CHOICES) and isinstance(value := args.get(name), str):
        hint = nearest(value[:60], expectation.removeprefix(_CHOICES).split(", "))
    for rule, words in _RULES.items():
        expectation = expectation.replace(rule, words)
    return f"'{name}' {expectation}{'.' if hint else ''}{hint}" if name else expectation


_CHOICES = "must be one of "
_RULES = {
    "breaks minLength 1": "must not be empty",
    "breaks minimum ": "must be at least ",
    "breaks maximum ": "must be at most ",
    "breaks exclusiveMinimum ": "must be more than ",
    "breaks maxLength ": "is longer than ",
    "breaks maxItems ": "has more items than ",
}
"""Rules of JSON Schema as they stand in a sentence."""
