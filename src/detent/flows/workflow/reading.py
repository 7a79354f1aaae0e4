"""From the bytes of a workflow file to a `WorkflowSpec`: keys, types and names, with the place of each.

Everything wrong with a file by itself, as far as its shape goes, is found here and all at once; what needs
the registry, other files or expressions is for `checking`.

Where the format leaves room: a key without a value (`kwargs:`) is a key left out. A step that is switched off
with `when: false` is fine. Steps that can never run are not: options behind an else, `on_failure` beside
`retry: 0`, the body of a loop over `[]`.
"""

from __future__ import annotations

import errno
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from detent.dispatch.autonomy import StepType
from detent.dispatch.config import FIELDS, PROMPT_BYTES, UNSAID, StepConfig, StepConfigError
from detent.flows.workflow.problems import Place, Problem
from detent.flows.workflow.spec import (
    RESERVED,
    AgentStep,
    BranchStep,
    CheckpointStep,
    GenerateStep,
    InputSpec,
    InputType,
    LoopStep,
    Option,
    PythonStep,
    StepSpec,
    SubworkflowStep,
    ValidateStep,
    WorkflowSpec,
)
from detent.flows.workflow.yaml_text import Document, below, read_yaml_text
from detent.kernel import log
from detent.kernel.errors import ConfigurationError

VERSION = "1.0"
"""The one version of the format."""
WORKFLOW_KEYS = ("version", "name", "description", "inputs", "steps", "outputs", "metadata")
INPUT_KEYS = ("type", "required", "default", "description", "enum", "secret")
INPUT_TYPES: tuple[str, ...] = get_args(InputType)
COMMON_KEYS = ("name", "type", "description", "when", "requires", "config", "metadata")
OWN_KEYS: Mapping[StepType, tuple[str, ...]] = {
    StepType.PYTHON: ("action", "args", "kwargs", "rollback", "output_schema"),
    StepType.AGENT: ("agent", "context", "output_schema", "rollback"),
    StepType.GENERATE: ("generator", "context", "rollback"),
    StepType.VALIDATE: ("stages", "retry", "on_failure", "must_pass"),
    StepType.SUBWORKFLOW: ("workflow", "inputs"),
    StepType.BRANCH: ("options",),
    StepType.LOOP: (
        "steps", "for_each", "until", "parallel", "max_concurrency", "max_iterations", "on_exhausted",
    ),
    StepType.CHECKPOINT: ("checkpoint_id",),
}  # fmt: skip
"""What each kind of step says beside what all say."""
REQUIRED_KEYS: Mapping[StepType, str | None] = {
    StepType.PYTHON: "action", StepType.AGENT: "agent", StepType.GENERATE: "generator",
    StepType.VALIDATE: "stages", StepType.SUBWORKFLOW: "workflow", StepType.BRANCH: "options",
    StepType.LOOP: "steps", StepType.CHECKPOINT: None,
}  # fmt: skip
OLD_CONFIG = "executor_config"
"""What `config` was called."""
NAME = r"[a-z][a-z0-9-]{0,63}"
STEP_NAME = r"[a-z][a-z0-9_-]{0,63}"
INPUT_NAME = r"[a-z_][a-z0-9_]*"
DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*"
"""A class by its module: `shop.orders.Report` or `shop.orders:Report`."""

SUGGESTED = 5
_COMPARISONS = 40_000
_LONGEST = 100
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
    document = read_yaml_text(raw, file)
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


class Nearest:
    """Finds what may have been meant. A file full of mistakes gets no more help than a person would read."""

    def __init__(self) -> None:
        self.left = _COMPARISONS

    def of(self, name: Any, names: Iterable[str]) -> tuple[str, ...]:
        """The nearest of `names`, at most five, best first."""
        if not isinstance(name, str) or not name or len(name) > _LONGEST or self.left <= 0:
            return ()
        known = sorted({one for one in names if one and len(one) <= _LONGEST})
        self.left -= len(known)
        return tuple(get_close_matches(name, known, n=SUGGESTED, cutoff=0.6))


def _kind(value: Any) -> str:
    """What a wrong value is, without the value."""
    kinds = ((bool, "a truth value"), (int, "a number"), (float, "a number"), (str, "a text"),
             (list, "a list"), (dict, "a mapping"))  # fmt: skip
    return next((name for kind, name in kinds if isinstance(value, kind)), "nothing")


