"""The template library: JSON files, read strictly, all their problems at once with file and line.

The starter library ships with the application; folders of the user's are merged into it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeGuard

from detent.apps.choreography.domain.targets import target_sets
from detent.apps.choreography.domain.template import Template, TemplateStep
from detent.apps.choreography.domain.violations import Violation, read
from detent.apps.choreography.domain.vocabulary import POSES, SECTION_ROLES
from detent.authoring.document import Document, below, file_bytes, read_document
from detent.authoring.names import Nearest
from detent.authoring.problem import DocumentError, Place, Problem, either, in_order

STARTER = Path(__file__).parent.parent / "templates"
MOST_HEADS = 64
"""Heads whose single targets, MH1 and so on, a template may name."""


class Library(Mapping[str, Template]):
    """Templates by id, in the order of their ids."""

    def __init__(self, templates: Mapping[str, Template]) -> None:
        self._templates = dict(sorted(templates.items()))

    def __getitem__(self, template_id: str) -> Template:
        return self._templates[template_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates)

    def __len__(self) -> int:
        return len(self._templates)


class Parameter(NamedTuple):
    """What a parameter of a movement, geometry or dimmer may be."""

    kind: Literal["number", "poses", "order"]
    low: float = 0.0
    high: float = 0.0
    above: bool = False
    """The lowest number itself is not allowed."""


_DEGREES, _LENGTH = Parameter("number", -180, 180), Parameter("number", 0, 256, above=True)
_LIGHT = Parameter("number", 0, 1)
_CYCLE = {"cycle_bars": _LENGTH, "cycle_beats": _LENGTH}
_ADDED = {"amplitude": _DEGREES, "amplitude_to": _DEGREES, **_CYCLE}
_OPENING = {"spread": _DEGREES, "from": _DEGREES, "to": _DEGREES}
_RANGE = {"lo": _LIGHT, "hi": _LIGHT}

PARAMETERS: dict[str, dict[str, dict[str, Parameter]]] = {
    "movement": {
        "hold": {},
        "sway": _ADDED,
        "tilt_wave": _ADDED,
        "circle": _ADDED,
        "figure8": _ADDED,
        "snap": _ADDED,
        "steps": {"poses": Parameter("poses"), **_CYCLE},
        "ramp": {"poses": Parameter("poses"), "rung_beats": _LENGTH},
    },
    "geometry": {
        "together": {},
        "fan": _OPENING,
        "cross": _OPENING,
        "chevron": _OPENING,
        "mirror": {},
        "alternate": {},
    },
    "dimmer": {
        "level": {"level": _LIGHT},
        "breathe": _RANGE,
        "beat_pulse": _RANGE,
        "fade_in": _RANGE,
        "fade_out": _RANGE,
        "chase": {**_RANGE, "order": Parameter("order")},
        "doubling": _RANGE,
    },
}
"""The parameters that each movement, geometry and dimmer takes."""
ORDERS = ("left", "outward")
_NEEDED = {
    **dict.fromkeys(("sway", "tilt_wave", "circle", "figure8", "snap"), ("amplitude",)),
    "steps": ("poses",),
}
_OPENED = (("spread",), ("from", "to"))
"""What a geometry that opens needs, either way."""


def load_library(*folders: Path | str, poses: Collection[str] = tuple(POSES)) -> Library:
    """Read the starter library and the templates of some folders.

    Raises:
        DocumentError: a file cannot be used, or an id is in two folders; all problems are listed.
    """
    templates, problems = _read_all([STARTER, *map(Path, folders)], frozenset(poses))
    if problems:
        raise DocumentError("The template library", problems)
    return Library(templates)


def check_folder(folder: Path | str, poses: Collection[str] = tuple(POSES)) -> list[Problem]:
    """List all problems of a folder of templates, ids that the starter library has among them."""
    folder = Path(folder)
    folders = [folder] if folder.resolve() == STARTER.resolve() else [STARTER, folder]
    return in_order(_read_all(folders, frozenset(poses))[1])


def _read_all(folders: list[Path], poses: frozenset[str]) -> tuple[dict[str, Template], list[Problem]]:
    templates: dict[str, Template] = {}
    origins: dict[str, Path] = {}
    problems: list[Problem] = []
    for folder in folders:
        if folder == STARTER:
            read, new = _starter(poses)
        else:
            read, new = _read_folder(folder, poses)
        problems += new
        for template_id, template in read.items():
            if template_id in templates:
                file = folder / f"{template_id}.json"
                message = (
                    f"There is a template '{template_id}' in {origins[template_id]} too. Rename this one: "
                    f"its file and its 'template_id'."
                )
                problems.append(Problem("", message, Place(str(file), 1), "template_id"))
            else:
                templates[template_id], origins[template_id] = template, folder
    return templates, problems


@cache
def _starter(poses: frozenset[str]) -> tuple[dict[str, Template], list[Problem]]:
    return _read_folder(STARTER, poses)


def _read_folder(folder: Path, poses: frozenset[str]) -> tuple[dict[str, Template], list[Problem]]:
    if not folder.is_dir():
        message = "There is no folder of this name. Create it, or correct the setting that names it."
        return {}, [Problem("", message, Place(str(folder), 0))]
    templates: dict[str, Template] = {}
    problems: list[Problem] = []
    for file in sorted(folder.glob("*.json")):
        template, new = _read(file, poses)
        problems += new
        if template is not None and not new:
            templates[template.template_id] = template
    return templates, problems


def _read(file: Path, poses: frozenset[str]) -> tuple[Template | None, list[Problem]]:
    name = str(file)
    try:
        raw = file_bytes(file)
        # JSON may be indented with tabs, which the reader of places refuses; columns stay as they are.
        text = raw.decode("utf-8-sig").replace("\t", " ")
        value = json.loads(text)
    except RecursionError:
        return None, [Problem("", "Lists and objects are nested too deep here.", Place(name, 1))]
    except OSError as error:
        return None, [Problem("", f"The file cannot be read: {error.strerror}.", Place(name, 0))]
    except UnicodeDecodeError:
        return None, [Problem("", "The file is not UTF-8. Save it as UTF-8.", Place(name, 1))]
    except json.JSONDecodeError as error:
        return None, [Problem("", f"This is not JSON: {error.msg}.", Place(name, error.lineno, error.colno))]
    document = read_document(text, name, code="")
    if document.errors:
        return None, list(document.errors)
    result = read(Template, value)
    if isinstance(result, Template):
        return result, list(_Checks(result, document, file, poses).problems())
    problems = [
        Problem("", violation.message, document.mark(violation.path), violation.path, violation.suggestions)
        for violation in result
    ]
    if isinstance(value, dict):
        rest, left_out = _well_shaped(value, result)
        if rest is not None:  # what is wrong elsewhere is told at once, not after the shape is mended
            problems += [
                problem
                for problem in _Checks(rest, document, file, poses).problems()
                if not any(_within(problem.path, path) for path in left_out)
            ]
    return None, problems


_CHOSEN_BY = {f"{part}_id": f"{part}_params" for part in PARAMETERS}
"""Parameters that mean nothing without what chooses them."""
_UNTIMED = {"default_duration_bars": 1e9}
"""A cycle in which every step ends in time."""


def _well_shaped(
    value: Mapping[str, Any], violations: Sequence[Violation]
) -> tuple[Template | None, list[str]]:
    """A template with stand-ins for the parts whose shape is wrong, and the paths of those parts."""
    parts: dict[str, Any] = {"name": "", "category": "low_energy", "layer_role": "base", "timing": _UNTIMED}
    rest = json.loads(json.dumps(dict(value)))
    steps = rest.get("steps")
    left_out: list[str] = []
    for violation in violations:
        match violation.location:
            case ("steps", int(place), str(key), *_) if isinstance(steps, list):
                for name in (key, _CHOSEN_BY.get(key)):
                    if name is not None:
                        steps[place].pop(name, None)
                        left_out.append(f"steps[{place}].{name}")
            case ("steps", int(place)) if isinstance(steps, list):
                steps[place] = {}
                left_out.append(f"steps[{place}]")
            case ("metadata", str(key), *_) if isinstance(rest.get("metadata"), dict):
                rest["metadata"].pop(key, None)
                left_out.append(f"metadata.{key}")
            case (str(key), *_):
                rest.pop(key, None)
                left_out.append(key)
    rest["steps"] = [
        {"step_id": f"step {place}", "duration_bars": 1e-9, **step}
        for place, step in enumerate(rest.get("steps") or [{}])
    ]
    template = read(Template, {"template_id": "left_out", **parts, **rest})
    return (template if isinstance(template, Template) else None), left_out


def _within(path: str, part: str) -> bool:
    """Whether a path is a part of a template or leads into it."""
    return path == part or path.startswith((f"{part}.", f"{part}["))


class _Checks:
    """What the types of a template cannot say."""

    def __init__(self, template: Template, document: Document, file: Path, poses: frozenset[str]) -> None:
        self.template, self.document, self.file, self.poses = template, document, file, poses
        self.nearest = Nearest()

    def problem(self, path: str, message: str, name: Any = None, names: Collection[str] = ()) -> Problem:
        return Problem("", message, self.document.mark(path), path, self.nearest.of(name, names))

    def problems(self) -> Iterator[Problem]:
        template = self.template
        if template.template_id != self.file.stem:
            yield self.problem(
                "template_id",
                f"'{template.template_id}' is in the file {self.file.name}. Name the file "
                f"{template.template_id}.json, or correct the id.",
            )
        if template.metadata is not None:
            low, high = template.metadata.energy_range
            if not 0 <= low <= high <= 100:
                yield self.problem(
                    "metadata.energy_range", f"[{low:g}, {high:g}] must rise, and lie between 0 and 100."
                )
            for index, role in enumerate(template.metadata.recommended_sections):
                if role not in SECTION_ROLES:
                    path = f"metadata.recommended_sections[{index}]"
                    message = f"'{role}' is no role of a section. Roles: {', '.join(SECTION_ROLES)}."
                    yield self.problem(path, message, role, SECTION_ROLES)
        seen: set[str] = set()
        for index, step in enumerate(template.steps):
            if step.step_id in seen:
                yield self.problem(f"steps[{index}].step_id", f"Two steps are named '{step.step_id}'.")
            seen.add(step.step_id)
            yield from self.step(f"steps[{index}]", step)

    def step(self, path: str, step: TemplateStep) -> Iterator[Problem]:
        targets = target_sets(MOST_HEADS)
        if step.target not in targets:
            message = f"'{step.target}' is no target. Targets: {_listed(targets)} … MH{MOST_HEADS}."
            yield self.problem(f"{path}.target", message, step.target, targets)
        cycle = self.template.timing.default_duration_bars
        if step.start_offset_bars + step.duration_bars > cycle:
            yield self.problem(
                f"{path}.duration_bars",
                f"The step ends after {step.start_offset_bars + step.duration_bars:g} bars, but the cycle "
                f"('timing.default_duration_bars') has {cycle:g}.",
            )
        for part, chosen, params in (
            ("movement", step.movement_id, step.movement_params),
            ("geometry", step.geometry_id, step.geometry_params),
            ("dimmer", step.dimmer_id, step.dimmer_params),
        ):
            yield from self.parameters(f"{path}.{part}_params", part, chosen, params)

    def parameters(self, path: str, part: str, chosen: str, params: Mapping[str, Any]) -> Iterator[Problem]:
        known = PARAMETERS[part][chosen]
        for name, value in params.items():
            if name not in known:
                takes = f"It takes {', '.join(known)}." if known else "It takes none."
                message = f"'{name}' is no parameter of the {part} '{chosen}'. {takes}"
                yield self.problem(below(path, name), message, name, known)
            else:
                yield from self.value(below(path, name), name, value, known[name])
        misspelt = not params.keys() <= known.keys()
        for name in () if misspelt else _NEEDED.get(chosen, ()):
            if name not in params:
                yield self.problem(path, f"The {part} '{chosen}' needs '{name}'.")
        opened = any(params.keys() >= set(names) for names in _OPENED)
        if part == "geometry" and known and not opened and not misspelt:
            yield self.problem(path, f"The geometry '{chosen}' needs 'spread', or 'from' and 'to'.")
        low, high = params.get("lo"), params.get("hi")
        if _number(low) and _number(high) and low > high:
            yield self.problem(below(path, "lo"), f"{low:g} is more light than 'hi', {high:g}.")

    def value(self, path: str, name: str, value: Any, parameter: Parameter) -> Iterator[Problem]:
        if parameter.kind == "order":
            if value not in ORDERS:
                yield self.problem(path, f"'{name}' must be {either(ORDERS)}.", value, ORDERS)
        elif parameter.kind == "poses":
            if not isinstance(value, list) or not value:
                yield self.problem(path, f"'{name}' must be a list of poses: {_listed(self.poses)}.")
                return
            for index, pose in enumerate(value):
                if not isinstance(pose, str) or pose not in self.poses:
                    message = f"{pose!r} is no pose. Poses: {_listed(self.poses)}."
                    yield self.problem(below(path, index), message, pose, self.poses)
        elif (
            not _number(value)
            or not parameter.low <= value <= parameter.high
            or (parameter.above and value == parameter.low)
        ):
            least = f"above {parameter.low:g}" if parameter.above else f"from {parameter.low:g}"
            yield self.problem(path, f"'{name}' must be a number {least} to {parameter.high:g}.")


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(name for name in names if not name.startswith("MH") or name == "MH1"))
