"""Random legal runs: plans of any shape, and facts that lead along any row."""

from __future__ import annotations

from detent.flows.notebook.payloads.values import StagePlan, StepPlan
from detent.flows.notebook.state.decisions import Decision, decide
from detent.flows.notebook.state.facts import ArtifactFact, CriterionFact, Facts, GapFact, Verdict
from detent.flows.notebook.state.machine import ENDS, NotebookState
from detent.flows.notebook.state.transitions import apply
from tests.flows.notebook.state.samples import (
    AT,
    behavior,
    idle,
    reflection,
    stage,
    stage_reflection,
    step,
)

S = NotebookState


def walk(random, longest=60):
    """The moves of a random run, each with what it was made from and the state after it."""
    run = idle()
    for _ in range(longest):
        state = run.document.fsm.state
        if state in ENDS:
            return
        if random.random() < 0.01:
            decision, facts, payloads = Decision.of(random.choice("78"), state), Facts(AT), ()
        else:
            decision, facts, payloads = _next(random, run)
        run = apply(run, decision, facts, *payloads)
        yield decision, facts, payloads, run


def _next(random, run):
    document = run.document
    match document.fsm.state:
        case S.IDLE:
            stages = tuple(
                stage(f"stage_{number}", f"s{number}", f"t{number}", optional=random.random() < 0.2)
                for number in range(random.randint(1, 4))
            )
            return Decision.of("1", S.IDLE), Facts(AT), (StagePlan(stages, focus="all of it"),)
        case S.STAGE_RUNNING:
            kept = run.ledger.closed_steps.get(document.stages.current.stage_id, ())
            first = run.ledger.row == "6d" and len(kept)
            return Decision.of("2", S.STAGE_RUNNING), Facts(AT), (_steps(random, run, first or 0),)
        case S.STEP_RUNNING:
            return Decision.of("3", S.STEP_RUNNING), Facts(AT), (_behavior(run, run.next_behavior_id),)
        case S.BEHAVIOR_RUNNING:
            texts = tuple(f"{random.random()}\n" for _ in range(random.randint(0, 3)))
            produced = {name: random.choice(["text", 3, [1, 2], None]) for name in random.sample("abcd", 2)}
            facts = Facts(AT, outputs=tuple((text,) for text in texts), variables=produced)
            return Decision.of("4", S.BEHAVIOR_RUNNING), facts, ()
        case S.BEHAVIOR_COMPLETED:
            facts = _facts(random, run)
            decision = decide(run, facts)
            payloads = (reflection(decision.completes_step, if_continuing="again"),)
            if decision.row == "5b":
                payloads = (*payloads, _behavior(run, run.next_behavior_id))
            return decision, facts, payloads
        case _:
            facts = _facts(random, run)
            decision = decide(run, facts)
            experience = "learned" if decision.completes_stage else None
            reflected = stage_reflection(decision.completes_stage, experience=experience, next_focus="on")
            if decision.row == "6e" or (decision.row == "6d" and decision.to is S.STEP_RUNNING):
                first = int(decision.gap.producer_step.split("_")[1]) if decision.gap else 0
                return decision, facts, (reflected, _steps(random, run, first))
            return decision, facts, (reflected,)


def _steps(random, run, first):
    here = run.document.stages.current.stage_id.removeprefix("stage_")
    last = first + random.randint(1, 3)
    return StepPlan(
        tuple(step(f"step_{number}_{here}", f"a{number}", f"b{number}") for number in range(first, last)),
        goals=random.choice(["", "", "A better goal."]),
    )


def _behavior(run, behavior_id):
    names = run.document.steps.current_outputs.expected_names
    return behavior(behavior_id, names[0], inputs=("user_problem",))


def _facts(random, run):
    document = run.document
    luck = random.random()

    def verdict(names: tuple[str, ...], likely: float) -> Verdict:
        lucky = random.random() < likely
        return Verdict(
            tuple(
                ArtifactFact(name, "complete")
                if lucky or random.random() < 0.5
                else ArtifactFact(
                    name, random.choice(["missing", "incomplete"]), random.choice(["stale", "criterion"])
                )
                for name in names
            ),
            tuple(
                CriterionFact(
                    f"{name} > 0", lucky or random.random() < 0.7, random.choice("01"), random.random() < 0.2
                )
                for name in names
            ),
        )

    gaps = []
    if document.fsm.state is S.STEP_COMPLETED and luck < 0.3:
        done = [(document.stages.current.stage_id, known.step_id) for known in document.steps.completed]
        done += [
            (stage_id, known.step_id)
            for stage_id, steps in run.ledger.closed_steps.items()
            for known in steps
        ]
        if done:
            stage_id, step_id = random.choice(done)
            gaps.append(GapFact(random.choice("xyz"), "next", True, stage_id, step_id, random.random() < 0.5))
    return Facts(
        AT,
        raised=random.random() < 0.1,
        died=random.random() < 0.05,
        behavior=verdict(document.behaviors.current_outputs.expected_names, 0.7),
        step=verdict(document.steps.current_outputs.expected_names, 0.6),
        stage=verdict(document.stages.current_outputs.expected_names, 0.6),
        gaps=tuple(gaps),
        revision_offered=random.random() < 0.5,
        reexecuted=random.choice([None, True, False]),
        dropped_variables=tuple(random.sample("abcd", random.randint(0, 1))),
    )
