"""What was measured, as the facts on which a reflection rests.

The kernel was looked at when the last round was over; everything here is read from that, and from the cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.engine.context import StepContext
from detent.flows.notebook.cells import Cell
from detent.flows.notebook.domain.catalogue import (
    Scored,
    closing_criteria,
    locked_criteria,
    plan_artifacts,
    producer_of,
    stage_of_step,
)
from detent.flows.notebook.domain.catalogue_data import find_stage
from detent.flows.notebook.domain.probes import (
    fingerprint_probe,
    folds_probe,
    hold_out_probe,
    leaks_probe,
    primary_metric,
    read_measured,
    verdicts,
)
from detent.flows.notebook.kernel.session import ACTIONS
from detent.flows.notebook.measuring.artifacts import FileInfo, classify_all, is_file
from detent.flows.notebook.measuring.claims import compare_behavior, compare_stage
from detent.flows.notebook.measuring.criteria import (
    Criterion,
    CriterionRefused,
    parse_criterion,
    read_goal,
    threshold_criterion,
)
from detent.flows.notebook.measuring.execution import ExecutionQuality
from detent.flows.notebook.measuring.expressions import assigned_names
from detent.flows.notebook.measuring.reflection import (
    StageFacts,
    feedback,
    reflect_on_behavior,
    reflect_on_stage,
)
from detent.flows.notebook.measuring.variables import (
    Producer,
    VariableFacts,
    find_gaps,
    future_uses,
    manage_variables,
    shown_value,
)
from detent.flows.notebook.payloads.values import (
    BehaviorReflection,
    PcsTexts,
    StageReflection,
    StepPlan,
)
from detent.flows.notebook.recipes.cookbook import CLOSING
from detent.flows.notebook.roles.move import moment
from detent.flows.notebook.roles.variants import is_spent
from detent.flows.notebook.run_view import FINGERPRINT, NotebookRun
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.facts import CriterionFact, Facts, GapFact, Verdict
from detent.flows.notebook.verification import check_of

HOLDERS: tuple[Scored, ...] = ("cv_metrics", "test_performance")
"""Variables on whose figures the user's thresholds are judged."""
LONGEST_CODE = 200
"""Characters of an attempt's code that its successor is told."""
MODEL = "final_model"
"""The variable with which the work can go on."""


def facts_now(ctx: StepContext, **more: Any) -> Facts:
    """Facts of this moment."""
    return Facts(moment(ctx.now()), **more)


def artifacts_to_measure(run: NotebookRun) -> tuple[str, ...]:
    """The artifacts of the current behavior, step and stage."""
    names = [*(run.behavior.outputs or ()), *(run.step.verified_artifacts or ())]
    return tuple(dict.fromkeys([*names, *(run.stage.verified_artifacts or ())]))


