"""Reads case files and reports every problem of every file at once, with its line.

The format is declared in `case`; the rules between its keys are here. The player declares the keys of `input`
and the artifacts that a case may have expectations about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from detent.authoring import model
from detent.authoring.document import DATA_VALUES, below, core, decoded, file_bytes, path_of, read_document
from detent.authoring.model import ModelReader, Written
from detent.authoring.problem import DocumentError, Place, Problem, in_order
from detent.evals.artifacts import Artifacts
from detent.evals.case import (
    FLAG,
    MAPPING,
    STEP,
    TEXT,
    TEXTS,
    EvalTestCase,
    ExpectedFallback,
    ExpectedFunctionCall,
    ExpectedIntake,
    ExpectedOutput,
    ExpectedStepExecution,
    Texts,
)
from detent.evals.plans import FAULTS, OK
from detent.evals.played import Player, artifacts_of, orchestrators_of
from detent.evals.references import resolve_case
from detent.kernel.errors import nearest

INPUT_KEYS: Mapping[str, type] = {
    "data": dict, "start_step": str, "steps": dict, "agent_replies": dict, "mock_function_responses": dict,
    "failures": dict,
}  # fmt: skip
"""Keys of `input` that mean the same in every suite, with their types; a player declares its further ones."""
ATTEMPTS = (*FAULTS, OK)
"""Words for the planned result of one attempt at a function."""
STEP_ONLY = ("expected_steps", "forbidden_steps", "fallbacks", "allow_missing")
"""Expectations about a path; not allowed under a mode without steps."""
_VALUES: Mapping[type, Any] = {
    bool: Annotated[bool, Written(FLAG, "")], dict: Annotated[dict, Written(MAPPING, "")],
    str: Annotated[str, Written(TEXT, "")], list: Annotated[list, Written("a list", "")],
    tuple: Annotated[Any, Written(TEXTS, "", Texts)], object: Annotated[Any, Written("a value", "")],
}  # fmt: skip
"""Types of the keys that players declare."""
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A case file that cannot be played."""

    file: str
    scenario_id: str
    """The stem of its file name, which its id should equal."""
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Cases:
    """The case files of a folder, read."""

    cases: tuple[EvalTestCase, ...] = ()
    broken: tuple[BrokenFile, ...] = ()

    @property
    def problems(self) -> list[Problem]:
        """The problems of all files."""
        return [problem for file in self.broken for problem in file.problems]

    def check(self) -> Cases:
        """The same cases.

        Raises:
            DocumentError: some file cannot be played; it lists every problem.
        """
        if self.broken:
            raise DocumentError("The folder of cases", self.problems)
        return self


def find_case_files(folder: Path, ignore: Collection[str] = ()) -> list[Path]:
    """The case files of a folder and its subfolders, sorted by path.

    Skipped: names beginning with `_` or `.`, names ending in `.example`, and the names in `ignore`.
    """
    files = []
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        if file.suffix not in _SUFFIXES or not file.is_file():
            continue
        if any(part.startswith(("_", ".")) for part in parts) or file.name in ignore:
            continue
        files.append(file)
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def read_cases(
    folder: Path, player: Player | None = None, *, ignore: Collection[str] = (), base: Path | None = None
) -> Cases:
    """Read every case of a folder. The player declares which keys, modes and steps it knows; paths are
    shown relative to `base`."""
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
        raw = file_bytes(file)
    except OSError as error:
        return None, [Problem("", f"cannot be read: {error.strerror}.", Place(shown, 1))]
    case, problems = read_case(raw, player, shown=shown, stem=file.stem)
    return case and replace(case, source=file), problems


def read_case(
    raw: bytes | str, player: Player | None = None, *, shown: str = "", stem: str | None = None
) -> tuple[EvalTestCase | None, list[Problem]]:
    """The case in a file, and its problems; None when the file is not a case at all."""
    document = read_document(
        raw, shown, code="", most_values=DATA_VALUES, was_yaml_1_1=True, keys_as_written=True
    )
    document.log_warnings()
    if document.value is None and document.errors:
        return None, list(document.errors)
    reader = _Reader(document, "")
    reader.problems += document.errors
    if not isinstance(document.value, Mapping):
        reader.wrong("", "", "a case file holds scenario_id, description, category, …")
        return None, reader.problems
    return reader.case(document.value, player, shown, stem, _comment(decoded(raw))), reader.problems


def _comment(text: str) -> str:
    """The first comment of a file, when the file opens with one."""
    first = next((line.strip() for line in text.splitlines() if line.strip() not in ("", "---")), "")
    return first.lstrip("#").strip() if first.startswith("#") else ""


