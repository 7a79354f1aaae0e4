"""Skills: folders with instructions for a kind of work, which an assistant reads when it needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detent.authoring.document import decoded, file_bytes, read_document
from detent.engine.tools import Tool, ToolError
from detent.kernel.errors import ConfigurationError, nearest

FILE = "SKILL.md"
LONGEST = 100_000
"""Bytes of one skill's file."""
MARKER = "---"


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill."""

    name: str
    description: str
    text: str


class Skills:
    """The skills that a person has configured."""

    def __init__(self, skills: Iterable[Skill] = ()) -> None:
        self._skills = {skill.name: skill for skill in skills}

    @classmethod
    def read(cls, folders: Sequence[Path]) -> Skills:
        """The skills in folders: each is a skill, or has skills as its folders.

        Raises:
            ConfigurationError: a folder is missing, has no skill, or a skill cannot be read.
        """
        skills: list[Skill] = []
        for folder in folders:
            if not folder.is_dir():
                raise ConfigurationError(f"There is no folder {folder}, named under coding.skills.")
            files = [folder / FILE] if (folder / FILE).is_file() else sorted(folder.glob(f"*/{FILE}"))
            if not files:
                raise ConfigurationError(f"{folder}, named under coding.skills, has no {FILE}.")
            skills += map(read_skill, files)
        for skill in skills:
            if sum(other.name == skill.name for other in skills) > 1:
                raise ConfigurationError(f"Two skills are named '{skill.name}'. Rename one of them.")
        return cls(skills)

    def listing(self) -> str:
        """What the assistant's instructions say about them."""
        if not self._skills:
            return ""
        lines = [f"- {skill.name}: {skill.description}" for skill in self._skills.values()]
        return "\n".join(
            ["Skills, each with instructions that `skill` returns; read one before you need it:", *lines]
        )

    def tools(self) -> list[Tool]:
        """The tool that returns the instructions of a skill."""
        if not self._skills:
            return []
        names = list(self._skills)
        arguments = {
            "type": "object", "required": ["name"], "additionalProperties": False,
            "properties": {"name": {"type": "string", "enum": names, "description": "The skill."}},
        }  # fmt: skip

        def skill(name: str) -> Mapping[str, Any]:
            found = self._skills.get(name)
            if found is None:
                raise ToolError("not_found", f"There is no skill '{name}'.{nearest(name, names)}")
            return {"content": found.text, "truncated": False}

        return [
            Tool("skill", skill, "query", arguments=arguments, blocking=False,
                 description="Returns the instructions of a skill."),
        ]  # fmt: skip


def read_skill(file: Path) -> Skill:
    """The skill in a file: front matter with `name` and `description`, then the instructions.

    Raises:
        ConfigurationError: the file cannot be read, or says no name or description.
    """
    raw = file_bytes(file, LONGEST + 1)
    if len(raw) > LONGEST:
        raise ConfigurationError(f"{file} is larger than {LONGEST:,} bytes.")
    try:
        text = decoded(raw)
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not UTF-8.") from None
    head, closed, body = text.removeprefix(f"{MARKER}\n").partition(f"\n{MARKER}\n")
    if not text.startswith(f"{MARKER}\n") or not closed:
        raise ConfigurationError(
            f"{file} has no front matter: `name` and `description` between two lines '---'."
        )
    document = read_document(head, str(file))
    if document.errors:
        raise ConfigurationError(str(document.errors[0]))
    values = document.value if isinstance(document.value, Mapping) else {}
    name, description = values.get("name"), values.get("description")
    for key, value in (("name", name), ("description", description)):
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"{file} says no `{key}` in its front matter.")
    return Skill(str(name).strip(), " ".join(str(description).split()), body.strip())
