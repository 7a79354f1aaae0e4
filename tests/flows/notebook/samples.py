"""A small table, engines with the notebook flow, and models that know nothing but their prompt."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detent.adapters.models.scripted import ScriptedSource
from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.evidence import ByLevel, EvidenceRules
from detent.dispatch.executor import Availability, ExecutorResult
from detent.engine.engine import Engine
from detent.flows.notebook.flow import NotebookFlow
from detent.flows.notebook.history import Transition, transitions
from detent.flows.notebook.roles.role import ROLES
from detent.flows.notebook.run_view import RunOptions
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.start import Beginning, start_notebook
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run

PROBLEM = "Predict price; R2 > 0.5"
"""A problem that the small table solves easily."""
PLAIN_PROBLEM = "Predict price"
"""The same without a threshold, for plans of a model's own."""
ALL_ROLES = tuple(ROLES)
UNAUDITED = EvidenceRules(audit=ByLevel(0.0, 0.0), recheck=0)
"""The rules as shipped, without audits and rechecks."""


def write_table(file: Path, rows: int = 60) -> Path:
    """Sixty houses with an area, rooms and a price that follows from them."""
    numbers = random.Random(5)
    with file.open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table)
        writer.writerow(["area", "rooms", "price"])
        for _ in range(rows):
            area, rooms = round(numbers.uniform(40, 200), 1), numbers.randint(1, 6)
            writer.writerow([area, rooms, round(900 * area + 5000 * rooms + numbers.gauss(0, 9000))])
    return file


# -- engines ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(
    folder: Path,
    *,
    dispatch: DispatchSettings | None = None,
    observers: Iterable[Any] = (),
    flow: NotebookFlow | None = None,
    store: Any = None,
    **settings: Any,
) -> AsyncIterator[Engine]:
    """An engine whose runs are kept in the folder."""
    flow = flow or NotebookFlow(NotebookSettings(**settings))
    store = store or SQLiteStore(folder / "runs.db")
    async with Engine(store, [flow], dispatch=dispatch, observers=observers) as engine:
        yield engine


def beginning(folder: Path, problem: str = PROBLEM, *, verify: bool = False, **options: Any) -> Beginning:
    """The small table and what is asked about it."""
    file = folder / "houses.csv"
    if not file.exists():
        write_table(file)
    return Beginning(problem, [file], folder / "work", options=RunOptions(verify=verify, **options))


async def driven(
    engine: Engine,
    folder: Path,
    problem: str = PROBLEM,
    *,
    moves: int | None = None,
    until: Any = None,
    verify: bool = False,
    **options: Any,
) -> Run:
    """A run of the problem, to its end or as far as told."""
    started = beginning(folder, problem, verify=verify, **options)
    stop: dict[str, Any] = {} if moves is None else {"stop_after": moves}
    if until is not None:
        stop["stop_at"] = until
    run_id = await start_notebook(engine, started, drive=not stop)
    return await engine.finish(run_id, **stop)


async def history(engine: Engine, run_id: str) -> list[Transition]:
    """The run's transitions, the start first."""
    return [transition async for transition in transitions(engine.store, run_id)]


async def log_lines(engine: Engine, run_id: str) -> list[Mapping[str, Any]]:
    """Every line of the run's log."""
    return [line for transition in await history(engine, run_id) for line in transition.lines]


# -- models -------------------------------------------------------------------------------------------------

Answer = str | Callable[[str], str]
"""What a model writes: a text, or a function of the prompt."""


@dataclass(frozen=True)
class Request:
    """What a model was sent."""

    role: str
    prompt: str
    instructions: str

    @property
    def state(self) -> Mapping[str, Any]:
        """The state as the prompt shows it."""
        return section(self.prompt, "STATE")

    @property
    def observation(self) -> Mapping[str, Any]:
        """The location and the progress as the prompt shows them."""
        return section(self.prompt, "OBSERVATION")


def section(prompt: str, name: str) -> Any:
    """A part of a prompt, read as JSON."""
    text = prompt[re.search(rf"^{name}\n", prompt, re.M).end() :]
    return json.JSONDecoder().raw_decode(text)[0]


class Model:
    """A model that knows its prompt alone; for each role one answer for all visits, or several in turn."""

    def __init__(self, answers: Mapping[str, Answer | list[Answer]]) -> None:
        self._answers = dict(answers)
        self.requests: list[Request] = []

    def asked(self, role: str) -> list[Request]:
        """The requests to a role."""
        return [request for request in self.requests if request.role == role]

    async def execute(
        self, *, step_name: str, prompt: Any, instructions: str | None = None, **_: Any
    ) -> ExecutorResult:
        """The next answer of the role."""
        role = step_name.rpartition("/")[2]
        self.requests.append(Request(role, str(prompt), instructions or ""))
        answer = self._answers[role]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return ExecutorResult(answer(str(prompt)) if callable(answer) else answer)

    def available(self) -> Availability:
        """Always."""
        return Availability(True)


def agents(
    executor: Any, roles: Iterable[str] = ALL_ROLES, level: str = "approver", attempts: int = 2
) -> DispatchSettings:
    """Settings with these roles in agent mode."""
    config = StepConfig(
        mode=StepMode.AGENT, autonomy=AutonomyLevel(level), retry_policy=RetryPolicy(attempts, 0, 0)
    )
    return DispatchSettings(
        steps={f"notebook/{role}": config for role in roles}, executors=ScriptedSource(executor),
        evidence=UNAUDITED,
    )  # fmt: skip


# -- what a model writes ------------------------------------------------------------------------------------

