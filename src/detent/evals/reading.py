"""Reads case files: every problem of every file at once, each with its line.

What a key of `input` means is for the player to know; here it is only seen to that the player knows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from detent.authoring.document import DATA_VALUES, decoded, read_document
from detent.authoring.problem import DocumentError, Place, Problem, in_order
from detent.evals.case import STEP, EvalTestCase
from detent.evals.expectations import Reader, expects_anything, read_expected
from detent.evals.plans import FAULTS, OK
from detent.evals.played import Player, artifacts_of, orchestrators_of
from detent.evals.references import resolve_case
from detent.kernel.errors import nearest

INPUT_KEYS: Mapping[str, type] = {
    "data": dict, "start_step": str, "steps": dict, "agent_replies": dict, "mock_function_responses": dict,
    "failures": dict,
}  # fmt: skip
"""Keys of `input` that mean the same everywhere, with their types; a player says which others it takes."""
ATTEMPTS = (*FAULTS, OK)
"""What one attempt at a function may be planned to come to."""
_TOP = (
    "scenario_id", "description", "category", "created", "tags", "orchestrators", "required", "deprecated",
    "input", "expected_output",
)  # fmt: skip
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A case file that cannot be played."""

    file: str
    scenario_id: str
    """Its stem, which is what its id should be."""
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Cases:
    """What a folder of case files holds."""

    cases: tuple[EvalTestCase, ...] = ()
    broken: tuple[BrokenFile, ...] = ()

    @property
    def problems(self) -> list[Problem]:
        """Everything wrong with any file."""
        return [problem for file in self.broken for problem in file.problems]

    def check(self) -> Cases:
        """The same, or `DocumentError` with every problem."""
        if self.broken:
            raise DocumentError("The folder of cases", self.problems)
        return self


def find_case_files(folder: Path, ignore: Collection[str] = ()) -> list[Path]:
    """The case files of a folder and those below it, sorted by path.

    Passed over: names beginning with `_` or `.`, names ending in `.example`, and the names in `ignore`.
    """
    found = []
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        if file.suffix not in _SUFFIXES or not file.is_file():
            continue
        if any(part.startswith(("_", ".")) for part in parts) or file.name in ignore:
            continue
        found.append(file)
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def read_cases(
    folder: Path, player: Player | None = None, *, ignore: Collection[str] = (), base: Path | None = None
) -> Cases:
    """Read every case of a folder. The player says which keys, modes and steps it knows; `base` shortens
    paths."""
    return read_files(find_case_files(folder, ignore), player, base=base or folder)


def read_files(files: Iterable[Path], player: Player | None = None, *, base: Path | None = None) -> Cases:
    """Read these case files."""
    cases: list[EvalTestCase] = []
    broken: list[BrokenFile] = []
    first: dict[str, str] = {}
    for file in files:
        shown = str(file.relative_to(base)) if base is not None and file.is_relative_to(base) else str(file)
        case, problems = _read_file(file, shown, player)
        if case is not None and case.scenario_id:
            other = first.setdefault(case.scenario_id, shown)
            if other != shown:
                message = f"'{case.scenario_id}' is already in {other}."
                problems.append(Problem("", message, case.place("scenario_id"), "scenario_id"))
        if case is not None and player is not None and not problems:
            case, wrong = resolve_case(case, player.contracts)
            problems += wrong
        if case is None or problems:
            broken.append(BrokenFile(shown, file.stem, tuple(in_order(problems))))
        else:
            cases.append(case)
    return Cases(tuple(cases), tuple(broken))


def _read_file(file: Path, shown: str, player: Player | None) -> tuple[EvalTestCase | None, list[Problem]]:
    try:
        raw = file.read_bytes()
    except OSError as error:
        return None, [Problem("", f"cannot be read: {error.strerror}.", Place(shown, 1))]
    case, problems = read_case(raw, player, shown=shown, stem=file.stem)
    return case and replace(case, source=file), problems


