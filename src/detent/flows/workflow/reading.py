"""Reads the bytes of a workflow file into a `WorkflowSpec`: keys, types and names, each with its place.

`spec` declares the format; this module holds the rules between its keys. `checks` does the checks that need
the registry, other files or expressions. All problems are reported at once.

Decisions where the format leaves room: a key without a value (`kwargs:`) is a key left out. A step switched
off with `when: false` is fine. Steps that can never run are mistakes: options after an else, `on_failure`
with `retry: 0`, the body of a loop over `[]`.
"""

from __future__ import annotations

import errno
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from detent.authoring.document import Document, below, file_bytes, read_document
from detent.authoring.model import ModelReader, kind_of
from detent.authoring.problem import Place, Problem, either
from detent.dispatch.config import FIELDS, PROMPT_BYTES, UNSAID, StepConfig, StepConfigError
from detent.engine import logger
from detent.flows.workflow.spec import (
    INPUT_NAME,
    RESERVED,
    STEPS,
    VERSION,
    CheckpointStep,
    InputSpec,
    Option,
    StepSpec,
    WorkflowSpec,
)
from detent.flows.workflow.step_type import StepType
from detent.kernel.errors import ConfigurationError

OLD_CONFIG = "executor_config"
"""Deprecated name of `config`."""
KINDS = tuple(kind.value for kind in StepType)
_BESIDE = ("type", "config", OLD_CONFIG)
"""Keys of a step that are not fields of its kind."""
_INNER = ("options", "steps", "on_failure")
"""Keys of a step that hold steps; the parts of these steps have places of their own."""

MEANT = re.compile(r" Did you mean '([^']*)'\?")
"""Suggestion in a message of the kernel; a `Problem` keeps it apart from the message."""


class Read(NamedTuple):
    """Result of reading a file."""

    spec: WorkflowSpec | None
    """None if the file has an error."""
    problems: tuple[Problem, ...]
    partial: WorkflowSpec | None = None
    """The readable part of the file, to be checked but never run. None if not even its keys could be read."""
    doubtful: frozenset[str] = frozenset()
    """Paths of steps with an unreadable part."""


def read_workflow(raw: bytes, file: str, *, folder: Path | None = None) -> Read:
    """Read a workflow file, called `file` in messages.

    Relative paths in it start from `folder`, by default the folder of `file`.
    """
    document = read_document(raw, file)
    reader = _Reader(document, (folder or Path(file).parent).absolute())
    reader.problems += document.problems
    partial = None
    if document.value is None:
        if not document.problems:
            message = 'The file is empty. A workflow begins with `version: "1.0"`, a name and steps.'
            reader.wrong("E010", "", message)
    elif not isinstance(document.value, dict):
        reader.wrong("E010", "", "A workflow is a mapping: version, name, steps and so on.")
    else:
        partial = reader.workflow(document.value)
    broken = any(problem.severity == "error" for problem in reader.problems)
    return Read(None if broken else partial, tuple(reader.problems), partial, frozenset(reader.doubtful))


def read_prompt(path: Path) -> str:
    """Return the text of a prompt file.

    Raises:
        OSError: the path is not a file, or the file is too large.
    """
    data = file_bytes(path, PROMPT_BYTES + 1)
    if len(data) > PROMPT_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {PROMPT_BYTES} bytes")
    return data.decode("utf-8")


