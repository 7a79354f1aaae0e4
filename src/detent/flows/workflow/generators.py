"""The built-in generators, each with a handler that writes the text without a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from detent.flows.workflow.domain.commit_words import body_of
from detent.flows.workflow.domain.diffs import FileChange, changes_of
from detent.flows.workflow.registry import generator
from detent.insight.formatting import count

NOTHING: list[Any] = []
MOST_FILES = 30
"""Files named in a summary, those that changed most first; the rest are counted."""

_SUBJECT = re.compile(r"(?P<kind>[a-z]+)(?:\((?P<scope>[^()]*)\))?(?P<breaking>!)?: (?P<what>.+)", re.DOTALL)
_HEADINGS = {
    "breaking": "Breaking changes", "feat": "New", "fix": "Fixed", "perf": "Faster", "docs": "Documentation",
    "revert": "Taken back", "other": "Other changes",
}  # fmt: skip


@generator(
    "change_summary",
    intent="Say in a few plain words and lists what a range of commits changed, for those who read it later.",
)
def change_summary(commits: list[Any] = NOTHING, files: list[Any] = NOTHING) -> str:
    """How much changed, what the commits say, and which files changed most."""
    subjects = [_subject(one) for one in commits]
    changes = changes_of(files, "")
    added, removed = (sum(getattr(one, name) or 0 for one in changes) for name in ("added", "removed"))
    if not subjects and not changes:
        return "Nothing changed."
    lines = [
        f"{count(len(subjects), 'commit')}, {count(len(changes), 'file')} changed: "
        f"{count(added, 'line')} added, {count(removed, 'line')} removed."
    ]
    if subjects:
        lines += ["", "Commits:", *(f"- {subject}" for subject in subjects)]
    if changes:
        most = sorted(changes, key=lambda one: (-(one.added or 0) - (one.removed or 0), one.path))
        lines += ["", "Files:", body_of(most[:MOST_FILES])]
        if len(most) > MOST_FILES:
            lines.append(f"- and {count(len(most) - MOST_FILES, 'more file')}")
    return "\n".join(lines)


@generator(
    "commit_body",
    intent="Explain what a change does, as the body of a commit message for whoever reads the history.",
)
def commit_body(files: list[Any] = NOTHING, diff: str = "") -> str:
    """A line per file with its counts, and what functions and classes came or went."""
    changes = changes_of(files, diff)
    if not changes:
        return ""
    body = body_of(changes)
    notes = [note for one in changes for note in _notes(one)]
    return f"{body}\n\n" + "\n".join(notes) if notes else body


def _notes(change: FileChange) -> list[str]:
    notes = []
    if change.change == "changed" and change.brings:
        notes.append(f"{change.path} brings {', '.join(change.brings[:8])}.")
    if change.change == "changed" and change.takes:
        notes.append(f"{change.path} loses {', '.join(change.takes[:8])}.")
    return notes


@generator(
    "release_notes",
    intent="Tell the users of a program what a release brings, sorted by what matters to them most.",
)
def release_notes(commits: list[Any] = NOTHING, version: str = "", date: str = "") -> str:
    """Commits by kind under headings: what breaks, what is new, what is fixed; housekeeping is left out."""
    sorted_out: dict[str, list[str]] = {name: [] for name in _HEADINGS}
    left_out = 0
    for commit in commits:
        subject = _subject(commit)
        found = _SUBJECT.fullmatch(subject)
        if found is None:
            sorted_out["other"].append(_sentence(subject))
            continue
        kind = "breaking" if found["breaking"] else found["kind"]
        said = _sentence(found["what"])
        if kind in sorted_out:
            sorted_out[kind].append(f"**{found['scope']}**: {said}" if found["scope"] else said)
        else:
            left_out += 1
    title = " ".join(
        part for part in (f"# {version}" if version else "# Changes", f"({date})" if date else "") if part
    )
    lines = [title]
    for name, said_of_it in sorted_out.items():
        if said_of_it:
            lines += ["", f"## {_HEADINGS[name]}", "", *(f"- {one}" for one in dict.fromkeys(said_of_it))]
    if left_out:
        lines += ["", f"And {count(left_out, 'change')} behind the scenes."]
    if len(lines) == 1:
        lines += ["", "Nothing changed for users."]
    return "\n".join(lines)


def _subject(commit: Any) -> str:
    subject = commit.get("subject", "") if isinstance(commit, Mapping) else commit
    return " ".join(str(subject).split()) or "(no subject)"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
