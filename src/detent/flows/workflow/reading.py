"""From the bytes of a workflow file to a `WorkflowSpec`: keys, types and names, with the place of each.

`spec` declares the format; here are the rules between its keys. What needs the registry, other files or
expressions is for `checking`. All problems are found at once.

Where the format leaves room: a key without a value (`kwargs:`) is a key left out. A step that is switched off
with `when: false` is fine. Steps that can never run are not: options behind an else, `on_failure` beside
`retry: 0`, the body of a loop over `[]`.
"""

from __future__ import annotations

import errno
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from detent.authoring.document import Document, below, read_document
from detent.authoring.model import ModelReader, kind_of
from detent.authoring.problem import Place, Problem, either
from detent.dispatch.autonomy import StepType
from detent.dispatch.config import FIELDS, PROMPT_BYTES, UNSAID, StepConfig, StepConfigError
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
from detent.kernel import log
from detent.kernel.errors import ConfigurationError

OLD_CONFIG = "executor_config"
"""What `config` was called."""
KINDS = tuple(kind.value for kind in StepType)
_BESIDE = ("type", "config", OLD_CONFIG)
"""Keys of a step that are not fields of its kind."""
_INNER = ("options", "steps", "on_failure")
"""Keys of a step under which steps stand; their parts have places of their own."""

MEANT = re.compile(r" Did you mean '([^']*)'\?")
"""How the kernel's messages name what may be meant; here that stands beside the message."""


class Read(NamedTuple):
    """What reading a file gave."""

    spec: WorkflowSpec | None
    """None when the file has an error."""
    problems: tuple[Problem, ...]
    partial: WorkflowSpec | None = None
    """As far as it could be read, so that the rest can be checked all the same; never to be run. None when
    not even its keys could be read."""
    doubtful: frozenset[str] = frozenset()
    """Paths of steps of which something could not be read."""