class _Reader(ModelReader):
    """Reads one workflow file."""

    def __init__(self, document: Document, folder: Path) -> None:
        super().__init__(document, "E010")
        self.folder = folder
        self.doubtful: set[str] = set()
        self.names: dict[str, Place] = {}
        self.inside: list[str] = []
        """Paths of the steps being read, the innermost last."""

    def wrong(
        self,
        code: str,
        path: str,
        message: str,
        suggestions: tuple[str, ...] = (),
        place: Place | None = None,
    ) -> None:
        """Note a problem, and mark the enclosing step as doubtful."""
        super().wrong(code, path, message, suggestions, place)
        if self.inside:
            self.doubtful.add(self.inside[-1])

    # -- the file -------------------------------------------------------------------------------------------

    def workflow(self, written: dict[str, Any]) -> WorkflowSpec:
        """Read the top level of the file, as far as it is usable."""
        values = self.fields(WorkflowSpec, written, "", "a workflow")
        version = values.pop("version", VERSION)
        if version != VERSION:
            message = f"version '{version[:20]}' is not supported; this program reads version \"{VERSION}\"."
            self.wrong("E023", "version", message, (VERSION,))
        values["inputs"] = {
            name: self.input(name, declared) for name, declared in values.get("inputs", {}).items()
        }
        values["steps"] = self.steps(values.get("steps"), "steps", "a workflow")
        parts = {key: value for key, value in written.items() if key != "steps"}
        return WorkflowSpec(
            **{"name": "", **values},
            place=Place(*self.document.place("name" if "name" in written else "")),
            places=dict(self.parts(parts, "", "")),
            source=written,
        )

    def parts(self, value: Any, path: str, prefix: str) -> Iterator[tuple[str, Place]]:
        """Places of the parts of a value, by their paths relative to it."""
        items: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list):
            items = enumerate(value)
        for part, inner in items:
            item_path, relative = below(path, part), below(prefix, part)
            yield relative, self.document.place(item_path)
            if isinstance(inner, dict | list):
                yield from self.parts(inner, item_path, relative)

    def input(self, name: str, declared: Any) -> InputSpec:
        """One declared input."""
        path = below("inputs", name)
        if not re.fullmatch(INPUT_NAME, name):
            message = "an input is named with small letters, digits and '_', no digit first."
            self.wrong("E010", path, message, place=self.document.key_place(path))
        if not isinstance(declared, dict):
            message = (
                f"an input must be a mapping, such as `{{type: string}}`, but this is {kind_of(declared)}."
            )
            self.wrong("E010", path, message)
            declared = {"type": "string"}
        values = self.fields(InputSpec, declared, path, "an input")
        has_default, enum = "default" in declared, values.pop("enum", None)
        if values.get("required") and has_default:
            message = f"input '{name}' is required, so its default is never used. Leave out one of them."
            self.wrong("E012", below(path, "default"), message)
        if enum == []:
            self.wrong("E010", below(path, "enum"), "'enum' is empty: no value would be right.")
        if values.get("secret") and (has_default or enum is not None):
            part = "default" if has_default else "enum"
            message = f"a secret comes from the environment; its {part} must not be in a file."
            self.wrong("E010", below(path, part), message)
        values = {
            "type": "string",
            "required": not has_default,
            **values,
            "enum": tuple(enum) if enum else None,
        }
        place = Place(*self.document.key_place(path))
        return InputSpec(name=name, place=place, has_default=has_default, **values)

    # -- steps ----------------------------------------------------------------------------------------------

    def steps(self, written: list[Any] | None, path: str, of: str) -> tuple[StepSpec, ...]:
        """A list of steps."""
        if written == []:
            self.wrong("E026", path, f"{of} has no steps. Give it at least one.")
        steps = [self.step(item, below(path, index)) for index, item in enumerate(written or ())]
        return tuple(step for step in steps if step is not None)

    def step(self, written: Any, path: str) -> StepSpec | None:
        """One step of any kind."""
        if not isinstance(written, dict):
            message = f"a step must be a mapping with name and type, but this is {kind_of(written)}."
            self.wrong("E010", path, message)
            return None
        self.inside.append(path)
        try:
            return self._step(written, path)
        finally:
            self.inside.pop()

    def _step(self, written: dict[str, Any], path: str) -> StepSpec:
        kind = written.get("type")
        places = dict(self.parts({key: written[key] for key in written if key not in _INNER}, path, ""))
        places |= {key: self.document.place(below(path, key)) for key in _INNER if key in written}
        common: dict[str, Any] = {
            "place": Place(*self.document.place(below(path, "name") if "name" in written else path)),
            "path": path,
            "config": self.config(written, path),
            "places": places,
        }
        if kind not in KINDS:  # keep its name, so that references to it are not reported as well
            needs = kind is None
            message = f"a step needs 'type': {either(KINDS)}." if needs else f"'type' is {either(KINDS)}."
            self.wrong("E010", below(path, "type"), message, self.nearest.of(kind, KINDS))
            shared = {key: written[key] for key in written if key == "name"}
            values = self.fields(CheckpointStep, shared, path, "a step", _BESIDE)
            return CheckpointStep(**common, name=self.named(values, path))
        of = f"{'an' if kind == 'agent' else 'a'} {kind} step"
        values = self.fields(STEPS[StepType(kind)], written, path, of, _BESIDE)
        values["name"] = self.named(values, path)
        if isinstance(values.get("output_schema"), dict):
            self.schema(values, path)
        if kind in _RULES:
            _RULES[kind](self, values, written, path, places)
        for key in _TUPLES:
            if isinstance(values.get(key), list):
                values[key] = tuple(values[key])
        spec: StepSpec = STEPS[StepType(kind)](**common, **values)
        return spec

    def named(self, values: Mapping[str, Any], path: str) -> str:
        """The step's name; E009 if it is reserved or another step has it."""
        name, name_path = str(values.get("name", "")), below(path, "name")
        if name in RESERVED:
            message = f"'{name}' is the name of a state every workflow has. Give the step another name."
            self.wrong("E009", name_path, message)
        elif name in self.names:
            line = self.names[name].line
            message = f"two steps are named '{name}'; the other is on line {line}. Step names must be unique."
            self.wrong("E009", name_path, message)
        elif name:
            self.names[name] = self.document.place(name_path)
        return name

    def config(self, step: Mapping[str, Any], path: str) -> StepConfig:
        """Read the `config` of a step."""
        key = "config"
        if step.get(OLD_CONFIG) is not None:
            key = OLD_CONFIG
            config_path = below(path, OLD_CONFIG)
            if step.get("config") is not None:
                message = f"'{OLD_CONFIG}' is the old name of 'config'; use one of them."
                self.wrong("E020", config_path, message, place=self.document.key_place(config_path))
                key = "config"
            else:
                place = self.document.key_place(config_path)
                location = f"{place.file}:{place.line}"
                logger.warning("config.deprecated", key=OLD_CONFIG, use="config", where=location)
                warnings.warn(
                    f"{location}: '{OLD_CONFIG}' is deprecated; use 'config'.",
                    DeprecationWarning,
                    stacklevel=2,
                )
        value = step.get(key)
        if value is None:
            return UNSAID
        config_path = below(path, key)
        if not isinstance(value, dict):
            message = f"'{key}' must be a mapping, such as `{{mode: agent}}`, but this is {kind_of(value)}."
            self.wrong("E010", config_path, message)
            return UNSAID
        fields: list[str] = []

        def where(field: str) -> str:  # called once per problem, in their order
            fields.append(field)
            return ""

        try:
            return StepConfig.read(value, where=where, folder=self.folder, read_text=read_prompt)
        except StepConfigError as error:
            for field, message in zip(fields, error.problems, strict=True):
                part = config_path
                for name in field.split("."):
                    part = below(part, name)
                known = field in FIELDS or "." in field
                meant = () if known else self.nearest.of(field, FIELDS)
                meant = meant or tuple(MEANT.findall(message))
                place = self.document.place(part) if known else self.document.key_place(part)
                self.wrong("E020", part, f"config: {MEANT.sub('', message)}", meant, place)
            return UNSAID

    # -- rules between the keys of a kind -------------------------------------------------------------------

    def schema(self, values: dict[str, Any], path: str) -> None:
        """E010: `output_schema` is a valid JSON Schema."""
        from detent.engine.schemas import check_schema

        try:
            check_schema(values["output_schema"])
        except ConfigurationError as error:
            self.wrong("E010", below(path, "output_schema"), f"'output_schema': {error}")
            del values["output_schema"]

    def context(self, values: dict[str, Any], written: Any, path: str, places: Any) -> None:
        """E010: a context is a mapping or the name of a builder, not an expression."""
        context = values.get("context")
        if isinstance(context, str) and "${{" in context:
            message = "'context' is a mapping, or the name of a context builder, not one text."
            self.wrong("E010", below(path, "context"), message)
            del values["context"]

    def validate(self, values: dict[str, Any], written: Any, path: str, places: Any) -> None:
        """E026: there is a stage to run, and `on_failure` can run."""
        if values.get("stages") == []:
            message = "there is no stage to run, so nothing would ever be validated."
            self.wrong("E026", below(path, "stages"), message)
        mending, mending_path = values.pop("on_failure", None), below(path, "on_failure")
        if mending is not None and values.get("retry") == 0:
            self.wrong(
                "E026", mending_path, "'on_failure' never runs, as 'retry' is 0. Leave out one of them."
            )
        values["on_failure"] = None if mending is None else self.step(mending, mending_path)

    def branch(self, values: dict[str, Any], written: Any, path: str, places: dict[str, Place]) -> None:
        """E026: every option can be reached."""
        options, options_path = values.pop("options", ()), below(path, "options")
        if options == []:
            self.wrong("E026", options_path, "a branch has no options. Give it at least one.")
        read: list[Option] = []
        always = False
        for index, option in enumerate(options):
            option_path = below(options_path, index)
            if not isinstance(option, dict):
                message = f"an option must be `{{when, step}}`, but this is {kind_of(option)}."
                self.wrong("E010", option_path, message)
                continue
            fields = self.fields(Option, option, option_path, "an option")
            if always:
                message = "this option is never reached: the one before it has no 'when', so it always holds."
                self.wrong("E026", option_path, message)
            always = always or option.get("when") is None
            places[f"options[{index}]"] = self.document.place(option_path)
            places[f"options[{index}].when"] = self.document.place(below(option_path, "when"))
            step = self.step(fields["step"], below(option_path, "step")) if "step" in fields else None
            if step is not None:
                read.append(Option(step, fields.get("when")))
        values["options"] = tuple(read)

    def loop(self, values: dict[str, Any], written: Mapping[str, Any], path: str, places: Any) -> None:
        """E011 and E026: a loop iterates over items, or until a condition holds, or runs its steps once."""
        over, until = written.get("for_each") is not None, written.get("until") is not None
        parallel, bound = values.get("parallel", False), values.get("max_concurrency", 0)
        if over and until:
            message = "a loop goes 'for_each' item or 'until' something holds, not both."
            self.wrong("E011", below(path, "until"), message)
        if parallel and until:
            message = "passes of an 'until' loop follow one another; leave out 'parallel'."
            self.wrong("E011", below(path, "parallel"), message)
        if parallel and bound != 0:
            message = "'parallel: true' takes the bound of the settings; leave out it or 'max_concurrency'."
            self.wrong("E011", below(path, "max_concurrency"), message)
        if values.get("for_each") == []:
            self.wrong("E026", below(path, "for_each"), "there is no item, so the body never runs.")
        values["steps"] = self.steps(values.get("steps"), below(path, "steps"), "a loop")


_RULES = {
    "agent": _Reader.context, "generate": _Reader.context, "validate": _Reader.validate,
    "branch": _Reader.branch, "loop": _Reader.loop,
}  # fmt: skip
_TUPLES = ("requires", "args", "stages")
"""Keys whose lists become tuples."""
