"""What is refused of an agent's payload in this run, and what its role's validator asks at collaborator.

Refused at every level: names that nothing defines, plans that cannot be carried out, code that the policy
forbids, figures that no output has shown, thresholds that were loosened. The validators ask whether a payload
is right as far as that can be told before its work is judged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from detent.dispatch.proposal import Proposal, Verdict
from detent.engine.context import StepContext
from detent.flows.notebook.measuring.code_check import HOLDOUT, check_cells
from detent.flows.notebook.measuring.code_policy import check_policy
from detent.flows.notebook.measuring.criteria import CriterionRefused, parse_criterion
from detent.flows.notebook.measuring.expressions import assigned_names
from detent.flows.notebook.measuring.figures import unsupported_figures
from detent.flows.notebook.payloads.values import (
    Actions,
    BehaviorPlan,
    BehaviorReflection,
    ReadPayload,
    StagePlan,
    StageReflection,
    StepPlan,
)
from detent.flows.notebook.roles.answer import journaled_actions
from detent.flows.notebook.roles.dialect import FACTS, REQUEST, Check
from detent.flows.notebook.roles.facts import MeasuredFacts
from detent.flows.notebook.roles.request import request_for
from detent.flows.notebook.roles.role import Role
from detent.flows.notebook.run_view import LOG, NotebookRun
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.state.decisions import Limits, decide
from detent.flows.notebook.state.notebook_summary import written_actions
from detent.flows.notebook.state.variables import USER_INPUTS
from detent.kernel.errors import nearest

Inputs = Callable[[StepContext], Any]

EVALUATION = "holdout_evaluation"
"""The catalogue's step that looks at the rows held out."""
SCORED = "test_performance"
"""What a step that looks at them makes, also in a plan of an agent's own."""


