"""Plans, reflections and facts, made short; and the examples of the state JSON."""

import json
from pathlib import Path

from detent.flows.notebook.payloads.values import (
    Action,
    Actions,
    ArtifactJudged,
    BehaviorPlan,
    BehaviorReflection,
    CriterionJudged,
    Deprecated,
    Named,
    PcsTexts,
    PlannedStage,
    PlannedStep,
    StagePlan,
    StageReflection,
    StepPlan,
    Tracking,
    VariableManagement,
)
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.document import StateDocument
from detent.flows.notebook.state.facts import ArtifactFact, CriterionFact, Facts, Verdict
from detent.flows.notebook.state.ledger import RunState
from detent.flows.notebook.state.state_json import read_state
from detent.flows.notebook.state.transitions import apply

AT = "2025-03-01T12:00:00Z"
PCS = PcsTexts("holds out rows", "seeds are set", "refits are compared")
EXAMPLES = Path(__file__).with_name("examples")
NAMES = (
    "x1_idle",
    "x2_stage_running",
    "x3_step_running",
    "x4_behavior_running",
    "x5_behavior_completed",
    "x6_step_completed",
)


def example(name: str) -> dict:
    return json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))


def overlaid(*parts: dict) -> dict:
    """What several prints of one state show together: the later one wins, key by key."""
    whole: dict = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(whole.get(key), dict)
            whole[key] = overlaid(whole[key], value) if both else value
    return whole


def stage(stage_id: str, *artifacts: str, needs: tuple = (), optional: bool = False) -> PlannedStage:
    return PlannedStage(
        stage_id,
        stage_id.title(),
        f"Do {stage_id}. Artifacts: {', '.join(artifacts)}. Acceptance: len({artifacts[0]}) > 0.",
        tuple(Named(name, f"the {name}") for name in artifacts),
        tuple(Named(name) for name in needs),
        optional,
    )


def step(step_id: str, *artifacts: str, needs: tuple = ()) -> PlannedStep:
    return PlannedStep(
        step_id,
        step_id.title(),
        f"Do {step_id}. Artifacts: {', '.join(artifacts)}. Acceptance: {artifacts[0]} is not None.",
        tuple(Named(name, f"the {name}") for name in artifacts),
        PCS,
        tuple(Named(name) for name in needs),
    )


def behavior(behavior_id: str, *outputs: str, inputs: tuple = (), task: str = "Do it.") -> BehaviorPlan:
    return BehaviorPlan(
        behavior_id,
        behavior_id.rpartition("_b")[0],
        "Explore",
        task,
        tuple(Named(name) for name in outputs),
        (f"{outputs[0]} is not None",),
        tuple(Named(name, "as the payload says") for name in inputs),
    )


def verdict(*complete: str, missing: tuple = (), failed: dict | None = None, locked: bool = False) -> Verdict:
    """Artifacts that are complete and missing, and criteria: one that passed, and those that failed."""
    return Verdict(
        (
            *(ArtifactFact(name, "complete") for name in complete),
            *(ArtifactFact(name, "missing", "absent") for name in missing),
        ),
        (
            CriterionFact("1 < 2", True, "True"),
            *(CriterionFact(text, False, value, locked) for text, value in (failed or {}).items()),
        ),
    )


def reflection(complete: bool = True, *artifacts: str, failing: tuple = (), **fields) -> BehaviorReflection:
    return BehaviorReflection(
        complete,
        (
            *(ArtifactJudged(name, "complete") for name in artifacts),
            *(ArtifactJudged(name, "missing") for name in failing),
        ),
        (CriterionJudged("len(x) > 0", "failed" if failing else "passed"),),
        "success",
        "achieved" if complete else "partial",
        "STEP_COMPLETED" if complete else "STEP_RUNNING",
        "because",
        Tracking(artifacts, (), failing),
        **fields,
    )


def stage_reflection(complete: bool = False, step_id: str = "one", **fields) -> StageReflection:
    deprecated = fields.pop("deprecate", ())
    return StageReflection(
        stage_is_complete=complete,
        step_id=step_id,
        step_status="complete",
        completed_steps=1,
        remaining_steps=0 if complete else 1,
        percentage=100.0 if complete else 50.0,
        artifacts=(),
        goal_status="achieved" if complete else "partial",
        next_state="STAGE_COMPLETED" if complete else "STEP_RUNNING",
        reasoning="because",
        variables=VariableManagement(deprecate=tuple(Deprecated(name) for name in deprecated)),
        tracking=Tracking(),
        pcs_check=PCS,
        **fields,
    )


def idle() -> RunState:
    return RunState(
        read_state(
            {
                "state": {
                    "variables": {"user_problem": "Predict price", "user_submit_files": ["a.csv"]},
                    "FSM": {"state": "IDLE", "timestamp": AT},
                }
            }
        )
    )


STAGES = StagePlan(
    (
        stage("first", "frame", "report", needs=("user_submit_files",)),
        stage("second", "model", needs=("frame",)),
        stage("third", "notes", needs=("model",), optional=True),
    ),
    focus="RMSE < 25000",
)
STEPS = StepPlan((step("load", "frame"), step("describe", "report", needs=("frame",))), focus="Look first.")


def move(run: RunState, row: str, *payloads, to=None, gap=None, **facts) -> RunState:
    """A move by its row."""
    decision = Decision.of(
        row, run.document.fsm.state, to=to, gap=gap, closes_as=facts.pop("closes_as", "success")
    )
    return apply(run, decision, Facts(AT, **facts), *payloads)


def started() -> RunState:
    return move(idle(), "1", STAGES)


def in_step() -> RunState:
    return move(started(), "2", STEPS)


def in_behavior() -> RunState:
    return move(in_step(), "3", behavior("load_b1", "frame", inputs=("user_submit_files",)))


def behaved(*texts: str, **variables) -> RunState:
    actions = Actions((Action("add_text", "We load."), Action("add_code", "frame = 1")))
    return move(
        in_behavior(), "4", actions, outputs=(texts or ("1\n",),), variables=variables or {"frame": 1}
    )


def step_done() -> RunState:
    return move(behaved(), "5a", reflection(True, "frame"), behavior=verdict("frame"), step=verdict("frame"))


def second_step() -> RunState:
    return move(step_done(), "6a", stage_reflection(), stage=verdict("frame", missing=("report",)))


def second_behaved() -> RunState:
    run = move(second_step(), "3", behavior("describe_b1", "report", inputs=("frame",)))
    return move(run, "4", outputs=(("2\n",),), variables={"report": "text"})


def all_steps_done() -> RunState:
    found = verdict("report")
    return move(second_behaved(), "5a", reflection(True, "report"), behavior=found, step=found)


def with_row(run: RunState, **ledger) -> RunState:
    """The run with other entries in its ledger."""
    from dataclasses import replace

    return RunState(run.document, replace(run.ledger, **ledger))


def document_of(*names: str) -> StateDocument:
    return read_state(overlaid(*(example(name) for name in names)))