STAGES = """<stages>
  <remaining>
    <stage id="mean_model" title="A mean as the model">
      <goal>Predict by the mean. Artifacts: final_model, test_performance. Acceptance: final_model > 0</goal>
      <verified_artifacts>
        <variable name="final_model">the mean</variable>
        <variable name="test_performance">its error</variable>
      </verified_artifacts>
    </stage>
  </remaining>
  <focus>simple and sound</focus>
</stages>"""
"""A plan of one stage. Its comparison is not escaped, as models write it."""

STEPS = """<steps>
  <step id="take_mean" title="Take the mean">
    <goal>Take a mean. Artifacts: final_model. Acceptance: final_model &gt; 1</goal>
    <verified_artifacts><variable name="final_model">the mean</variable></verified_artifacts>
    <pcs_considerations><predictability>none</predictability><computability>one line</computability>
      <stability>it is constant</stability></pcs_considerations>
  </step>
  <step id="score_mean" title="Score the mean">
    <goal>Score it. Artifacts: test_performance. Acceptance: test_performance["rmse"] &gt; 0</goal>
    <verified_artifacts><variable name="test_performance">its error</variable></verified_artifacts>
    <required_variables><variable name="final_model">the mean</variable></required_variables>
    <pcs_considerations><predictability>none</predictability><computability>one line</computability>
      <stability>it is constant</stability></pcs_considerations>
  </step>
  <focus>short cells</focus>
</steps>"""

MEAN = "final_model = 2.0\nprint('mean', final_model)"
SCORE = 'test_performance = {"rmse": final_model / 2, "n": 3}\nprint(test_performance)'
CODE = {"take_mean": MEAN, "score_mean": SCORE}
CRITERIA = {"take_mean": "final_model == 2.0", "score_mean": 'test_performance["n"] == 3'}
OUTPUTS = {"take_mean": "final_model", "score_mean": "test_performance"}


def escaped(text: str) -> str:
    """A text as XML has it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def actions(*parts: tuple[str, str] | str) -> str:
    """A round: pairs of tag and text; a bare text is code."""
    pairs = [("add-code2run", part) if isinstance(part, str) else part for part in parts]
    inner = "".join(f"<{tag}>{escaped(text)}</{tag.split(' ')[0]}>" for tag, text in pairs)
    return f"<actions>{inner}</actions>"


DONE = actions(("add-text", "That is all."))
"""A round without code, which ends a behavior."""


def step_of(prompt: str) -> str:
    """The current step, as a prompt tells it."""
    return str(section(prompt, "OBSERVATION")["location"]["current"]["step_id"])


def arranged(prompt: str) -> str:
    """The first behavior of the current step."""
    step = step_of(prompt)
    return (
        f'<behavior id="{step}_b1" step_id="{step}"><agent>Model</agent><task>write a cell</task>'
        f'<outputs><artifact name="{OUTPUTS[step]}">a number</artifact></outputs>'
        f"<acceptance><criterion>{escaped(CRITERIA[step])}</criterion></acceptance></behavior>"
    )


def written(prompt: str) -> str:
    """Text and a cell; a closing text once there is output."""
    if "effects.current\n" in prompt:
        return DONE
    return actions(("add-text", "A cell."), CODE[step_of(prompt)])


def reflected(prompt: str, *, complete: bool = True) -> str:
    """A reflection that calls the behavior complete, or not."""
    step = step_of(prompt)
    status, state = ("complete", "STEP_COMPLETED") if complete else ("missing", "STEP_RUNNING")
    judged = "passed" if complete else "failed"
    return f"""<reflection current_step_is_complete="{str(complete).lower()}"><evaluation>
      <artifacts_produced><artifact name="{OUTPUTS[step]}" status="{status}"/></artifacts_produced>
      <acceptance_validation><criterion status="{judged}">{escaped(CRITERIA[step])}</criterion>
      </acceptance_validation>
      <execution_quality><code_execution>success</code_execution></execution_quality>
      <goal_achievement><status>{"achieved" if complete else "not_achieved"}</status></goal_achievement>
      </evaluation>
      <decision><next_state>{state}</next_state><reasoning>seen</reasoning></decision>
      <outputs_tracking_update/></reflection>"""


def stage_reflected(prompt: str) -> str:
    """A reflection that closes the stage after its second step."""
    step = step_of(prompt)
    last = step == "score_mean"
    state = "STAGE_COMPLETED" if last else "STEP_RUNNING"
    experience = '<stage_experience from="mean_model">A mean will do.</stage_experience>' if last else ""
    return f"""<stage_reflection stage_is_complete="{str(last).lower()}">
      <step_evaluation><step_id>{step}</step_id><completion_status>complete</completion_status>
      </step_evaluation>
      <stage_assessment><progress><completed_steps>{1 + last}</completed_steps>
      <remaining_steps>{1 - last}</remaining_steps><percentage>{100 if last else 50}</percentage></progress>
      <stage_artifacts_status><artifact name="final_model" status="complete"/></stage_artifacts_status>
      <goal_status>{"achieved" if last else "partial"}</goal_status></stage_assessment>{experience}
      <decision><next_state>{state}</next_state><reasoning>seen</reasoning></decision>
      <variable_management/><outputs_update/>
      <pcs_check><predictability>p</predictability><computability>c</computability><stability>s</stability>
      </pcs_check></stage_reflection>"""


def answers(**changed: Answer | list[Answer]) -> dict[str, Answer | list[Answer]]:
    """What a model writes that plans one stage of two steps with a cell each."""
    return {
        "stage_planner": STAGES,
        "step_planner": STEPS,
        "behavior_arranger": arranged,
        "action_generator": written,
        "behavior_reflector": reflected,
        "stage_reflector": stage_reflected,
        **changed,
    }
