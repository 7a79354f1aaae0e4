"""Reads the `expected_output` of a case file into values, noting every problem with its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from detent.authoring.document import Document, core, path_of
from detent.authoring.problem import Problem
from detent.evals.artifacts import Artifacts
from detent.evals.case import (
    STEP,
    UNSAID,
    ExpectedFallback,
    ExpectedFunctionCall,
    ExpectedIntake,
    ExpectedOutput,
    ExpectedStepExecution,
)
from detent.kernel.errors import nearest

Way = tuple[str | int, ...]
"""Keys and indices that lead to a value."""
_STEP_KEYS = tuple(one.name for one in fields(ExpectedStepExecution))
_CALL_KEYS = tuple(one.name for one in fields(ExpectedFunctionCall))
_KEYS = tuple(one.name for one in fields(ExpectedOutput) if one.name not in ("artifacts", "modes"))
STEP_ONLY = ("expected_steps", "forbidden_steps", "fallbacks", "allow_missing")
"""Expectations only a path can meet; they have no place under a mode without steps."""


class Reader:
    """Takes values of the right kind out of a document and notes what is wrong, with its place."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = list(document.errors)

    def problem(self, way: Way, message: str) -> None:
        """Note something wrong."""
        path = path_of(*way)
        self.problems.append(Problem("", message, self._document.mark(path), path))

    def mapping(self, value: Any, way: Way, known: Iterable[str]) -> Mapping[str, Any]:
        """Named values, every name known."""
        found = self.any_mapping(value, way)
        if found is None:
            return {}
        names = list(known)
        for key in found:
            if key not in names:
                where = path_of(*way, key)
                hint = nearest(key, names) or f" Known here: {', '.join(names)}."
                self.problem((*way, key), f"unknown key '{where}'.{hint}")
        return found

    def any_mapping(self, value: Any, way: Way) -> Mapping[str, Any] | None:
        """Named values, whatever the names."""
        if value is None or isinstance(value, Mapping):
            return value
        self.problem(way, f"'{path_of(*way)}' takes named values.")
        return None

    def needed(self, top: Mapping[str, Any], key: str) -> str | None:
        """A text that must be there."""
        if top.get(key) in (None, ""):
            self.problem((key,) if key in top else (), f"'{key}' is missing.")
            return None
        return self.text(top[key], (key,))

    def text(self, value: Any, way: Way) -> str | None:
        """A text."""
        if value is None or isinstance(value, str):
            return value
        written = self._document.bare(path_of(*way)) if not isinstance(value, bool) else None
        quoted = f'; write it as "{written}"' if written is not None else ""
        self.problem(way, f"'{path_of(*way)}' takes text{quoted}.")
        return None

    def texts(self, value: Any, way: Way) -> tuple[str, ...] | None:
        """A list of texts; one text stands for a list of it."""
        if value is None:
            return None
        if not isinstance(value, list):
            one = self.text(value, way)
            return None if one is None else (one,)
        read = [self.text(item, (*way, index)) for index, item in enumerate(value)]
        return tuple(item for item in read if item is not None)

    def flag(self, value: Any, way: Way) -> bool | None:
        """True or false."""
        if value is None or isinstance(value, bool):
            return value
        self.problem(way, f"'{path_of(*way)}' takes true or false.")
        return None

    def number(self, value: Any, way: Way) -> float | None:
        """A number above zero."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            self.problem(way, f"'{path_of(*way)}' takes a number above 0.")
            return None
        return value

    def modes(self, value: Any, way: Way, known: Sequence[str]) -> tuple[str, ...]:
        """Modes of the player; empty when nothing is said."""
        modes = self.texts(value, way)
        for index, mode in enumerate(modes or ()):
            if mode not in known:
                choices = f"{nearest(mode, known)} There are: {', '.join(known)}."
                self.problem((*way, index), f"there is no orchestrator '{mode}'.{choices}")
        if modes == ():
            self.problem(way, f"'{path_of(*way)}' is empty, so the case would never be played.")
        return modes or ()

    def not_bare(self, way: Way, *, bare_value: bool = False) -> bool:
        """Note a name of a step, key or value, that is written as a bare number."""
        path = path_of(*way)
        written = self._document.bare(path) if bare_value else self._document.bare_key(path)
        if written is None or isinstance(core(written), str):
            return True
        self.problem(way, f'{written} is a number to YAML; quote the step: "{written}".')
        return False

    def step(self, value: Any, way: Way) -> str | None:
        """A reference to a step: id, alias, or a quoted beginning."""
        return self.text(value, way) if self.not_bare(way, bare_value=True) else None

    def steps(self, value: Any, way: Way) -> tuple[str, ...] | None:
        """Several references."""
        if value is None:
            return None
        if not isinstance(value, list):
            self.problem(way, f"'{path_of(*way)}' takes a list of steps.")
            return None
        read = [self.step(item, (*way, index)) for index, item in enumerate(value)]
        return tuple(item for item in read if item is not None)

    def items(self, value: Any, way: Way) -> list[tuple[Any, Way]] | None:
        """The items of a list with their ways."""
        if value is None:
            return None
        if not isinstance(value, list):
            self.problem(way, f"'{path_of(*way)}' takes a list.")
            return None
        return [(item, (*way, index)) for index, item in enumerate(value)]


def read_expected(
    reader: Reader,
    value: Any,
    way: Way,
    *,
    artifacts: Sequence[Artifacts] = (),
    modes: Sequence[str] = (STEP,),
    steps: bool = True,
) -> ExpectedOutput:
    """What a case expects: of its run, of the `artifacts`, and what differs in a mode other than `step`."""
    known = [key for key in _KEYS if steps or key not in STEP_ONLY]
    known += [key for kind in artifacts for key in kind.keys]
    others = [mode for mode in modes if mode != STEP] if steps else []
    said = reader.mapping(value, way, [*known, *others])

    def at(key: str) -> tuple[Any, Way]:
        return said.get(key), (*way, key)

    intake, below = at("intake")
    return ExpectedOutput(
        expected_steps=_steps(reader, *at("expected_steps")),
        expected_function_calls=_calls(reader, *at("expected_function_calls")),
        scenario_instruction_used=reader.text(*at("scenario_instruction_used")),
        processing_time_ms=reader.number(*at("processing_time_ms")),
        status=reader.text(*at("status")),
        end=reader.text(*at("end")),
        reason=reader.text(*at("reason")),
        flags=reader.texts(*at("flags")),
        context=reader.any_mapping(*at("context")),
        fallbacks=_fallbacks(reader, *at("fallbacks")),
        forbidden_steps=reader.steps(*at("forbidden_steps")),
        forbidden_calls=reader.texts(*at("forbidden_calls")),
        allow_missing=reader.texts(*at("allow_missing")) or (),
        intake=_intake(reader, intake, below),
        artifacts=_artifacts(reader, said, way, artifacts),
        modes={
            mode: read_expected(reader, said[mode], (*way, mode), artifacts=artifacts, steps=False)
            for mode in others
            if said.get(mode) is not None
        },
    )


def _artifacts(
    reader: Reader, said: Mapping[str, Any], way: Way, artifacts: Sequence[Artifacts]
) -> dict[str, Any]:
    """What is expected of the artifacts, each key with a value of its type."""
    read: dict[str, Any] = {}
    for kind in artifacts:
        for key, take in (
            (kind.exists, reader.flag), (kind.contains, reader.texts), (kind.excludes, reader.texts),
            (kind.fields, reader.any_mapping),
        ):  # fmt: skip
            if key is not None and (value := take(said.get(key), (*way, key))) is not None:
                read[key] = value
    return read


def expects_anything(said: Mapping[str, Any]) -> bool:
    """True when there is something a case could fail by. A mistaken key counts: it is told of anyway."""
    return any(value is not None for key, value in said.items() if key != "allow_missing")


def _steps(reader: Reader, value: Any, way: Way) -> tuple[ExpectedStepExecution, ...] | None:
    items = reader.items(value, way)
    if items is None:
        return None
    steps = [_step(reader, item, here) for item, here in items]
    return tuple(step for step in steps if step is not None)


def _step(reader: Reader, value: Any, way: Way) -> ExpectedStepExecution | None:
    if not isinstance(value, Mapping):
        name = reader.step(value, way)
        return None if name is None else ExpectedStepExecution(name)
    said = reader.mapping(value, way, _STEP_KEYS)
    name = reader.step(said.get("step_name"), (*way, "step_name"))
    if said.get("step_name") in (None, ""):
        reader.problem(way, f"'{path_of(*way)}' needs step_name.")
    call: Any = UNSAID
    if "function_call" in said:
        named = said["function_call"]
        read = reader.texts(named, (*way, "function_call"))
        call = read if read is None or isinstance(named, list) else read[0]
        call = None if call == () else call
    args = reader.any_mapping(said.get("function_args"), (*way, "function_args"))
    if args is not None and isinstance(call, tuple):
        for key in args:
            if key not in call:
                reader.problem(
                    (*way, "function_args", key),
                    f"with several functions, function_args goes by their names; '{key}' is none of them: "
                    f"{', '.join(call)}.",
                )
            else:
                reader.any_mapping(args[key], (*way, "function_args", key))
    if args is not None and call is None:
        reader.problem((*way, "function_args"), "a step that calls no function has no function_args.")
    return ExpectedStepExecution(
        name or "",
        output_contains=reader.texts(said.get("output_contains"), (*way, "output_contains")) or (),
        output_excludes=reader.texts(said.get("output_excludes"), (*way, "output_excludes")) or (),
        function_call=call,
        function_args=args,
        data=reader.any_mapping(said.get("data"), (*way, "data")),
        next_step=reader.step(said.get("next_step"), (*way, "next_step")),
        mode=reader.text(said.get("mode"), (*way, "mode")),
        fallback=_fallback(reader, said["fallback"], (*way, "fallback")) if "fallback" in said else UNSAID,
    )


def _fallback(reader: Reader, value: Any, way: Way) -> str | bool | None:
    return value if isinstance(value, bool) else reader.text(value, way)


def _calls(reader: Reader, value: Any, way: Way) -> tuple[ExpectedFunctionCall, ...] | None:
    items = reader.items(value, way)
    if items is None:
        return None
    calls: list[ExpectedFunctionCall] = []
    for item, here in items:
        if isinstance(item, str):
            calls.append(ExpectedFunctionCall(item))
            continue
        said = reader.mapping(item, here, _CALL_KEYS)
        name = reader.text(said.get("function_name"), (*here, "function_name"))
        if not name:
            reader.problem(here, f"'{path_of(*here)}' needs function_name.")
        contain = reader.any_mapping(said.get("arguments_contain"), (*here, "arguments_contain")) or {}
        calls.append(
            ExpectedFunctionCall(
                name or "",
                arguments=reader.any_mapping(said.get("arguments"), (*here, "arguments")),
                arguments_contain={
                    key: reader.texts(texts, (*here, "arguments_contain", key)) or ()
                    for key, texts in contain.items()
                },
                result_contains=reader.any_mapping(said.get("result_contains"), (*here, "result_contains")),
                body_contains=reader.texts(said.get("body_contains"), (*here, "body_contains")) or (),
            )
        )
    return tuple(calls)


def _fallbacks(reader: Reader, value: Any, way: Way) -> tuple[ExpectedFallback, ...] | None:
    items = reader.items(value, way)
    if items is None:
        return None
    found: list[ExpectedFallback] = []
    for item, here in items:
        said = reader.mapping(item, here, ("step", "reason"))
        step = reader.step(said.get("step"), (*here, "step"))
        if said.get("step") in (None, ""):
            reader.problem(here, f"'{path_of(*here)}' needs step.")
        found.append(ExpectedFallback(step or "", reader.text(said.get("reason"), (*here, "reason"))))
    return tuple(found)


def _intake(reader: Reader, value: Any, way: Way) -> ExpectedIntake | None:
    said = reader.mapping(value, way, ("decision", "reason"))
    if value is None:
        return None
    decision = reader.text(said.get("decision"), (*way, "decision"))
    if not decision:
        reader.problem(way, f"'{path_of(*way)}' needs decision.")
    return ExpectedIntake(decision or "", reader.text(said.get("reason"), (*way, "reason")))