@cache
def _expectations(artifacts: tuple[Artifacts, ...], modes: tuple[str, ...], steps: bool) -> Any:
    """The keys of `expected_output`, with those of the artifacts and of the modes other than `step`."""
    keys = get_type_hints(ExpectedOutput, include_extras=True)
    keys = {key: hint for key, hint in keys.items() if steps or key not in STEP_ONLY}
    keys |= {key: _VALUES[kind] for artifact in artifacts for key, kind in artifact.keys.items()}
    keys |= {mode: _VALUES[dict] for mode in modes if steps and mode != STEP}
    return make_dataclass("ExpectedOutput", keys.items())


class _Reader(ModelReader):
    """Reads one case file."""

    at_keys = True

    def case(
        self, written: Mapping[str, Any], player: Player | None, shown: str, stem: str | None, comment: str
    ) -> EvalTestCase:
        """The case, as far as the file is usable."""
        values = self.fields(EvalTestCase, written, "", "a case")
        scenario_id = values.get("scenario_id")
        if scenario_id and stem is not None and scenario_id != stem:
            self.wrong("", "scenario_id", f"scenario_id is '{scenario_id}', the file's name says '{stem}'.")
        modes = orchestrators_of(player) if player is not None else (STEP,)
        artifacts = tuple(artifacts_of(player)) if player is not None else ()
        expected = values.pop("expected_output", None)
        if "expected_output" not in written:
            self.wrong("", "", "'expected_output' is missing.")
        elif expected is not None and not any(
            value is not None for key, value in expected.items() if key != "allow_missing"
        ):
            self.wrong("", "expected_output", "a case needs at least one expectation.")
        if values.get("required") and "deprecated" in values:
            message = "a deprecated case does not count, so it cannot be required."
            self.wrong("", "deprecated", message)
        self.modes(values, modes)
        tags = texts(values.pop("tags", ()))
        values = {"scenario_id": stem or "", "description": "", "category": "", **values}
        return EvalTestCase(
            **values | {"input": self.input(values.get("input", {}), player)},
            tags=tags,
            expected_output=self.expected(expected or {}, "expected_output", artifacts, modes),
            file=shown,
            path_comment=comment,
            places={**self.document.places, **self.document.keys},
        )

    def modes(self, values: dict[str, Any], known: tuple[str, ...]) -> None:
        """Check that the player has the modes the case holds for."""
        if "orchestrators" not in values:
            return
        values["orchestrators"] = texts(values["orchestrators"])
        for index, mode in enumerate(values["orchestrators"]):
            if mode not in known:
                choices = f"{nearest(mode, known)} There are: {', '.join(known)}."
                self.wrong("", f"orchestrators[{index}]", f"there is no orchestrator '{mode}'.{choices}")
        if not values["orchestrators"]:
            self.wrong("", "orchestrators", "'orchestrators' is empty, so the case would never be played.")

    def input(self, mapping: Mapping[str, Any], player: Player | None) -> Mapping[str, Any]:
        """Read the input, by the keys its player declares."""
        known = INPUT_KEYS if player is None else player.input_keys
        types = {**INPUT_KEYS, **(known if isinstance(known, Mapping) else {})}
        keys = {key: _VALUES[types.get(key, object)] for key in sorted(known)}
        values = self.fields(make_dataclass("Input", keys.items()), mapping, "input", "this suite's input")
        for key in ("steps", "agent_replies"):
            for step in mapping[key] if isinstance(mapping.get(key), Mapping) else ():
                path = path_of("input", key, step)
                written = self.document.bare_key(path)
                if written is not None and not isinstance(core(written), str):
                    message = f'{written} is a number to YAML; quote the step: "{written}".'
                    self.wrong("", path, message)
        failures = mapping.get("failures")
        for function, attempts in failures.items() if isinstance(failures, Mapping) else ():
            self.attempts(attempts, path_of("input", "failures", function))
        return values

    def attempts(self, words: Any, path: str) -> None:
        """Check the planned results of the attempts at a function."""
        for index, word in enumerate(texts(words)):
            if not isinstance(word, str):
                place = f"{path}[{index}]" if isinstance(words, list) else path
                self.wrong("", place, f"'{path}' is {TEXTS}.")
            elif word not in ATTEMPTS:
                choices = f"{nearest(word, ATTEMPTS)} It takes: {', '.join(ATTEMPTS)}."
                self.wrong("", f"{path}[{index}]", f"there is no fault '{word}'.{choices}")

    def expected(
        self,
        written: Mapping[str, Any],
        path: str,
        artifacts: tuple[Artifacts, ...],
        modes: tuple[str, ...],
        steps: bool = True,
    ) -> ExpectedOutput:
        """What a case expects: of its run, of the artifacts, and what differs in a mode other than `step`."""
        values = self.fields(_expectations(artifacts, modes, steps), written, path, f"'{path}'")
        others = {mode: values.pop(mode) for mode in modes if steps and mode in values and mode != STEP}
        left = {
            key: texts(values.pop(key)) if kind is tuple else values.pop(key)
            for artifact in artifacts
            for key, kind in artifact.keys.items()
            if key in values
        }
        for key, read in (
            ("expected_steps", self.expected_step),
            ("expected_function_calls", self.expected_call),
            ("fallbacks", self.expected_fallback),
        ):
            if key in values:
                items = [read(item, f"{path}.{key}[{index}]") for index, item in enumerate(values[key])]
                values[key] = tuple(item for item in items if item is not None)
        if "intake" in values:
            intake = self.fields(ExpectedIntake, values["intake"], f"{path}.intake", "an expected intake")
            values["intake"] = ExpectedIntake(**{"decision": "", **intake})
        for key in ("flags", "forbidden_steps", "forbidden_calls", "allow_missing"):
            if key in values:
                values[key] = texts(values[key])
        return ExpectedOutput(
            **values,
            artifacts=left,
            modes={
                mode: self.expected(other, f"{path}.{mode}", artifacts, modes, steps=False)
                for mode, other in others.items()
            },
        )

    def expected_step(self, written: Any, path: str) -> ExpectedStepExecution | None:
        """One step of the path."""
        values = self.item(ExpectedStepExecution, written, path, "an expected step", "step_name")
        if values is None:
            return None
        for key in ("function_call", "fallback"):
            if isinstance(written, Mapping) and key in written and written[key] is None:
                values[key] = None
        call, args = values.get("function_call"), values.get("function_args")
        if isinstance(call, list):
            call = values["function_call"] = texts(call) or None
        if args is not None and isinstance(call, tuple):
            self.args_by_function(args, call, f"{path}.function_args")
        elif args is not None and "function_call" in values and call is None:
            message = "a step that calls no function has no function_args."
            self.wrong("", f"{path}.function_args", message)
        for key in ("output_contains", "output_excludes"):
            if key in values:
                values[key] = texts(values[key])
        return ExpectedStepExecution(**{"step_name": "", **values})

    def args_by_function(self, args: Mapping[str, Any], functions: tuple[str, ...], path: str) -> None:
        """Check arguments by function, which is how they are written for several functions."""
        for key, value in args.items():
            if key not in functions:
                message = (
                    f"with several functions, function_args is keyed by function name; '{key}' is none of "
                )
                self.wrong("", below(path, key), f"{message}them: {', '.join(functions)}.")
            elif value is not None and not isinstance(value, Mapping):
                self.wrong("", below(path, key), f"'{below(path, key)}' is {MAPPING}.")

    def expected_call(self, written: Any, path: str) -> ExpectedFunctionCall | None:
        """One call."""
        values = self.item(ExpectedFunctionCall, written, path, "an expected call", "function_name")
        if values is None:
            return None
        if "arguments_contain" in values:
            by_argument = values["arguments_contain"].items()
            values["arguments_contain"] = {key: texts(value or ()) for key, value in by_argument}
        values["body_contains"] = texts(values.get("body_contains", ()))
        return ExpectedFunctionCall(**{"function_name": "", **values})

    def expected_fallback(self, written: Any, path: str) -> ExpectedFallback | None:
        """One fallback."""
        values = self.item(ExpectedFallback, written, path, "an expected fallback")
        return None if values is None else ExpectedFallback(**{"step": "", **values})


def texts(value: Any) -> tuple[Any, ...]:
    """The items of a list that have a value; any other value stands for a list of one item."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(item for item in items if item is not None)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of case files, for editors. Players add keys to `input` and `expected_output`."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    schema = {"$schema": dialect, "title": "Detent eval case", **model.json_schema(EvalTestCase)}
    expected = {**model.json_schema(ExpectedOutput), "additionalProperties": True}
    for key, of, name in (
        ("expected_steps", ExpectedStepExecution, True),
        ("expected_function_calls", ExpectedFunctionCall, True),
        ("fallbacks", ExpectedFallback, False),
    ):
        item = model.json_schema(of)
        items = {"anyOf": [{"type": "string"}, item]} if name else item
        expected["properties"][key]["anyOf"][0]["items"] = items
    expected["properties"]["intake"]["anyOf"][0] = model.json_schema(ExpectedIntake)
    schema["properties"]["expected_output"] = expected
    schema["required"].append("expected_output")
    return schema
