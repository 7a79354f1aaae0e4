"""Any workflow does what a few lines of plain Python say it does: effects, outputs, what is undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.testing.clock import HandClock
from tests.examples import examples
from tests.flows.workflow.workshop import Workshop

Tree = tuple[Any, ...]


def trees(depth: int) -> st.SearchStrategy[Tree]:
    """Shapes of steps: `(kind, when, parts…)`."""
    when = st.sampled_from([None, None, None, True, False])
    leaf: st.SearchStrategy[Tree] = st.one_of(
        st.tuples(st.just("put"), when),
        st.tuples(st.just("put"), when),
        st.tuples(st.just("mark"), when),
        st.tuples(st.just("boom"), st.sampled_from([None, False, False, False])),
    )
    if not depth:
        return leaf
    inner = trees(depth - 1)
    body = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        leaf,
        st.tuples(st.just("each"), when, st.integers(0, 3), body),
        st.tuples(st.just("until"), when, st.integers(0, 2), body),
        st.tuples(st.just("branch"), when, st.lists(st.tuples(st.booleans(), inner), min_size=1, max_size=3)),
        st.tuples(st.just("sub"), when, body),
    )


@dataclass
class Written:
    """The shapes as files."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    numbers: Any = field(default_factory=count)

    def steps(self, shapes: list[Tree]) -> list[dict[str, Any]]:
        return [self.step(shape) for shape in shapes]

    def step(self, shape: Tree) -> dict[str, Any]:
        kind, when, *parts = shape
        name = f"{kind}{next(self.numbers)}"
        said: dict[str, Any] = {"name": name}
        if when is not None:
            said["when"] = when
        match kind, parts:
            case "put", _:
                return said | {"type": "python", "action": "put", "kwargs": {"text": name}}
            case "boom", _:
                return said | {"type": "python", "action": "boom"}
            case "mark", _:
                return said | {"type": "checkpoint"}
            case "each", [size, body]:
                return said | {"type": "loop", "for_each": f"inputs.n{size}", "steps": self.steps(body)}
            case "until", [last, body]:
                return said | {"type": "loop", "until": f"index == {last}", "steps": self.steps(body)}
            case "branch", [options]:
                return said | {
                    "type": "branch",
                    "options": [{"when": f"inputs.{'yes' if on else 'no'}", "step": self.step(one)}
                                for on, one in options],
                }  # fmt: skip
            case _, [body]:
                self.file(name, body)
                return said | {"type": "subworkflow", "workflow": name, "inputs": {}}
        raise AssertionError(kind)

    def file(self, name: str, shapes: list[Tree]) -> dict[str, Any]:
        inputs: dict[str, Any] = {
            f"n{size}": {"type": "array", "default": list(range(size))} for size in range(4)
        }
        inputs |= {"yes": {"type": "boolean", "default": True}, "no": {"type": "boolean", "default": False}}
        self.files[name] = {"version": "1.0", "name": name, "inputs": inputs, "steps": self.steps(shapes)}
        return self.files[name]


class Failed(Exception):
    """A step failed."""


@dataclass
class Model:
    """What files mean, in a few lines."""

    files: dict[str, dict[str, Any]]
    effects: list[tuple[str, str]] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)

    def whole(self, name: str) -> tuple[bool, Any]:
        try:
            output = self.file(name, "")
        except Failed:
            self.effects += [("take", text) for what, text in reversed(self.effects) if what == "put"]
            return False, None
        return True, output

    def file(self, name: str, prefix: str) -> Any:
        given: Any = None
        for step in self.files[name]["steps"]:
            status, output = self.step(step, prefix)
            given = output if status == "ok" else given
        return given

    def step(self, step: dict[str, Any], prefix: str) -> tuple[str, Any]:
        path = prefix + step["name"]
        if step.get("when") is False:
            self.outcomes.append((path, "skipped"))
            return "skipped", None
        try:
            output = self.perform(step, path)
        except Failed:
            self.outcomes.append((path, "failed"))
            raise
        self.outcomes.append((path, "ok"))
        return "ok", output

    def perform(self, step: dict[str, Any], path: str) -> Any:
        def body(index: int) -> list[Any]:
            return [self.step(one, f"{path}/[{index}]/")[1] for one in step["steps"]]

        match step:
            case {"action": "put", "name": name}:
                self.effects.append(("put", name))
                return {"text": name, "number": len(self.effects)}
            case {"action": "boom"}:
                raise Failed
            case {"type": "checkpoint", "name": name}:
                return {"saved": True, "checkpoint_id": name, "timestamp": HandClock().now()}
            case {"for_each": said}:
                return [body(index) for index in range(int(said[-1]))]
            case {"until": said}:
                return [body(index) for index in range(int(said[-1]) + 1)]
            case {"options": options}:
                chosen = next((one["step"] for one in options if one["when"] == "inputs.yes"), None)
                return None if chosen is None else self.step(chosen, f"{path}/")[1]
            case {"workflow": name}:
                return self.file(name, f"{path}/")
        raise AssertionError(step)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(trees(3), min_size=1, max_size=4))
async def test_any_workflow_does_what_its_file_says(shapes: list[Tree]) -> None:
    """D-65, D-67, D-69: with a clock that stands still, so that nothing is told by times."""
    written = Written()
    written.file("flow", shapes)
    expected = Model(written.files)
    success, output = expected.whole("flow")
    with TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        workshop.files = {name: yaml.safe_dump(said, sort_keys=False) for name, said in written.files.items()}
        ran = await workshop.run(workshop.files.pop("flow"), engine={"clock": HandClock()})
    assert ran.result.success is success
    assert ran.result.final_output == output
    assert ran.effects == expected.effects
    assert [(one.path, one.status) for one in ran.result.step_results] == expected.outcomes
    begun = [event.step_path for event in ran.events if type(event).__name__ == "StepStarted"]
    ended = [event.step_path for event in ran.events if type(event).__name__ == "StepCompleted"]
    assert ended == [path for path, _ in expected.outcomes]
    assert sorted(begun) == sorted(ended)