def read_workflow(raw: bytes, file: str, *, folder: Path | None = None) -> Read:
    """Read a workflow file, shown to people as `file`.

    What it names by relative paths stands in `folder`, by default the one `file` says.
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
    """The text of a prompt file, which is a file and not too large."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no file")
    with path.open("rb") as file:
        data = file.read(PROMPT_BYTES + 1)
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
        """Note a problem, and that the step around it is doubtful."""
        super().wrong(code, path, message, suggestions, place)
        if self.inside:
            self.doubtful.add(self.inside[-1])

    # -- the whole ------------------------------------------------------------------------------------------

    def workflow(self, given: dict[str, Any]) -> WorkflowSpec:
        """Everything the file says, as far as it can be used."""
        values = self.fields(WorkflowSpec, given, "", "a workflow")
        version = values.pop("version", VERSION)
        if version != VERSION:
            message = f"version '{version[:20]}' is not supported; this program reads version \"{VERSION}\"."
            self.wrong("E023", "version", message, (VERSION,))
        values["inputs"] = {
            name: self.input(name, declared) for name, declared in values.get("inputs", {}).items()
        }
        values["steps"] = self.steps(values.get("steps"), "steps", "a workflow")
        parts = {key: value for key, value in given.items() if key != "steps"}
        return WorkflowSpec(
            **{"name": "", **values},
            place=Place(*self.document.place("name" if "name" in given else "")),
            places=dict(self.parts(parts, "", "")),
            source=given,
        )

    def parts(self, value: Any, path: str, shown: str) -> Iterator[tuple[str, Place]]:
        """Where the parts of a value stand, by paths as seen from it."""
        found: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            found = value.items()
        elif isinstance(value, list):
            found = enumerate(value)
        for part, inner in found:
            here, seen = below(path, part), below(shown, part)
            yield seen, self.document.place(here)
            if isinstance(inner, dict | list):
                yield from self.parts(inner, here, seen)

    def input(self, name: str, declared: Any) -> InputSpec:
        """One declared input."""
        path = below("inputs", name)
        if not re.fullmatch(INPUT_NAME, name):
            message = "an input is named with small letters, digits and '_', no digit first."
            self.wrong("E010", path, message, place=self.document.key_place(path))
        if not isinstance(declared, dict):
            message = (
                f"an input is a mapping, such as `{{type: string}}`, but here stands {kind_of(declared)}."
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
            message = f"a secret comes from the environment; its {part} must not stand in a file."
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

    def steps(self, given: list[Any] | None, path: str, of: str) -> tuple[StepSpec, ...]:
        """A list of steps."""
        if given == []:
            self.wrong("E026", path, f"{of} has no steps. Give it one at least.")
        steps = [self.step(item, below(path, index)) for index, item in enumerate(given or ())]
        return tuple(step for step in steps if step is not None)

    def step(self, given: Any, path: str) -> StepSpec | None:
        """One step of any kind."""
        if not isinstance(given, dict):
            message = f"a step is a mapping with name and type, but here stands {kind_of(given)}."
            self.wrong("E010", path, message)
            return None
        self.inside.append(path)
        try:
            return self._step(given, path)
        finally:
            self.inside.pop()

    def _step(self, given: dict[str, Any], path: str) -> StepSpec:
        kind = given.get("type")
        places = dict(self.parts({key: given[key] for key in given if key not in _INNER}, path, ""))
        places |= {key: self.document.place(below(path, key)) for key in _INNER if key in given}
        common: dict[str, Any] = {
            "place": Place(*self.document.place(below(path, "name") if "name" in given else path)),
            "path": path,
            "config": self.config(given, path),
            "places": places,
        }
        if kind not in KINDS:  # its name is kept, so that references to it are not wrong as well
            needs = kind is None
            message = f"a step needs 'type': {either(KINDS)}." if needs else f"'type' is {either(KINDS)}."
            self.wrong("E010", below(path, "type"), message, self.nearest.of(kind, KINDS))
            shared = {key: given[key] for key in given if key == "name"}
            values = self.fields(CheckpointStep, shared, path, "a step", _BESIDE)
            return CheckpointStep(**common, name=self.named(values, path))
        of = f"{'an' if kind == 'agent' else 'a'} {kind} step"
        values = self.fields(STEPS[StepType(kind)], given, path, of, _BESIDE)
        values["name"] = self.named(values, path)
        if isinstance(values.get("output_schema"), dict):
            self.schema(values, path)
        if kind in _RULES:
            _RULES[kind](self, values, given, path, places)
        for key in _TUPLES:
            if isinstance(values.get(key), list):
                values[key] = tuple(values[key])
        spec: StepSpec = STEPS[StepType(kind)](**common, **values)
        return spec

    def named(self, values: Mapping[str, Any], path: str) -> str:
        """The step's name, which no other step has."""
        name, here = str(values.get("name", "")), below(path, "name")
        if name in RESERVED:
            message = f"'{name}' is the name of a state every workflow has. Give the step another name."
            self.wrong("E009", here, message)
        elif name in self.names:
            line = self.names[name].line
            message = f"two steps are named '{name}'; the other is in line {line}. A name is taken once."
            self.wrong("E009", here, message)
        elif name:
            self.names[name] = self.document.place(here)
        return name

    def config(self, said: Mapping[str, Any], path: str) -> StepConfig:
        """How the step is performed."""
        key = "config"
        if said.get(OLD_CONFIG) is not None:
            key = OLD_CONFIG
            here = below(path, OLD_CONFIG)
            if said.get("config") is not None:
                message = f"'{OLD_CONFIG}' is the old name of 'config'; use one of them."
                self.wrong("E020", here, message, place=self.document.key_place(here))
                key = "config"
            else:
                place = self.document.key_place(here)
                shown = f"{place.file}:{place.line}"
                log.warning("config.deprecated", key=OLD_CONFIG, use="config", where=shown)
                warnings.warn(
                    f"{shown}: '{OLD_CONFIG}' is deprecated; use 'config'.", DeprecationWarning, stacklevel=2
                )
        value = said.get(key)
        if value is None:
            return UNSAID
        here = below(path, key)
        if not isinstance(value, dict):
            message = f"'{key}' is a mapping, such as `{{mode: agent}}`, but here stands {kind_of(value)}."
            self.wrong("E010", here, message)
            return UNSAID
        told: list[str] = []

        def where(field: str) -> str:  # called once per problem, in their order
            told.append(field)
            return ""

        try:
            return StepConfig.read(value, where=where, folder=self.folder, read_text=read_prompt)
        except StepConfigError as error:
            for field, message in zip(told, error.problems, strict=True):
                part = here
                for one in field.split("."):
                    part = below(part, one)
                known = field in FIELDS or "." in field
                meant = () if known else self.nearest.of(field, FIELDS)
                meant = meant or tuple(MEANT.findall(message))
                place = self.document.place(part) if known else self.document.key_place(part)
                self.wrong("E020", part, f"config: {MEANT.sub('', message)}", meant, place)
            return UNSAID

    # -- rules between the keys of a kind -------------------------------------------------------------------

    def schema(self, values: dict[str, Any], path: str) -> None:
        """A JSON Schema that can be used."""
        from detent.engine.schemas import check_schema

        try:
            check_schema(values["output_schema"])
        except ConfigurationError as error:
            self.wrong("E010", below(path, "output_schema"), f"'output_schema': {error}")
            del values["output_schema"]

    def context(self, values: dict[str, Any], given: Any, path: str, places: Any) -> None:
        """A context is a mapping, or a builder's name, which is no expression."""
        context = values.get("context")
        if isinstance(context, str) and "${{" in context:
            message = "'context' is a mapping, or the name of a context builder, not one text."
            self.wrong("E010", below(path, "context"), message)
            del values["context"]

    def validate(self, values: dict[str, Any], given: Any, path: str, places: Any) -> None:
        """There is something to run, and what mends can run."""
        if values.get("stages") == []:
            message = "there is no stage to run, so nothing would ever be validated."
            self.wrong("E026", below(path, "stages"), message)
        mending, here = values.pop("on_failure", None), below(path, "on_failure")
        if mending is not None and values.get("retry") == 0:
            self.wrong("E026", here, "'on_failure' never runs, as 'retry' is 0. Leave out one of them.")
        values["on_failure"] = None if mending is None else self.step(mending, here)

    def branch(self, values: dict[str, Any], given: Any, path: str, places: dict[str, Place]) -> None:
        """Every option can be reached."""
        options, here = values.pop("options", ()), below(path, "options")
        if options == []:
            self.wrong("E026", here, "a branch has no options. Give it one at least.")
        found: list[Option] = []
        always = False
        for index, option in enumerate(options):
            way = below(here, index)
            if not isinstance(option, dict):
                message = f"an option is `{{when, step}}`, but here stands {kind_of(option)}."
                self.wrong("E010", way, message)
                continue
            fields = self.fields(Option, option, way, "an option")
            if always:
                message = "this option is never reached: the one before it has no 'when', so it always holds."
                self.wrong("E026", way, message)
            always = always or option.get("when") is None
            places[f"options[{index}]"] = self.document.place(way)
            places[f"options[{index}].when"] = self.document.place(below(way, "when"))
            step = self.step(fields["step"], below(way, "step")) if "step" in fields else None
            if step is not None:
                found.append(Option(step, fields.get("when")))
        values["options"] = tuple(found)

    def loop(self, values: dict[str, Any], given: Mapping[str, Any], path: str, places: Any) -> None:
        """A loop goes over items, until something holds, or over nothing."""
        over, until = given.get("for_each") is not None, given.get("until") is not None
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
"""Lists whose values are kept unchangeable."""