def read_case(
    raw: bytes | str, player: Player | None = None, *, shown: str = "", stem: str | None = None
) -> tuple[EvalTestCase | None, list[Problem]]:
    """The case a file stands for, and its problems; None when it is no case at all."""
    document = read_document(
        raw, shown, code="", most_values=DATA_VALUES, was_yaml_1_1=True, keys_as_written=True
    )
    document.log_warnings()
    if document.value is None and document.errors:
        return None, list(document.errors)
    reader = Reader(document)
    if not isinstance(document.value, Mapping):
        reader.problem((), "a case file holds scenario_id, description, category, …")
        return None, reader.problems
    top = reader.mapping(document.value, (), _TOP)
    scenario_id = reader.needed(top, "scenario_id")
    if scenario_id and stem is not None and scenario_id != stem:
        reader.problem(("scenario_id",), f"scenario_id is '{scenario_id}', the file's name says '{stem}'.")
    description, category = reader.needed(top, "description"), reader.needed(top, "category")
    if "expected_output" not in top:
        reader.problem((), "'expected_output' is missing.")
    said = top.get("expected_output")
    modes = orchestrators_of(player) if player is not None else (STEP,)
    artifacts = artifacts_of(player) if player is not None else ()
    expected = read_expected(reader, said, ("expected_output",), artifacts=artifacts, modes=modes)
    if isinstance(said, Mapping) and not expects_anything(said):
        reader.problem(("expected_output",), "a case needs at least one expectation.")
    required = reader.flag(top.get("required", False), ("required",))
    deprecated = reader.text(top.get("deprecated"), ("deprecated",))
    if required and deprecated is not None:
        reader.problem(("deprecated",), "a deprecated case does not count, so it cannot be required.")
    case = EvalTestCase(
        scenario_id or stem or "",
        description or "",
        category or "",
        input=_read_input(reader, top.get("input"), INPUT_KEYS if player is None else player.input_keys),
        expected_output=expected,
        created=reader.text(top.get("created"), ("created",)),
        tags=reader.texts(top.get("tags"), ("tags",)) or (),
        orchestrators=reader.modes(top.get("orchestrators"), ("orchestrators",), modes),
        required=bool(required),
        deprecated=deprecated,
        file=shown,
        path_comment=_comment(decoded(raw)),
        places={**document.places, **document.keys},
    )
    return case, reader.problems


def _comment(text: str) -> str:
    """The first comment of a file, when the file opens with one."""
    first = next((line.strip() for line in text.splitlines() if line.strip() not in ("", "---")), "")
    return first.lstrip("#").strip() if first.startswith("#") else ""


# -- input --------------------------------------------------------------------------------------------------


def _read_input(reader: Reader, value: Any, known: Collection[str]) -> Mapping[str, Any]:
    way = ("input",)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        reader.problem(way, "'input' takes named values.")
        return {}
    for key in value:
        if key in known:
            continue
        here = (*way, key)
        there = f"It understands: {', '.join(sorted(known)) or 'none'}."
        if key in INPUT_KEYS:
            reader.problem(here, f"'input.{key}' means nothing to what plays this suite. {there}")
        else:
            reader.problem(here, f"unknown key 'input.{key}'.{nearest(key, known) or ' ' + there}")
    _input_types(reader, value, {**INPUT_KEYS, **(known if isinstance(known, Mapping) else {})})
    return {key: item for key, item in value.items() if key in known and item is not None}


def _input_types(reader: Reader, value: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, kind in types.items():
        way = ("input", key)
        if kind is dict:
            reader.any_mapping(value.get(key), way)
        elif kind is str:
            reader.step(value.get(key), way)
        elif kind is list:
            reader.items(value.get(key), way)
        else:
            reader.texts(value.get(key), way)
    for key in ("steps", "agent_replies"):
        if isinstance(value.get(key), Mapping):
            for step in value[key]:
                reader.not_bare(("input", key, step))
    planned = value["failures"] if isinstance(value.get("failures"), Mapping) else {}
    for function in planned:
        here = ("input", "failures", function)
        for index, word in enumerate(reader.texts(planned[function], here) or ()):
            if word not in ATTEMPTS:
                choices = f"{nearest(word, ATTEMPTS)} It takes: {', '.join(ATTEMPTS)}."
                reader.problem((*here, index), f"there is no fault '{word}'.{choices}")