def variables_of(measured: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The values of variables that are there, as the state shows them."""
    found, files = _variables(measured), _files(measured)
    values: dict[str, Any] = {}
    for name in names:
        if is_file(name):
            if name in files and files[name].exists:
                values[name] = name
        elif name in found and found[name].exists:
            values[name] = shown_value(name, found[name])
    return values


def produced_now(run: NotebookRun) -> tuple[str, ...]:
    """What the behavior that was just reflected on has produced of its step."""
    behavior = run.document.behaviors.current
    if behavior is None or not run.measured:
        return ()
    assigned = _assigned(run, [cell for cell in run.cells if cell.attempt == run.attempt])
    facts = classify_all(
        list(run.step.verified_artifacts or ()), _variables(run.measured), _files(run.measured),
        assigned=assigned,
    )  # fmt: skip
    return tuple(fact.name for fact in facts if fact.status == "complete")


class MeasuredFacts:
    """The facts of a run, as its reflectors need them."""

    def __init__(self, settings: NotebookSettings) -> None:
        self._settings = settings

    # -- what is to be looked at ----------------------------------------------------------------------------

    def given(self, ctx: Any) -> dict[str, Any]:
        """Where the run stands, for the effect that performs a round."""
        run = NotebookRun(ctx.values)
        done = sum(1 for settled in ctx.run.settled.values() if settled.get("tool") == ACTIONS)
        criteria = [*self.criteria_of_behavior(run), *self._of_step(run), *self._of_stage(run)]
        return {
            "behavior": run.behavior.behavior_id,
            "iteration": run.iteration,
            "round": done + 1,
            "base": run.base,
            "names": list(artifacts_to_measure(run)),
            "criteria": list(dict.fromkeys(criterion.text for criterion in criteria)),
            "probes": self._probes(run),
        }

    def _probes(self, run: NotebookRun) -> dict[str, str]:
        """The flow's own look at scores and leaks, where they arise."""
        reading, settings = run.reading, self._settings
        due = {*(run.behavior.outputs or ()), *(run.step.verified_artifacts or ())}
        probes: dict[str, str] = {}
        if "raw_dataset" in due:
            probes["raw_dataset"] = fingerprint_probe()
        if "cv_metrics" in due:
            probes["cv_metrics"] = folds_probe(reading, seed=settings.seed)
        if "test_performance" in due:
            probes["test_performance"] = hold_out_probe(
                reading, test_size=settings.test_size, fingerprint=run.values.get(FINGERPRINT)
            )
        if "leakage_report" in due:
            probes["leakage_report"] = leaks_probe(reading)
        return probes

    def known_names(self, run: NotebookRun) -> frozenset[str]:
        """Names that cells define, or that the current step or stage is to produce."""
        names = _names(run.live)
        for item in (run.stage, run.document.steps.current, *run.document.steps.remaining):
            if item is not None:
                names.update(item.verified_artifacts or ())
        behavior = run.document.behaviors.current
        if behavior is not None:
            names.update(behavior.outputs or ())
        return frozenset({*names, *run.document.variables})

    def criteria_of_behavior(self, run: NotebookRun) -> list[Criterion]:
        """The criteria that the behavior's plan names, and the thresholds that are due."""
        criteria: list[Criterion] = []
        for text in run.behavior.acceptance or ():
            try:
                criteria.append(parse_criterion(text))
            except CriterionRefused:
                continue  # a plan with one is refused; a foreign state may hold it
        return [*criteria, *self._locked(run, run.behavior.outputs or ())]

    def _of_step(self, run: NotebookRun) -> list[Criterion]:
        goal = read_goal(run.step.goal, self.known_names(run))
        return [*goal.criteria, *self._locked(run, run.step.verified_artifacts or ())]

    def _of_stage(self, run: NotebookRun) -> list[Criterion]:
        known = self.known_names(run)
        goals = (*run.state.ledger.earlier_goals, run.stage.goal)
        # The thresholds are judged where their scores arise, and the ledger keeps what came of it.
        return [criterion for goal in goals for criterion in read_goal(goal, known).criteria]

    def closing_criteria(self, run: NotebookRun) -> list[str]:
        """What the behavior that closes the current step asserts again."""
        if stage_of_step(run.step.step_id) is not None:
            return list(
                closing_criteria(
                    run.step.step_id,
                    run.reading,
                    run.options.profile,
                    stability=self._settings.stability,
                )
            )
        return list(dict.fromkeys(criterion.text for criterion in self._of_stage(run)))

    @staticmethod
    def _locked(run: NotebookRun, names: Any) -> list[Criterion]:
        """The user's thresholds on what is produced here."""
        return [
            threshold_criterion(threshold, holder)
            for holder in HOLDERS
            if holder in names
            for threshold in run.reading.thresholds
        ]

    @staticmethod
    def _judged_here(run: NotebookRun, holder: Scored) -> list[str]:
        """Trees of the criteria on a holder's scores that the flow's own probe decides, in the order of
        `verdicts`: thresholds, or the rule that stands for one.
        """
        return [parse_criterion(text).tree for text in locked_criteria(run.reading, holder)]

    # -- verdicts -------------------------------------------------------------------------------------------

    def of_behavior(self, ctx: StepContext, run: NotebookRun) -> Facts:
        """What the behavior has come to."""
        measured = run.measured
        attempt = [cell for cell in run.cells if cell.attempt == run.attempt]
        facts = facts_now(
            ctx,
            raised=bool(measured.get("raised")),
            died=bool(measured.get("died")),
            behavior=self._verdict(
                run, list(run.behavior.outputs or ()), self.criteria_of_behavior(run), attempt
            ),
            step=self._step_verdict(run, attempt),
            stage=self._stage_verdict(run, attempt),
        )  # fmt: skip
        told = feedback(facts, self._quality(run), run.iteration, _tried(run))
        return replace(facts, feedback=told)

    def of_step(self, ctx: StepContext, run: NotebookRun, *, reexecuted: bool | None = None) -> Facts:
        """What the step and its stage have come to."""
        facts = facts_now(
            ctx, step=self._step_verdict(run, []), stage=self._stage_verdict(run, []), reexecuted=reexecuted,
            gaps=self._gaps(run),
        )  # fmt: skip
        return replace(facts, revision_offered=self.step_to_redo(run) is not None)

    def _step_verdict(self, run: NotebookRun, attempt: Sequence[Cell]) -> Verdict:
        entered = _since_step(run)
        names = list(run.step.verified_artifacts or ())
        if run.state.ledger.escalated:  # then nobody has closed it
            names = [name for name in names if name != CLOSING]
        return self._verdict(run, names, self._of_step(run), [*entered, *attempt])

    def _stage_verdict(self, run: NotebookRun, attempt: Sequence[Cell]) -> Verdict:
        stage = [cell for cell in run.live if cell.stage == run.stage.stage_id]
        # A threshold on scores that a later step will produce is not missed yet.
        locked = self._locked(run, run.stage.verified_artifacts or ())
        due = [
            criterion for criterion in (*self._of_stage(run), *locked) if self._is_due(run, criterion)
        ]  # fmt: skip
        return self._verdict(run, list(run.stage.verified_artifacts or ()), due, [*stage, *attempt])

    def _is_due(self, run: NotebookRun, criterion: Criterion) -> bool:
        holder = self._holder_of(run, criterion)
        if holder is None:
            return True
        judged = run.state.ledger.locked
        return holder in (run.measured.get("probes") or {}) or criterion.text in judged

    def _holder_of(self, run: NotebookRun, criterion: Criterion) -> Scored | None:
        """The variable on whose scores a locked criterion is judged; None for one that is not locked."""
        return next((name for name in HOLDERS if criterion.tree in self._judged_here(run, name)), None)

    def _verdict(
        self, run: NotebookRun, names: Sequence[str], criteria: Sequence[Criterion], cells: Sequence[Cell]
    ) -> Verdict:
        measured = run.measured
        marked = [
            replace(criterion, locked=self._holder_of(run, criterion) is not None) for criterion in criteria
        ]
        judged = [(criterion, self._judged(run, criterion)) for criterion in _distinct(marked)]
        failed = [criterion for criterion, fact in judged if not fact.passed]
        artifacts = classify_all(
            names, _variables(measured), _files(measured), assigned=_assigned(run, cells), failed=failed
        )
        return Verdict(artifacts, tuple(fact for _, fact in judged))

    def _judged(self, run: NotebookRun, criterion: Criterion) -> CriterionFact:
        """A criterion with its value; a threshold by the score that was recomputed where it arose."""
        result = (run.measured.get("criteria") or {}).get(criterion.text)
        holder = self._holder_of(run, criterion)
        if result is None:
            fact = CriterionFact(criterion.text, False, "it was not evaluated", criterion.locked)
        else:
            fact = CriterionFact(
                criterion.text, bool(result["passed"]), str(result["value"]), criterion.locked,
                bearable=holder is None and not result.get("error") and self._can_go_on(run),
                figure=str(result.get("figure") or "") if holder is None else "",
            )  # fmt: skip
        if holder is None:
            return fact
        if holder in (run.measured.get("probes") or {}):
            return self._recomputed(run, criterion, holder, fact)
        ledger = run.state.ledger
        if criterion.text not in ledger.locked:
            return fact
        return replace(
            fact, passed=ledger.locked[criterion.text], final=self._has_its_model(run),
            value=ledger.locked_scores.get(criterion.text, fact.value),
        )  # fmt: skip

    def _recomputed(
        self, run: NotebookRun, criterion: Criterion, holder: Scored, fact: CriterionFact
    ) -> CriterionFact:
        """A locked criterion by the scores of the flow's own probe."""
        probe = (run.measured.get("probes") or {}).get(holder) or {}
        measured = read_measured(probe.get("value"))
        if probe.get("error") or not measured.is_sound:
            findings = "; ".join(finding.text for finding in measured.findings)
            return replace(fact, passed=False, value=str(probe.get("error") or measured.error or findings))
        judged = dict(zip(self._judged_here(run, holder), verdicts(run.reading, measured), strict=False)).get(
            criterion.tree
        )
        if judged is None or judged.measured is None:
            metric = primary_metric(run.reading) if judged is None else judged.metric
            return replace(fact, passed=False, value=f"{metric} could not be computed")
        return replace(fact, passed=judged.met, value=f"{judged.measured:g}", final=self._has_its_model(run))

    @staticmethod
    def _can_go_on(run: NotebookRun) -> bool:
        """Whether a model is there, so that a miss need not end the work; an optional stage may be left."""
        made = MODEL in run.document.variables or (
            (run.measured.get("variables") or {}).get(MODEL) or {}
        ).get("exists")
        return bool(made) and not run.stage.optional

    @staticmethod
    def _has_its_model(run: NotebookRun) -> bool:
        """Whether the behavior scores a model that it does not make: no iteration of it changes the score."""
        behavior = run.document.behaviors.current
        return behavior is not None and "final_model" not in (behavior.outputs or ())

    # -- the reflections ------------------------------------------------------------------------------------

    def _quality(self, run: NotebookRun) -> ExecutionQuality:
        """How the cells of the current attempt ran."""
        codes = [cell for cell in run.cells if cell.attempt == run.attempt and cell.is_code]
        failed = [cell for cell in codes if cell.status != "ok"]
        warnings = int(run.measured.get("warnings", 0))
        lines = ("Warning:",) * min(warnings, 20)
        if not codes:
            return ExecutionQuality("failed", (str(run.measured.get("why") or "no code was written"),))
        if not failed:
            return ExecutionQuality("success", warnings=lines)
        return ExecutionQuality(
            "failed" if len(failed) == len(codes) else "partial",
            tuple(cell.error or cell.status or "" for cell in failed), lines,
            tuple(run.measured.get("traceback", ())),
        )  # fmt: skip

    def behavior_reflection(self, run: NotebookRun, facts: Facts, decision: Decision) -> BehaviorReflection:
        """The T5 that the measurement writes."""
        values = variables_of(run.measured, artifacts_to_measure(run))
        return reflect_on_behavior(
            run.state, decision, facts, self._quality(run), variables=values, tried=_tried(run)
        )

    def stage_reflection(self, run: NotebookRun, facts: Facts, decision: Decision) -> StageReflection:
        """The T6 that the measurement writes."""
        variables = manage_variables(self._variable_facts(run, facts.stage.artifacts), facts.gaps)
        following = run.document.steps.remaining
        focus = following[0].title if following and decision.row == "6a" else ""
        told = StageFacts(variables, self._pcs(run), next_focus=focus)
        return reflect_on_stage(run.state, decision, facts, told)

    def _pcs(self, run: NotebookRun) -> PcsTexts:
        """The step's considerations, with the measured figures where there are some."""
        texts = run.step.pcs_considerations or {}
        figures = {
            "predictability": _figure(run, "test_performance", "hold-out"),
            "computability": f"seed {self._settings.seed}",
            "stability": _figure(run, "stability_metrics", "stability"),
        }
        said = {
            name: " ".join(filter(None, (texts.get(name) or "Nothing further.", figure and f"({figure})")))
            for name, figure in figures.items()
        }
        return PcsTexts(said["predictability"], said["computability"], said["stability"])

    def _variable_facts(self, run: NotebookRun, artifacts: Sequence[Any]) -> VariableFacts:
        sources = {
            name: cell.id for cell in run.live if cell.is_code for name in assigned_names(cell.source)
            if name in run.document.variables
        }  # fmt: skip
        required = [*future_uses(run.document), *run.document.variables]
        producers: dict[str, Producer] = {}
        for name in required:
            step = producer_of(name)
            stage = None if step is None else stage_of_step(step)
            if step is not None and stage is not None:
                producers[name] = Producer(stage, step)
        return VariableFacts(
            run.document, _variables(run.measured), sources, tuple(artifacts), tuple(self._of_stage(run)),
            producers, weak=self._weak(run),
        )  # fmt: skip

    def _weak(self, run: NotebookRun) -> list[str]:
        """What is there and too weak: the model, if it missed a threshold on the hold-out."""
        missed = [text for text, met in run.state.ledger.locked.items() if not met]
        on_holdout = any(text.startswith("test_performance") for text in missed)
        return ["final_model"] if on_holdout and "final_model" in run.document.variables else []

    def _gaps(self, run: NotebookRun) -> tuple[GapFact, ...]:
        """What is missing or too weak; of what is too weak, whether its producer has anything left to try."""
        gaps = find_gaps(self._variable_facts(run, ()))
        return tuple(
            replace(gap, spent=True) if gap.weak and gap.producer_step and is_spent(run, gap.producer_step)
            else gap
            for gap in gaps
        )  # fmt: skip

    def step_to_redo(self, run: NotebookRun) -> str | None:
        """The step from which a plan begins that goes back or revises; None: code offers nothing else."""
        gaps = [
            gap for gap in self._gaps(run) if not gap.weak or gap.name not in run.state.ledger.backtracked
        ]
        gaps = [gap for gap in gaps if not gap.spent]
        critical = [gap for gap in gaps if gap.critical and gap.producer_stage == run.stage.stage_id]
        if critical:
            return critical[0].producer_step
        plan = self.plan_for_foreign_stage(run)
        return None if plan is None else plan.steps[0].id

    def plan_for_foreign_stage(self, run: NotebookRun) -> StepPlan | None:
        """The catalogue's steps for what a stage that it does not have still lacks."""
        if find_stage(run.stage.stage_id) is not None:
            return None
        there = run.document.variables
        missing = [name for name in run.stage.verified_artifacts or () if name not in there]
        return plan_artifacts(
            missing, there, run.reading, run.options.profile, stability=self._settings.stability
        )

    # -- claims ---------------------------------------------------------------------------------------------

    def claims_on_behavior(
        self, run: NotebookRun, claimed: BehaviorReflection, facts: Facts
    ) -> dict[str, Any]:
        """A T5 held against the measurement."""
        from detent.flows.notebook.state.decisions import Limits, decide

        limits = Limits(
            self._settings.max_retries, self._settings.max_behaviors, self._settings.max_backtracks
        )
        truth = self.behavior_reflection(run, facts, decide(run.state, facts, limits))
        values = variables_of(run.measured, artifacts_to_measure(run))
        return _report(compare_behavior(claimed, truth, facts.behavior.criteria, values))

    def claims_on_stage(self, run: NotebookRun, claimed: StageReflection, facts: Facts) -> dict[str, Any]:
        """A T6 held against the measurement."""
        from detent.flows.notebook.state.decisions import Limits, decide

        limits = Limits(
            self._settings.max_retries, self._settings.max_behaviors, self._settings.max_backtracks
        )
        truth = self.stage_reflection(run, facts, decide(run.state, facts, limits))
        required = ("user_problem", "user_submit_files", *future_uses(run.document))
        return _report(compare_stage(claimed, truth, run.document.variables, required))

    def check_after(self, run: NotebookRun, facts: Facts) -> dict[str, Any] | None:
        """What must hold again after the cells of the current attempt."""
        cells = [cell for cell in run.cells if cell.attempt == run.attempt]
        passed = [criterion.text for criterion in facts.behavior.criteria if criterion.passed]
        produced = set(facts.behavior.produced)
        variables = {
            name: info for name, info in (run.measured.get("variables") or {}).items() if name in produced
        }  # fmt: skip
        return check_of(cells, passed, variables, [name for name in produced if is_file(name)])

    def dropped_with(self, run: NotebookRun) -> tuple[str, ...]:
        """Variables and files that only the current attempt has produced: they go with it."""
        accepted = _names(run.live)
        own = _assigned(run, [cell for cell in run.cells if cell.attempt == run.attempt])
        return tuple(
            name for name in artifacts_to_measure(run)
            if name in own and name in run.document.variables and name not in accepted
        )  # fmt: skip

    def superseded_with(self, run: NotebookRun, gone: Sequence[int] | None) -> tuple[str, ...]:
        """Variables and files that a backtrack takes with the cells in a range; others made again stay."""
        if gone is None:
            return ()
        superseded = {cell.id for cell in run.cells[gone[0] : gone[1]]}
        left = [cell for cell in run.live if cell.id not in superseded]
        again = {cell.step for cell in run.live if cell.id in superseded and cell.step is not None}
        closed = [step for steps in run.state.ledger.closed_steps.values() for step in steps]
        steps = [*closed, *run.document.steps.completed, run.step]
        files = {
            name for step in steps if step.step_id in again
            for name in step.verified_artifacts or () if is_file(name)
        }  # fmt: skip
        own = files | _names([cell for cell in run.live if cell.id in superseded])
        return tuple(name for name in run.document.variables if name in own and name not in _names(left))

    # -- in short -------------------------------------------------------------------------------------------

    def attempt_line(self, run: NotebookRun, facts: Facts) -> dict[str, Any]:
        """How an attempt ended, and its rank among those of its behavior."""
        complete = len(facts.behavior.produced)
        there = sum(artifact.status != "missing" for artifact in facts.behavior.artifacts)
        passed = len(facts.behavior.criteria) - len(facts.behavior.failed)
        return {
            "attempt": run.attempt, "behavior": run.behavior.behavior_id, "iteration": run.iteration,
            "raised": facts.raised, "complete": complete, "passed": passed,
            "criteria": len(facts.behavior.criteria), "rank": [not facts.raised, there, complete, passed],
        }  # fmt: skip

    @staticmethod
    def in_short(facts: Facts) -> str:
        """The verdicts in a few words, with the scores that missed a threshold."""
        verdict = facts.behavior if facts.behavior.artifacts else facts.stage
        passed = len(verdict.criteria) - len(verdict.failed)
        missed = [
            f"; {failed.text} missed: {failed.measured}"
            for failed in verdict.failed if failed.locked or failed.bearable
        ]  # fmt: skip
        return (
            f"{len(verdict.produced)}/{len(verdict.artifacts)} artifacts, "
            f"{passed}/{len(verdict.criteria)} criteria{''.join(missed)}"
        )


def _variables(measured: Mapping[str, Any]) -> dict[str, VariableInfo]:
    """What is known of variables."""
    found: dict[str, VariableInfo] = {}
    for name, facts in (measured.get("variables") or {}).items():
        shape = facts.get("shape")
        found[name] = VariableInfo(**{**facts, "shape": None if shape is None else tuple(shape)})
    return found


def _files(measured: Mapping[str, Any]) -> dict[str, FileInfo]:
    return {
        name: FileInfo(bool(facts["exists"]), int(facts["size"]), is_folder=name.endswith("/"))
        for name, facts in (measured.get("files") or {}).items()
    }


def _assigned(run: NotebookRun, cells: Sequence[Cell]) -> set[str]:
    """Names that executed cells have assigned, and files that they have written or that stand from before."""
    names = {
        name for cell in cells if cell.is_code and cell.status is not None
        for name in assigned_names(cell.source)
    }  # fmt: skip
    attempts = {cell.attempt for cell in cells}
    written = {
        name for name, facts in (run.measured.get("files") or {}).items() if facts["written"]
    }  # fmt: skip
    earlier = attempts - {run.attempt if run.document.behaviors.current is not None else None, None}
    standing = {
        name for name in run.document.variables if is_file(name) and earlier
    }  # fmt: skip
    return names | written | standing


def _tried(run: NotebookRun) -> list[str]:
    """The code of each attempt at the current behavior in one short line, imports and comments left out."""
    attempts: dict[int, list[str]] = {}
    for cell in run.cells:
        if cell.is_code and cell.behavior == run.behavior.behavior_id:
            lines = (line.strip() for line in cell.source.splitlines())
            attempts.setdefault(cell.iteration or 1, []).extend(
                line for line in lines if line and not line.startswith(("#", "import ", "from "))
            )
    return [
        f"attempt {number}: `{code[:LONGEST_CODE]}{'…' if len(code) > LONGEST_CODE else ''}`"
        for number, lines in attempts.items()
        if (code := " / ".join(lines).replace("`", "'"))
    ]


def _names(cells: Sequence[Cell]) -> set[str]:
    """Names that code cells assign."""
    return {name for cell in cells if cell.is_code for name in assigned_names(cell.source)}


def _since_step(run: NotebookRun) -> list[Cell]:
    """The cells that count since the current step was entered."""
    step = run.step.step_id
    return [cell for cell in run.live if cell.step == step and cell.behavior is not None]


def _distinct(criteria: Sequence[Criterion]) -> list[Criterion]:
    """Criteria of different syntax; a locked one stands for an equal one that is not."""
    trees: dict[str, Criterion] = {}
    for criterion in criteria:
        if criterion.tree not in trees or criterion.locked:
            trees[criterion.tree] = criterion
    return list(trees.values())


def _figure(run: NotebookRun, name: str, what: str) -> str:
    value = run.document.variables.get(name)
    if not isinstance(value, Mapping):
        return ""
    shown = [f"{key} {figure:.4g}" for key, figure in value.items() if isinstance(figure, int | float)]
    return f"{what}: {', '.join(shown[:3])}" if shown else ""


def _report(report: Any) -> dict[str, Any]:
    """A comparison of claims as the log holds it."""
    return {
        "claims": report.claims,
        "mismatches": [mismatch._asdict() for mismatch in report.mismatches],
        "unmatched": list(report.unmatched),
    }