class RoleChecks:
    """Inputs, checks and validators of the roles."""

    def __init__(self, settings: NotebookSettings, facts: MeasuredFacts) -> None:
        self._settings = settings
        self._facts = facts

    # -- inputs ---------------------------------------------------------------------------------------------

    def inputs_of(self, role: Role) -> Inputs:
        """What a role works on: the request that an agent is shown, and what its checks know."""

        async def inputs(ctx: StepContext) -> dict[str, Any]:
            run = NotebookRun(ctx.values)
            outputs = {
                cell.id: _texts(await ctx.kept(cell.outputs))
                for cell in run.live[-40:] if cell.outputs is not None
            }  # fmt: skip
            return {
                REQUEST: request_for(run, role, outputs, _messages(run, role)),
                FACTS: self._known(ctx, run, role, outputs),
            }

        return inputs

    def _known(
        self, ctx: StepContext, run: NotebookRun, role: Role, outputs: Mapping[str, str]
    ) -> dict[str, Any]:
        known: dict[str, Any] = {"variables": sorted(run.document.variables)}
        stage = run.document.stages.current
        step = run.document.steps.current
        match role.kind:
            case "T1":
                known["thresholds"] = [str(threshold) for threshold in run.reading.thresholds]
            case "T2" if stage is not None:
                known["artifacts"] = list(stage.verified_artifacts or ())
            case "T3" if step is not None:
                produced = set(run.document.steps.current_outputs.produced)
                known |= {
                    "step": step.step_id, "behavior": run.state.next_behavior_id,
                    "missing": [name for name in step.verified_artifacts or () if name not in produced],
                    "names": sorted(self._facts.known_names(run)),
                }  # fmt: skip
            case "T4":
                known |= {
                    "sources": [cell.source for cell in run.live if cell.is_code],
                    "texts": [
                        *outputs.values(), run.reading.problem, *map(str, run.document.variables.values())
                    ],
                    "outputs": list(run.behavior.outputs or ()),
                    "inputs": list(run.behavior.inputs or ()),
                    "holdout": _may_use_holdout(run),
                }  # fmt: skip
            case "T5" | "T6":
                limits = Limits(
                    self._settings.max_retries, self._settings.max_behaviors, self._settings.max_backtracks
                )
                facts = (
                    self._facts.of_behavior(ctx, run) if role.kind == "T5" else self._facts.of_step(ctx, run)
                )
                decision = decide(run.state, facts, limits)
                known |= {
                    "complete": decision.completes_step if role.kind == "T5" else decision.completes_stage,
                    "gaps": [gap.name for gap in facts.gaps],
                    "goal": "" if stage is None else stage.goal,
                    "thresholds": [str(threshold) for threshold in run.reading.thresholds],
                }  # fmt: skip
        return known

    # -- what is refused ------------------------------------------------------------------------------------

    def check_of(self, role: Role) -> Check:
        """The check of a role's payload in the run."""
        checks: Mapping[str, Callable[[Mapping[str, Any], Any, Sequence[Any]], Iterable[str]]] = {
            "T1": self._stage_plan, "T2": self._step_plan, "T3": self._behavior_plan, "T4": self._actions,
            "T5": _nothing, "T6": self._stage_reflection,
        }  # fmt: skip
        check = checks[role.kind]

        def problems(inputs: Mapping[str, Any], read: ReadPayload, acts: Sequence[Any]) -> list[str]:
            return list(check(inputs.get(FACTS, {}), read.value, acts))

        return problems

    @staticmethod
    def _stage_plan(known: Mapping[str, Any], plan: StagePlan, acts: Sequence[Any]) -> Iterable[str]:
        there = set(USER_INPUTS)
        for stage in plan.stages:
            for needed in stage.required_variables:
                if needed.name not in there:
                    names = ", ".join(sorted(there))
                    yield (
                        f"stages/{stage.id}: '{needed.name}' is required, but no earlier stage produces it. "
                        f"There are: {names}"
                    )
            there.update(artifact.name for artifact in stage.verified_artifacts)
        for needed_name in ("final_model", "test_performance"):
            if needed_name not in there:
                yield f"stages: no stage produces {needed_name}"
        for threshold in known.get("thresholds", ()):
            if not _mentions(plan.focus + plan.goals, threshold):
                yield f"focus: the user's threshold {threshold} is missing; it cannot be loosened"

    @staticmethod
    def _step_plan(known: Mapping[str, Any], plan: StepPlan, acts: Sequence[Any]) -> Iterable[str]:
        there = set(known.get("variables", ()))
        produced: set[str] = set()
        for step in plan.steps:
            for needed in step.required_variables:
                if needed.name not in there | produced:
                    yield (
                        f"steps/{step.id}: '{needed.name}' is required, but nothing produces it before. "
                        f"There are: {', '.join(sorted(there | produced))}"
                    )
            produced.update(artifact.name for artifact in step.verified_artifacts)
        missing = [name for name in known.get("artifacts", ()) if name not in produced | there]
        if missing:
            yield f"steps: no step produces {', '.join(missing)}"

    @staticmethod
    def _behavior_plan(known: Mapping[str, Any], plan: BehaviorPlan, acts: Sequence[Any]) -> Iterable[str]:
        variables = known.get("variables", ())
        if plan.step_id != known.get("step"):
            yield f"behavior/@step_id: the current step is '{known.get('step')}'"
        if plan.behavior_id != known.get("behavior"):
            yield f"behavior/@id: the next behavior is '{known.get('behavior')}'"
        for given in plan.inputs:
            if given.name not in variables:
                hint = nearest(given.name, variables)
                yield f"behavior/inputs: no variable '{given.name}' exists.{hint}"
        missing = known.get("missing", ())
        outputs = [output.name for output in plan.outputs]
        if not any(name in missing for name in outputs):
            yield f"behavior/outputs: none of the step's missing artifacts: {', '.join(missing)}"
        names = {*known.get("names", ()), *outputs}
        for text in plan.acceptance:
            try:
                parse_criterion(text, names)
            except CriterionRefused as refused:
                yield f"behavior/acceptance: {refused}"

    def _actions(self, known: Mapping[str, Any], actions: Actions, acts: Sequence[Any]) -> Iterable[str]:
        sources = list(known.get("sources", ()))
        texts = [str(text) for text in known.get("texts", ())]
        for act in acts:
            done = journaled_actions(act.effect.args["actions"])
            sources += [action.text for action in done.actions if action.kind == "add_code"]
            texts += [text for cell in act.receipt["cells"] for text in cell["texts"]]
        written, _ = written_actions(actions.actions)
        codes = [action.text for action in written if action.kind == "add_code"]
        names = {name for source in sources for name in assigned_names(source)} | set(known.get("inputs", ()))
        for problem in check_cells(
            codes,
            known=names,
            imports=sources,
            policy=self._settings.code_policy,
            holdout_is_closed=not known.get("holdout"),
        ):
            yield f"code cell {problem.cell + 1}, line {problem.line}: {problem.message}"
        for action in written:
            if action.kind == "add_text" and (
                figures := unsupported_figures(action.text, texts, sources=[*sources, *codes])
            ):
                yield f"text: no output, variable or source shows {', '.join(figures)}"

    @staticmethod
    def _stage_reflection(
        known: Mapping[str, Any], reflection: StageReflection, acts: Sequence[Any]
    ) -> Iterable[str]:
        review = reflection.goal_review
        if review is not None and review.needs_update:
            for threshold in known.get("thresholds", ()):
                if _mentions(known.get("goal", ""), threshold) and not _mentions(review.new_goal, threshold):
                    yield f"stage_goal_review/new_goal: the user's threshold {threshold} cannot be loosened"

    def refuses(self, args: Mapping[str, Any]) -> Iterable[str]:
        """What agents may not ask the effect for, in whichever way they call it."""
        if args.get("result"):
            yield "/result: cannot be asked for"
        try:
            actions = journaled_actions(args.get("actions", ()))
        except (ValueError, AssertionError):
            yield "/actions: cannot be read"
            return
        for action in actions.actions:
            if action.kind == "add_code":
                for problem in check_policy(action.text, self._settings.code_policy):
                    yield f"/actions: line {problem.line}: {problem.message}"

    # -- validators -----------------------------------------------------------------------------------------

    def validator_of(self, role: Role) -> Callable[[Mapping[str, Any], Proposal], Verdict]:
        """The validator of a role."""

        def validate(inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
            known = inputs.get(FACTS, {})
            plain = proposal.plain or {}
            match role.kind:
                case "T4":
                    return _outputs_are_there(known, proposal)
                case "T5":
                    return _same_decision(known, plain.get("payload", {}).get("step_is_complete"))
                case "T6":
                    verdict = _same_decision(known, plain.get("payload", {}).get("stage_is_complete"))
                    return verdict if not verdict.ok else _gaps_are_listed(known, plain.get("payload", {}))
                case _:
                    return Verdict(True)

        return validate


def _nothing(known: Mapping[str, Any], payload: BehaviorReflection, acts: Sequence[Any]) -> Iterable[str]:
    """A reflection on a behavior is a claim, and held against the measurement."""
    return ()


def _outputs_are_there(known: Mapping[str, Any], proposal: Proposal) -> Verdict:
    """At the end of the last round the outputs exist; before, more may follow."""
    if not proposal.final or not proposal.acts:
        return Verdict(True)
    measured = proposal.acts[-1].receipt["measured"]
    there = {name for name, facts in (measured.get("variables") or {}).items() if facts["exists"]}
    there |= {name for name, facts in (measured.get("files") or {}).items() if facts["exists"]}
    missing = [name for name in known.get("outputs", ()) if name not in there]
    return Verdict(not missing, tuple(f"/outputs: {name} was not produced" for name in missing))


def _same_decision(known: Mapping[str, Any], claimed: Any) -> Verdict:
    right = claimed is known.get("complete")
    return Verdict(right, () if right else ("/decision: differs from the measured one",))


def _gaps_are_listed(known: Mapping[str, Any], payload: Mapping[str, Any]) -> Verdict:
    listed = {gap.get("name") for gap in (payload.get("variables") or {}).get("gaps") or ()}
    missing = [name for name in known.get("gaps", ()) if name not in listed]
    return Verdict(not missing, tuple(f"/gaps: {name} is missing" for name in missing))


def _mentions(text: str, threshold: str) -> bool:
    """Whether a text holds a threshold: its metric, and its number as a number."""
    metric, _, number = threshold.split(" ")
    plain = text.replace(",", "").replace("²", "2").lower()
    return metric.lower() in plain.replace("^", "") and number.lower() in plain


def _messages(run: NotebookRun, role: Role) -> list[str]:
    """Communications for the agent of the current behavior since its behavior before this one."""
    behavior = run.document.behaviors.current
    if role.kind != "T4" or behavior is None:
        return []
    agent = (behavior.agent or "").lower()
    messages: list[str] = []
    for line in run.values.get(LOG, ()):
        if line.get("agent") == agent and line.get("behavior") != behavior.behavior_id:
            messages.clear()  # it was shown them then
        messages += [str(message["text"]) for message in line.get("messages", ()) if message["to"] == agent]
    return messages


def _may_use_holdout(run: NotebookRun) -> bool:
    """Whether a cell of the current step may name the rows held out: where they are drawn, where they are
    scored, and afterwards. A run that went back behind its evaluation has that still to come.
    """
    document = run.document
    here = run.step.verified_artifacts or {}
    if run.step.step_id == EVALUATION or not set(here).isdisjoint({*HOLDOUT, SCORED}):
        return True
    earlier = [stage.stage_id for stage in document.stages.completed]
    closed = run.state.ledger.closed_steps
    steps = [*document.steps.completed, *(step for stage in earlier for step in closed.get(stage, ()))]
    return any(SCORED in (step.verified_artifacts or {}) for step in steps)


def _texts(raw: bytes | None) -> str:
    """The text of kept outputs."""
    if raw is None:
        return ""
    outputs = json.loads(raw)
    return "\n".join(str(output.get("text") or output.get("evalue") or "") for output in outputs)