def listed(names: Iterable[str]) -> str:
    """Names with `or` before the last."""
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def read_prompt(path: Path) -> str:
    """The text of a prompt file, which is a file and not too large."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no file")
    with path.open("rb") as file:
        data = file.read(PROMPT_BYTES + 1)
    if len(data) > PROMPT_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {PROMPT_BYTES} bytes")
    return data.decode("utf-8")


class _Reader:
    """Reads one document and gathers what is wrong with it."""

    def __init__(self, document: Document, folder: Path) -> None:
        self.document = document
        self.folder = folder
        self.problems: list[Problem] = []
        self.doubtful: set[str] = set()
        self.nearest = Nearest()
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
        """Note a problem."""
        found = place or self.document.place(path)
        self.problems.append(Problem(code, message, Place(*found), path, suggestions))
        if self.inside:
            self.doubtful.add(self.inside[-1])

    # -- single values --------------------------------------------------------------------------------------

    def unknown(self, said: Mapping[str, Any], known: tuple[str, ...], path: str, of: str) -> None:
        """Keys that nobody knows."""
        for key in said:
            if key not in known:
                here = below(path, key)
                meant = self.nearest.of(key, known)
                names = "" if meant else f" Known here: {', '.join(known)}."
                place = self.document.key_place(here)
                self.wrong("E010", here, f"'{key[:60]}' is no key of {of}.{names}", meant, place)

    def missing(self, key: str, path: str, of: str, what: str) -> None:
        self.wrong("E010", below(path, key), f"{of} needs '{key}': {what}.")

    def get(
        self, said: Mapping[str, Any], key: str, path: str, kind: type | tuple[type, ...], what: str
    ) -> Any:
        """A value of the right type; None when it is left out or wrong."""
        value = said.get(key)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if value is None:
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.wrong("E010", below(path, key), f"'{key}' is {what}, but here stands {_kind(value)}.")
            return None
        return value

    def text(self, said: Mapping[str, Any], key: str, path: str, what: str = "a text") -> str | None:
        """A text that is not empty."""
        value: str | None = self.get(said, key, path, str, what)
        if value is not None and not value.strip():
            self.wrong("E010", below(path, key), f"'{key}' is {what}, but the text is empty.")
            return None
        return value

    def required(self, said: Mapping[str, Any], key: str, path: str, of: str, what: str) -> str | None:
        """A text that must be said."""
        if said.get(key) is None:
            self.missing(key, path, of, what)
            return None
        return self.text(said, key, path, what)

    def description(self, said: Mapping[str, Any], path: str) -> str:
        return self.get(said, "description", path, str, "a text") or ""

    def mapping(
        self, said: Mapping[str, Any], key: str, path: str, what: str = "a mapping"
    ) -> Mapping[str, Any]:
        found: dict[str, Any] = self.get(said, key, path, dict, what) or {}
        return found

    def flag(self, said: Mapping[str, Any], key: str, path: str, usual: bool) -> bool:
        value = self.get(said, key, path, bool, "true or false")
        return usual if value is None else bool(value)

    def count(self, said: Mapping[str, Any], key: str, path: str, usual: int, least: int) -> int:
        what = f"a whole number of {least} or more"
        value = self.get(said, key, path, int, what)
        if value is not None and value < least:
            self.wrong("E010", below(path, key), f"'{key}' is {what}.")
            value = None
        return usual if value is None else int(value)

    def names_of(self, said: Mapping[str, Any], key: str, path: str, what: str) -> tuple[str, ...]:
        """A list of names."""
        found: list[str] = []
        for index, item in enumerate(self.get(said, key, path, list, f"a list of {what}") or ()):
            here = below(below(path, key), index)
            if not isinstance(item, str) or not item.strip():
                self.wrong("E010", here, f"'{key}' is a list of {what}, but here stands {_kind(item)}.")
            else:
                found.append(item)
        return tuple(found)

    def choice(self, said: Mapping[str, Any], key: str, path: str, options: tuple[str, ...]) -> str | None:
        """One of a few words."""
        value = said.get(key)
        if value is None:
            return None
        if value not in options:
            message = f"'{key}' is {listed(options)}."
            self.wrong("E010", below(path, key), message, self.nearest.of(value, options))
            return None
        return str(value)

    # -- the whole ------------------------------------------------------------------------------------------

    def workflow(self, said: dict[str, Any]) -> WorkflowSpec:
        """Everything the file says, as far as it can be used."""
        self.unknown(said, WORKFLOW_KEYS, "", "a workflow")
        self.version(said)
        name = self.required(said, "name", "", "a workflow", "how it is called")
        if name is not None and not re.fullmatch(NAME, name):
            self.wrong(
                "E010", "name",
                "a workflow is named with small letters, digits and hyphens, a letter first, 64 at most.",
            )  # fmt: skip
        description = self.description(said, "")
        inputs = self.inputs(said)
        steps = self.steps(said, "", "a workflow")
        outputs = self.get(said, "outputs", "", dict, "a mapping of names to expressions")
        metadata = self.mapping(said, "metadata", "")
        parts = {key: value for key, value in said.items() if key != "steps"}
        return WorkflowSpec(
            name=name or "",
            steps=steps,
            place=Place(*self.document.place("name" if "name" in said else "")),
            version=VERSION,
            description=description,
            inputs=inputs,
            outputs=outputs,
            metadata=metadata,
            places=dict(self.parts(parts, "", "")),
            source=said,
        )

    def version(self, said: Mapping[str, Any]) -> None:
        version = said.get("version")
        if version is None:
            self.missing("version", "", "a workflow", f'`version: "{VERSION}"`')
        elif not isinstance(version, str):
            message = f"'version' is a text: write \"{VERSION}\", with the quotes."
            self.wrong("E010", "version", message)
        elif version != VERSION:
            message = f"version '{version[:20]}' is not supported; this program reads version \"{VERSION}\"."
            self.wrong("E023", "version", message, (VERSION,))

    def parts(self, said: Any, path: str, shown: str) -> Iterator[tuple[str, Place]]:
        """Where the parts of a value stand, by paths as seen from it."""
        found: Iterable[tuple[str | int, Any]] = ()
        if isinstance(said, dict):
            found = said.items()
        elif isinstance(said, list):
            found = enumerate(said)
        for part, value in found:
            here, seen = below(path, part), below(shown, part)
            yield seen, self.document.place(here)
            if isinstance(value, dict | list):
                yield from self.parts(value, here, seen)

    # -- inputs ---------------------------------------------------------------------------------------------

    def inputs(self, said: Mapping[str, Any]) -> dict[str, InputSpec]:
        """The declared inputs."""
        found: dict[str, InputSpec] = {}
        for name, declared in (
            self.get(said, "inputs", "", dict, "a mapping of names to types") or {}
        ).items():
            path = below("inputs", name)
            if not re.fullmatch(INPUT_NAME, name):
                self.wrong(
                    "E010", path, "an input is named with small letters, digits and '_', no digit first.",
                    place=self.document.key_place(path),
                )  # fmt: skip
            if not isinstance(declared, dict):
                message = (
                    f"an input is a mapping, such as `{{type: string}}`, but here stands {_kind(declared)}."
                )
                self.wrong("E010", path, message)
                declared = {"type": "string"}
            found[name] = self.input(name, declared, path)
        return found

    def input(self, name: str, said: Mapping[str, Any], path: str) -> InputSpec:
        self.unknown(said, INPUT_KEYS, path, "an input")
        kind = self.choice(said, "type", path, INPUT_TYPES)
        if said.get("type") is None:
            self.missing("type", path, "an input", listed(INPUT_TYPES))
        has_default = "default" in said
        required = self.get(said, "required", path, bool, "true or false")
        if required and has_default:
            self.wrong(
                "E012", below(path, "default"),
                f"input '{name}' is required, so its default is never used. Leave out one of them.",
            )  # fmt: skip
        enum = self.get(said, "enum", path, list, "a list of values")
        if enum is not None and not enum:
            self.wrong("E010", below(path, "enum"), "'enum' is empty: no value would be right.")
            enum = None
        secret = self.flag(said, "secret", path, False)
        if secret and (has_default or enum is not None):
            part = "default" if has_default else "enum"
            message = f"a secret comes from the environment; its {part} must not stand in a file."
            self.wrong("E010", below(path, part), message)
        return InputSpec(
            name=name,
            type=kind or "string",  # type: ignore[arg-type]
            place=Place(*self.document.key_place(path)),
            required=not has_default if required is None else required,
            default=said.get("default"),
            has_default=has_default,
            description=self.description(said, path),
            enum=None if enum is None else tuple(enum),
            secret=secret,
        )

    # -- steps ----------------------------------------------------------------------------------------------

    def steps(self, said: Mapping[str, Any], path: str, of: str) -> tuple[StepSpec, ...]:
        """A list of steps."""
        here = below(path, "steps")
        if said.get("steps") is None:
            self.missing("steps", path, of, "a list of steps")
            return ()
        found = self.get(said, "steps", path, list, "a list of steps")
        if found is not None and not found:
            self.wrong("E026", here, f"{of} has no steps. Give it one at least.")
        read = [self.step(item, below(here, index)) for index, item in enumerate(found or ())]
        return tuple(step for step in read if step is not None)

    def step(self, said: Any, path: str) -> StepSpec | None:
        """One step of any kind."""
        if not isinstance(said, dict):
            self.wrong(
                "E010", path, f"a step is a mapping with name and type, but here stands {_kind(said)}."
            )
            return None
        self.inside.append(path)
        try:
            return self._step(said, path)
        finally:
            self.inside.pop()

    def _step(self, said: dict[str, Any], path: str) -> StepSpec:
        kinds = tuple(one.value for one in StepType)
        if said.get("type") is None:
            self.missing("type", path, "a step", listed(kinds))
        chosen = self.choice(said, "type", path, kinds)
        name = self.step_name(said, path)
        kind = StepType(chosen) if chosen is not None else None
        if kind is not None:
            of = f"{'an' if kind is StepType.AGENT else 'a'} {kind.value} step"
            self.unknown(said, (*COMMON_KEYS, *OWN_KEYS[kind], OLD_CONFIG), path, of)
        when = self.get(said, "when", path, (str, bool), "an expression, or true or false")
        inner = {"options", "steps", "on_failure"}
        places = dict(self.parts({k: v for k, v in said.items() if k not in inner}, path, ""))
        places |= {key: self.document.place(below(path, key)) for key in inner if key in said}
        common: dict[str, Any] = {
            "name": name,
            "place": Place(*self.document.place(below(path, "name") if "name" in said else path)),
            "path": path,
            "description": self.description(said, path),
            "when": when,
            "requires": self.names_of(said, "requires", path, "prerequisites"),
            "config": self.config(said, path),
            "metadata": self.mapping(said, "metadata", path),
            "places": places,
        }
        if kind is None:  # its name is kept, so that references to it are not wrong as well
            return CheckpointStep(**common)
        return _STEPS[kind](self, said, path, common)

    def step_name(self, said: Mapping[str, Any], path: str) -> str:
        name = self.required(said, "name", path, "a step", "how it is called")
        if name is None:
            return ""
        here = below(path, "name")
        if not re.fullmatch(STEP_NAME, name):
            self.wrong(
                "E010", here,
                "a step is named with small letters, digits, '-' and '_', a letter first, 64 at most.",
            )  # fmt: skip
        if name in RESERVED:
            message = f"'{name}' is the name of a state every workflow has. Give the step another name."
            self.wrong("E009", here, message)
        elif name in self.names:
            line = self.names[name].line
            message = f"two steps are named '{name}'; the other is in line {line}. A name is taken once."
            self.wrong("E009", here, message)
        else:
            self.names[name] = self.document.place(here)
        return name

    def config(self, said: Mapping[str, Any], path: str) -> StepConfig:
        """How the step is performed."""
        key = "config"
        if said.get(OLD_CONFIG) is not None:
            key = OLD_CONFIG
            here = below(path, OLD_CONFIG)
            if said.get("config") is not None:
                message = f"'{OLD_CONFIG}' is the old name of 'config'; say one of them."
                self.wrong("E020", here, message, place=self.document.key_place(here))
                key = "config"
            else:
                place = self.document.key_place(here)
                shown = f"{place.file}:{place.line}"
                log.warning("config.deprecated", key=OLD_CONFIG, use="config", where=shown)
                warnings.warn(
                    f"{shown}: '{OLD_CONFIG}' is deprecated; say 'config'.", DeprecationWarning, stacklevel=2
                )
        value = said.get(key)
        if value is None:
            return UNSAID
        here = below(path, key)
        if not isinstance(value, dict):
            message = f"'{key}' is a mapping, such as `{{mode: agent}}`, but here stands {_kind(value)}."
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

    # -- the eight kinds ------------------------------------------------------------------------------------

    def context(self, said: Mapping[str, Any], path: str) -> Any:
        """A mapping, or a builder's name."""
        what = "a mapping, or the name of a context builder"
        value = self.get(said, "context", path, (str, dict), what)
        if isinstance(value, str) and ("${{" in value or not value.strip()):
            self.wrong("E010", below(path, "context"), f"'context' is {what}, not one text.")
            return None
        return value

    def output_schema(self, said: Mapping[str, Any], path: str) -> Any:
        """A class by its dotted path, or a JSON Schema."""
        what = "a JSON Schema, or a class such as `shop.orders.Report`"
        value = self.get(said, "output_schema", path, (str, dict), what)
        here = below(path, "output_schema")
        if isinstance(value, str) and not re.fullmatch(DOTTED, value):
            self.wrong("E010", here, f"'output_schema' is {what}.")
            return None
        if isinstance(value, dict):
            from detent.engine.schemas import check_schema

            try:
                check_schema(value)
            except ConfigurationError as error:
                self.wrong("E010", here, f"'output_schema': {error}")
                return None
        return value

    def python(self, said: dict[str, Any], path: str, common: dict[str, Any]) -> StepSpec:
        return PythonStep(
            **common,
            action=self.required(said, "action", path, "a python step", "the action it calls") or "",
            args=tuple(self.get(said, "args", path, list, "a list") or ()),
            kwargs=self.mapping(said, "kwargs", path, "a mapping of parameters to values"),
            rollback=self.text(said, "rollback", path, "the name of an action"),
            output_schema=self.output_schema(said, path),
        )

    def agent(self, said: dict[str, Any], path: str, common: dict[str, Any]) -> StepSpec:
        return AgentStep(
            **common,
            agent=self.required(said, "agent", path, "an agent step", "the agent it asks") or "",
            context=self.context(said, path),
            output_schema=self.output_schema(said, path),
            rollback=self.text(said, "rollback", path, "the name of an action"),
        )

    def generate(self, said: dict[str, Any], path: str, common: dict[str, Any]) -> StepSpec:
        what = "the generator that writes"
        return GenerateStep(
            **common,
            generator=self.required(said, "generator", path, "a generate step", what) or "",
            context=self.context(said, path),
            rollback=self.text(said, "rollback", path, "the name of an action"),
        )

    def validate(self, said: dict[str, Any], path: str, common: dict[str, Any]) -> StepSpec:
        stages = self.listing(said, "stages", path, "a list of stages, or an expression that gives one")
        here = below(path, "stages")
        if said.get("stages") is None:
            self.missing("stages", path, "a validate step", "the checks it runs")
        elif stages == []:
            self.wrong("E026", here, "there is no stage to run, so nothing would ever be validated.")
        for index, stage in enumerate(stages if isinstance(stages, list) else ()):
            if not isinstance(stage, str) or not stage.strip():
                message = f"a stage is named by a text, but here stands {_kind(stage)}."
                self.wrong("E010", below(here, index), message)
        retry = self.get(said, "retry", path, (int, str), "a whole number of 0 or more, or an expression")
        if isinstance(retry, int) and retry < 0:
            self.wrong("E010", below(path, "retry"), "'retry' is a whole number of 0 or more.")
            retry = None
        on_failure = said.get("on_failure")
        if on_failure is not None and retry == 0:
            message = "'on_failure' never runs, as 'retry' is 0. Leave out one of them."
            self.wrong("E026", below(path, "on_failure"), message)
        return ValidateStep(
            **common,
            stages=tuple(stages) if isinstance(stages, list) else stages or (),
            retry=retry,
            on_failure=None if on_failure is None else self.step(on_failure, below(path, "on_failure")),
            must_pass=self.flag(said, "must_pass", path, True),
        )

    def listing(self, said: Mapping[str, Any], key: str, path: str, what: str) -> Any:
        """A list, or the text of an expression."""
        value = self.get(said, key, path, (str, list), what)
        if isinstance(value, str) and not value.strip():
            self.wrong("E010", below(path, key), f"'{key}' is {what}, but the text is empty.")
            return None
        return value

    def subworkflow(self, said: dict[str, Any], path: str, common: dict[str, Any]) -> StepSpec:
        what = "the name or path of the workflow it runs"
        return SubworkflowStep(
            **common,
            workflow=self.required(said, "workflow", path, "a subworkflow step", what) or "",
            inputs=self.mapping(said, "inputs", path, "a mapping of inputs to values"),
        )

    def branch(self, said: dict[str, Any], path: str, common: dict[str, Any]) -> StepSpec:
        here = below(path, "options")
        if said.get("options") is None:
            self.missing("options", path, "a branch step", "a list of `{when, step}`")
        options = self.get(said, "options", path, list, "a list of `{when, step}`")
        if options is not None and not options:
            self.wrong("E026", here, "a branch has no options. Give it one at least.")
        found: list[Option] = []
        otherwise = False
        for index, option in enumerate(options or ()):
            way = below(here, index)
            if not isinstance(option, dict):
                self.wrong("E010", way, f"an option is `{{when, step}}`, but here stands {_kind(option)}.")
                continue
            self.unknown(option, ("when", "step"), way, "an option")
            when = self.get(option, "when", way, (str, bool), "an expression, or true or false")
            if otherwise:
                message = "this option is never reached: the one before it has no 'when', so it always holds."
                self.wrong("E026", way, message)
            otherwise = otherwise or option.get("when") is None
            common["places"][f"options[{index}]"] = self.document.place(way)
            common["places"][f"options[{index}].when"] = self.document.place(below(way, "when"))
            if option.get("step") is None:
                self.missing("step", way, "an option", "the step that runs if it holds")
                continue
            step = self.step(option["step"], below(way, "step"))
            if step is not None:
                found.append(Option(step, when))
        return BranchStep(**common, options=tuple(found))

    def loop(self, said: dict[str, Any], path: str, common: dict[str, Any]) -> StepSpec:
        for_each = self.listing(said, "for_each", path, "a list, or an expression that gives one")
        until = self.get(said, "until", path, (str, bool), "an expression, or true or false")
        parallel = self.flag(said, "parallel", path, False)
        bound = self.count(said, "max_concurrency", path, 1, 0)
        has_for_each, has_until = said.get("for_each") is not None, said.get("until") is not None
        if has_for_each and has_until:
            message = "a loop goes 'for_each' item or 'until' something holds, not both."
            self.wrong("E011", below(path, "until"), message)
        if parallel and has_until:
            message = "passes of an 'until' loop follow one another; leave out 'parallel'."
            self.wrong("E011", below(path, "parallel"), message)
        if parallel and said.get("max_concurrency") is not None and bound != 0:
            message = "'parallel: true' takes the bound of the settings; leave out it or 'max_concurrency'."
            self.wrong("E011", below(path, "max_concurrency"), message)
        if for_each == []:
            self.wrong("E026", below(path, "for_each"), "there is no item, so the body never runs.")
        exhausted: tuple[Literal["fail"], Literal["continue"]] = ("fail", "continue")
        said_exhausted = self.choice(said, "on_exhausted", path, exhausted)
        return LoopStep(
            **common,
            steps=self.steps(said, path, "a loop"),
            for_each=for_each,
            has_for_each=has_for_each,
            until=until,
            parallel=parallel,
            max_concurrency=bound,
            max_iterations=self.count(said, "max_iterations", path, 30, 1),
            on_exhausted="continue" if said_exhausted == "continue" else "fail",
        )

    def checkpoint(self, said: dict[str, Any], path: str, common: dict[str, Any]) -> StepSpec:
        return CheckpointStep(**common, checkpoint_id=self.text(said, "checkpoint_id", path))


_STEPS: Mapping[StepType, Callable[[_Reader, dict[str, Any], str, dict[str, Any]], StepSpec]] = {
    StepType.PYTHON: _Reader.python,
    StepType.AGENT: _Reader.agent,
    StepType.GENERATE: _Reader.generate,
    StepType.VALIDATE: _Reader.validate,
    StepType.SUBWORKFLOW: _Reader.subworkflow,
    StepType.BRANCH: _Reader.branch,
    StepType.LOOP: _Reader.loop,
    StepType.CHECKPOINT: _Reader.checkpoint,
}
