"""The tool `grep`: lines of text files that match a regular expression or hold a text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from detent.adapters.project.sandbox import quoted
from detent.engine.patterns import InvalidPattern, PatternTimeout, compiled
from detent.engine.tools import Tool, ToolError
from detent.flows.coding.tools.glob import leads_to_file
from detent.flows.coding.tools.line_expression import LineExpression, repeats_a_repetition
from detent.flows.coding.tools.path_pattern import PathPattern, denied_patterns, path_patterns
from detent.flows.coding.tools.secret_names import is_secret
from detent.flows.coding.tools.spec import (
    DECIDED,
    DENIED,
    EXCLUDED,
    SPECS,
    ToolSettings,
    with_code_arguments,
)
from detent.flows.coding.tools.text_form import HEAD, is_binary, shown_name, with_notes
from detent.flows.coding.tools.tree import Deadline, Group, Search
from detent.flows.coding.workspace import Entry, Workspace

SECONDS = 10.0
LARGEST = 2 * 1024 * 1024
"""Bytes of the largest file that is searched."""
LONGEST_LINE = 300
"""Characters of a line that are shown."""
LEAD = 100
"""Of these, characters before the match."""
SECRETS = {"type": "boolean", "description": "Whether files that look like secrets are searched, too."}

Globs = str | Sequence[str] | None


class _Match(NamedTuple):
    line: int
    """From 0."""
    column: int


@dataclass
class _Searched:
    """The files that are searched, and how many are not."""

    search: Search
    include: tuple[PathPattern, ...]
    exclude: tuple[PathPattern, ...]
    secrets: bool
    binary: int = 0
    large: int = 0
    secret: int = 0
    unread: int = 0

    @property
    def space(self) -> Workspace:
        return self.search.workspace

    def texts(self, start: Path) -> Iterator[tuple[str, str]]:
        """Paths relative to the workspace, and the texts, in the order of paths."""
        top = self.space.relative(start)
        skip = 0 if top == "." else len(top) + 1
        for group in self.search.walk(start):
            for name, text in self._texts_in(group, skip):
                yield group.prefix + name, text
            if self.search.deadline.over():
                return

    def _is_wanted(self, group: Group, entry: Entry, skip: int) -> bool:
        below = (group.prefix + entry.name)[skip:]
        if self.include and not any(pattern.matches(below) for pattern in self.include):
            return False
        if any(pattern.matches(below) for pattern in self.exclude):
            return False
        if is_secret(entry.name) and not self.secrets:
            self.secret += 1
            return False
        return True

    def _texts_in(self, group: Group, skip: int) -> Iterator[tuple[str, str]]:
        """The texts of the wanted files of one folder, which is opened once."""
        try:
            with self.space.sandbox.folder_of(group.folder / "x") as folder:
                for entry in group.entries:
                    if self.search.deadline.over():
                        return
                    if not self._is_wanted(group, entry, skip):
                        continue
                    if entry.kind == "link":
                        text = self._behind(group.folder / entry.name)
                    else:
                        text = self._read(partial(self.space.opened, folder, entry.name, entry.name))
                    if text:
                        yield entry.name, text
        except OSError:
            self.unread += 1

    def _behind(self, link: Path) -> str | None:
        """The text of the file that a link leads to, if it is one that would be searched itself."""
        if not leads_to_file(self.space, link):
            return None
        target = link.resolve()
        relative = self.space.relative(target)
        if self.search.denies(relative) or (is_secret(target.name) and not self.secrets):
            return None
        return self.text(target, relative)

    def text(self, place: Path, name: str) -> str | None:
        """The text of one file; None if it is not searched."""
        return self._read(partial(self.space.reading, place, name))

    def _read(self, opening: Any) -> str | None:
        try:
            with opening() as file:
                if os.fstat(file.fileno()).st_size > LARGEST:
                    self.large += 1
                    return None
                raw = file.read(LARGEST + 1)
        except (OSError, ToolError):
            self.unread += 1
            return None
        if len(raw) > LARGEST:
            self.large += 1
            return None
        if is_binary(raw[:HEAD]) or b"\0" in raw:
            self.binary += 1
            return None
        return str(raw, "utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n")

    def notes(self) -> list[str]:
        """What was not searched, in words."""
        counts = (
            (self.secret, "because they may hold secrets"),
            (self.binary, "because they are binary"),
            (self.large, "because they are larger than 2 MB"),
            (self.unread, "because they cannot be read"),
        )
        return [f"Files not searched {why}: {number}." for number, why in counts if number]


def grep(
    settings: ToolSettings,
    *,
    workspace: str,
    pattern: str,
    directory: str = ".",
    case_sensitive: bool = False,
    use_regex: bool = True,
    include_files: Globs = None,
    exclude_files: Globs = None,
    max_results: int = 50,
    context_lines: int = 2,
    denied: Sequence[str] = (),
    secrets: bool = False,
    decided: Mapping[str, Any] | None = None,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """The lines that match, with those around them, by path and line."""
    deadline = Deadline(seconds)
    space = settings.workspace(workspace)
    expression = _expression(pattern, case_sensitive=case_sensitive, use_regex=use_regex)
    include = path_patterns(include_files or ())
    search = Search(
        space,
        deadline,
        exclude=tuple(PathPattern(name) for name in EXCLUDED),
        denied=denied_patterns(denied),
        may_enter=lambda folder: not include or any(rule.may_match_below(folder) for rule in include),
    )
    files = _Searched(search, include, path_patterns(exclude_files or ()), secrets)
    start = space.resolve(directory)
    space.check_decided(start, directory, decided)
    if start.is_dir():
        texts = files.texts(start)
    elif search.denies(space.relative(start)):
        raise ToolError("denied", f"a rule denies reading {quoted(directory)}.")
    else:
        with space.reading(start, directory):
            pass  # a file that is not there, or is none, is an error
        texts = iter([(space.relative(start), files.text(start, directory) or "")])
    most, found, blocks = int(max_results), 0, []
    more = False
    for path, text in texts:
        matches = list(_matches(expression, text, most - found + 1, deadline))
        more = len(matches) > most - found
        matches = matches[: most - found]
        found += len(matches)
        if matches:
            blocks.append(_block(path, text.split("\n"), matches, int(context_lines)))
        if more or deadline.over():
            break
    notes = [f"There are more matches than {most:,}."] if more else []
    notes += [*files.notes(), *search.notes()]
    if not found and start.is_dir():
        notes.append("Names that begin with a dot were not searched.")
    return {
        "content": with_notes("\n--\n".join(blocks) or "(no matches)", notes),
        "truncated": more or deadline.passed,
        "count": found,
    }


def _expression(pattern: str, *, case_sensitive: bool, use_regex: bool) -> LineExpression:
    if "\n" in pattern:
        raise ToolError("invalid_arguments", "lines are searched one by one; the pattern holds a line end.")
    if use_regex and repeats_a_repetition(pattern):
        raise ToolError(
            "invalid_arguments",
            "the pattern repeats a repetition, which can take for ever; write a+ for (a+)+.",
        )
    expression = LineExpression(pattern if use_regex else re.escape(pattern), case_sensitive=case_sensitive)
    try:
        compiled(pattern if use_regex else expression.text)
        compiled(expression.text)
    except InvalidPattern as error:
        raise ToolError(
            "invalid_arguments",
            f"the pattern is no regular expression: {error}. For plain text set use_regex: false.",
        ) from None
    return expression


def _matches(expression: LineExpression, text: str, most: int, deadline: Deadline) -> Iterator[_Match]:
    """The first lines of a text that match."""
    if not text:
        return
    try:
        for number, match in enumerate(expression.matches(text, deadline.over)):
            if number == most:
                return
            yield _Match(*match)
    except PatternTimeout as error:
        raise ToolError("timeout", f"{error}.") from None


def _block(path: str, lines: Sequence[str], matches: Sequence[_Match], around: int) -> str:
    """The matches of one file with the lines around them; `--` stands where lines are left out."""
    columns = {match.line: match.column for match in matches}
    wanted = sorted(
        {
            line
            for match in matches
            for line in range(max(0, match.line - around), min(len(lines), match.line + around + 1))
        }
    )
    name, shown, before = shown_name(path), [], None
    for line in wanted:
        if before is not None and line > before + 1:
            shown.append("--")
        mark = ":" if line in columns else "-"
        shown.append(f"{name}{mark}{line + 1}{mark}{_cut(lines[line], columns.get(line, 0))}")
        before = line
    return "\n".join(shown)


def _cut(line: str, column: int) -> str:
    """A line, or of a long one the part around a match."""
    if len(line) <= LONGEST_LINE:
        return line
    start = max(0, min(column - LEAD, len(line) - LONGEST_LINE))
    end = start + LONGEST_LINE
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def grep_tool(settings: ToolSettings) -> Tool:
    """The tool, for the settings of a project."""
    spec = SPECS["grep"]
    return Tool(
        spec.name, partial(grep, settings), "query", blocking=True, description=spec.description,
        arguments=with_code_arguments(spec, denied=DENIED, secrets=SECRETS, decided=DECIDED),
    )  # fmt: skip
