"""The bank of a step: sentences that a person has approved for it, in one language, each for one state.

Belongs here: the format of `sentences/<step>.<language>.yaml` and its reading. Does not: what of it may be
said in a run (`composition`), and whether it fits the step (`sentence_checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from detent.authoring import model
from detent.authoring.document import below, file_bytes, read_document
from detent.authoring.model import Pattern, Written
from detent.authoring.problem import Place, Problem
from detent.flows.playbook.condition_reading import ConditionReader
from detent.flows.playbook.instruction import BAD_PROSE

SUFFIX = ".yaml"
GREETINGS = ("formal", "by_name", "plain")

_Text = Annotated[str, Pattern(r"\S")]
_Id = Annotated[str, Pattern(r"^[a-z0-9]+(?:-[a-z0-9]+)*$")]
_ID = "lower-case letters, digits and hyphens"
_Day = Annotated[str, Pattern(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]

# fmt: off


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with slots, approved for one state."""

    id: Annotated[str, Written(_ID, "Its name, by which agents choose it.", _Id, required=True)]
    text: Annotated[str, Written("text", "The sentence; `{{key}}` inserts a fact of the step.", _Text,
        required=True)]
    approved_by: Annotated[str, Written("a name", "Who approved it.", _Text, required=True)]
    approved_at: Annotated[str, Written("a day, such as 2026-03-10", "When.", _Day, required=True)]
    group: Annotated[str | None, Written(_ID,
        "At most one sentence of a group is used.", _Id)] = None
    when: Annotated[Mapping[str, Any] | None, Written("a mapping of dotted keys, such as {status: open}",
        "The state it was approved for: a condition on the data; left out: any.", Any)] = None
    required: Annotated[bool, Written("true or false",
        "Whether it is used also where an agent names none of its group.")] = False
    paragraph: Annotated[bool, Written("true or false", "Whether it begins a paragraph.")] = False
    index: int = 0
    """Its place in the list."""


@dataclass(frozen=True, slots=True)
class Greetings:
    """The ways to begin."""

    formal: Annotated[str | None, Written("text", "For everyone.", _Text)] = None
    by_name: Annotated[str | None, Written("text", "With the customer's name.", _Text)] = None
    plain: Annotated[str | None, Written("text", "The usual one.", _Text)] = None


@dataclass(frozen=True, slots=True)
class Bank:
    """The content of one file."""

    sentences: Annotated[tuple[Sentence, ...], Written("a list of sentences",
        "In the order in which they are said.", list, required=True)]
    greeting: Annotated[Mapping[str, str], Written("a mapping of formal, by_name and plain to texts",
        "How the text may begin.", dict)] = field(default_factory=dict)
    closing: Annotated[str, Written("text", "How the text ends.", _Text)] = ""
    # fmt: on
    step: str = ""
    language: str = ""
    path: Path = field(default_factory=Path)
    places: Mapping[str, Place] = field(default_factory=dict)
    """Places of the sentences' values, by path: `sentences[0].text`."""

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every text of the file with its path."""
        yield from ((f"greeting.{kind}", text) for kind, text in self.greeting.items())
        if self.closing:
            yield "closing", self.closing
        yield from ((f"sentences[{item.index}].text", item.text) for item in self.sentences)


class Read(NamedTuple):
    """The result of reading a file."""

    bank: Bank | None
    problems: list[Problem]


class BankFile(NamedTuple):
    """A bank's file by its two names."""

    step: str
    language: str
    path: Path


def bank_files(folders: Iterable[Path]) -> list[BankFile]:
    """The files of a playbook's folders, each from the strongest folder, which is the last."""
    files: dict[tuple[str, str], BankFile] = {}
    for folder in folders:
        for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
            step, _, language = path.name.removesuffix(SUFFIX).rpartition(".")
            files[step, language] = BankFile(step, language, path)
    return list(files.values())


def read_bank(file: BankFile, shown: str) -> Read:
    """Read a bank; every problem has its place."""
    if not file.step:
        name = "a file of sentences is named <step>.<language>.yaml."
        return Read(None, [Problem(BAD_PROSE, name, Place(shown, 1))])
    bank, problems = _read(file_bytes(file.path), file, shown)
    return Read(bank, [*problems])


@lru_cache(maxsize=256)
def _read(raw: bytes, file: BankFile, shown: str) -> Read:
    """The same for the content of a file: every flow made of a playbook reads its banks."""
    document = read_document(raw, shown, code="P03")
    if document.errors:
        return Read(None, list(document.problems))
    if not isinstance(document.value, dict):
        message = "a file of sentences has `sentences`, and may have `greeting` and `closing`."
        return Read(None, [Problem("P06", message, Place(shown, 1))])
    reader = _Reader(document, "P06", unknown="P05", missing="P04")
    bank = reader.bank(document.value)
    places = {**document.places, **document.keys}
    bank = replace(bank, step=file.step, language=file.language, path=file.path, places=places)
    return Read(bank, [*document.problems, *reader.problems])


class _Reader(ConditionReader):
    """Reads one file."""

    def bank(self, content: Mapping[str, Any]) -> Bank:
        values = self.fields(Bank, content, "", "a file of sentences")
        greeting = self.fields(Greetings, values.get("greeting", {}), "greeting", "'greeting'")
        items = [
            self.sentence(item, index)
            for index, item in enumerate(content.get("sentences") or ())
            if "sentences" in values
        ]
        usable = tuple(item for item in items if item is not None)
        begin = {kind: text.strip() for kind, text in greeting.items()}
        return Bank(usable, begin, values.get("closing", "").strip())

    def sentence(self, written: Any, index: int) -> Sentence | None:
        path, before = f"sentences[{index}]", len(self.problems)
        values = self.item(Sentence, written, path, "a sentence")
        if values is None:
            return None
        if "when" in values:
            values["when"] = self.condition(values["when"], below(path, "when"))
        if len(self.problems) > before:
            return None
        return Sentence(**{**values, "text": " ".join(values["text"].split()), "index": index})


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a file of sentences, for editors."""
    schema = model.json_schema(Bank)
    schema["properties"]["sentences"]["items"] = model.json_schema(Sentence)
    schema["properties"]["greeting"]["anyOf"][0] |= model.json_schema(Greetings)
    return {"title": "Detent bank of sentences", **schema}
