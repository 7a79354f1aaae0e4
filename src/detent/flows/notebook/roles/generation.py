"""The generator: text and code in rounds, by recipes or by an agent, and the cells that come of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detent.dispatch.autonomy import FallbackReason
from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.flows.notebook.cells import Cell, CellKind, cell_id
from detent.flows.notebook.kernel.session import ACTIONS, OUTPUTS
from detent.flows.notebook.measuring.expressions import assigned_names
from detent.flows.notebook.payloads.plain import to_plain
from detent.flows.notebook.payloads.values import Action, Actions
from detent.flows.notebook.recipes.cookbook import recipe_for
from detent.flows.notebook.recipes.recipe import Kitchen, RecipeSettings
from detent.flows.notebook.roles.answer import RoleAnswer, journaled_actions
from detent.flows.notebook.roles.facts import MeasuredFacts, artifacts_to_measure, facts_now, variables_of
from detent.flows.notebook.roles.move import logged, moved
from detent.flows.notebook.roles.variants import attempts_that_ran_out, variants_before
from detent.flows.notebook.run_view import FINGERPRINT, MEASURED, NotebookRun
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.notebook_summary import written_actions

KINDS: Mapping[str, CellKind] = {
    "update_title": "title", "update_section_title": "stage", "update_step_title": "step",
    "add_section": "section", "add_text": "text", "add_code": "code",
}  # fmt: skip
"""The cell that an action writes."""


class Generation:
    """Handler and conclusion of the generator."""

    def __init__(self, settings: NotebookSettings, facts: MeasuredFacts) -> None:
        self._settings = settings
        self._facts = facts

    # -- by code --------------------------------------------------------------------------------------------

    async def generate(self, ctx: StepContext) -> dict[str, Any]:
        """The recipe of the current step: a text and a cell, then the text about what came out."""
        run = NotebookRun(ctx.values)
        criteria = self._facts.closing_criteria(run)
        outputs = list(run.behavior.outputs or ())
        defined = {name for cell in run.live if cell.is_code for name in assigned_names(cell.source)}
        recipe = recipe_for(run.step.step_id, self.kitchen(run), outputs, criteria, defined)
        if recipe is None:
            return RoleAnswer(Actions(())).to_plain()
        first = Actions((Action("add_text", recipe.lead), Action("add_code", recipe.code)))
        receipt = await ctx.perform(ACTIONS, actions=to_plain(first)["actions"], result=recipe.result)
        text = receipt["result"]
        return RoleAnswer(Actions((Action("add_text", text),) if text else ())).to_plain()

    def kitchen(self, run: NotebookRun) -> Kitchen:
        """What a recipe is written from."""
        settings = self._settings
        return Kitchen(
            run.reading,
            RecipeSettings(
                settings.seed, settings.test_size, settings.jobs, settings.stability_threshold,
                settings.cell_timeout,
            ),
            run.iteration + variants_before(run),
            run.state.ledger.backtracked.count("final_model"),
            missed=run.state.ledger.missed,
            ran_out=attempts_that_ran_out(run),
        )  # fmt: skip

    # -- what becomes of it ---------------------------------------------------------------------------------

    async def generated(self, ctx: StepContext, said: Mapping[str, Any]) -> Outcome:
        """The cells of all rounds, and what was measured after the last one with code."""
        run, answer = NotebookRun(ctx.values), RoleAnswer.from_plain(said)
        closing = answer.payload
        assert isinstance(closing, Actions)
        acts = [act for act in await ctx.acts() if act.effect.tool == ACTIONS and act.happened]
        cells: list[Cell] = []
        log: list[dict[str, Any]] = []
        texts: list[tuple[str, ...]] = []
        traceback: list[str] = []
        raised = died = False
        measured: Mapping[str, Any] = {}
        for number, act in enumerate(acts, 1):
            cells += _cells_of(ctx, run, act, number)
            receipt = act.receipt
            texts += [tuple(cell["texts"]) for cell in receipt["cells"]]
            raised, died = raised or receipt["raised"], died or receipt["died"]
            measured = receipt["measured"] or measured
            traceback = [line for cell in receipt["cells"] for line in cell["traceback"]] or traceback
            log.append(_log_of(ctx, run, act, **self._in_place_of_agent(run, act)))
        if not raised:
            cells += _text_cells(run, closing, len(acts) + 1, "agent" if _by_agent(acts) else "deterministic")
        if closing.actions:
            log.append(_line(ctx, run, answer))
        decision = Decision.of("4", run.document.fsm.state)
        facts = facts_now(
            ctx, outputs=tuple(texts), variables=variables_of(measured, artifacts_to_measure(run)),
        )  # fmt: skip
        nothing = not acts
        digest = ((measured.get("probes") or {}).get("raw_dataset") or {}).get("value")
        known = {FINGERPRINT: digest} if digest and not run.values.get(FINGERPRINT) else {}
        return moved(
            ctx, run, decision, facts, closing, cells=cells, log=log,
            set={**known, MEASURED: {
                **measured, "raised": raised or nothing, "died": died, "rounds": len(acts),
                "errors": [cell.error for cell in cells if cell.error],
                "traceback": traceback,
                "warnings": sum(
                    cell["warnings"] for act in acts for cell in act.receipt["cells"]
                ),
                "by": "agent" if _by_agent(acts) else "handler",
                "why": "there is no recipe for this step" if nothing else "",
            }},
            last_output=next(("".join(shown) for shown in reversed(texts) if shown), None),
            reason=f"{len(cells)} cells{', one raised' if raised else ''}",
        )  # fmt: skip

    def _in_place_of_agent(self, run: NotebookRun, act: Act) -> dict[str, Any]:
        """Why code wrote the last iteration of a behavior whose earlier ones an agent wrote."""
        earlier = [cell for cell in run.cells if cell.behavior == run.behavior.behavior_id]
        is_last = run.iteration >= self._settings.max_retries and not _by_agent([act])
        if not is_last or not any(cell.mode == "agent" for cell in earlier):
            return {}
        failed = (run.behavior.whathappened or {}).get("if_continuing_behavior", "")
        return {"fallback": {"reason": FallbackReason.VALIDATION_FAILURE.value, "why": str(failed)[:500]}}


def _by_agent(acts: Sequence[Act]) -> bool:
    return any(act.settled.get("by") == "agent" for act in acts)


def _cells_of(ctx: StepContext, run: NotebookRun, act: Act, number: int) -> list[Cell]:
    """The cells that a round has written: none behind a cell that raised, no text about unseen output."""
    actions = journaled_actions(act.effect.args["actions"])
    written, _ = written_actions(actions.actions)
    results = {cell["at"]: cell for cell in act.receipt["cells"]}
    positions = {id(action): position for position, action in enumerate(actions.actions)}
    cells: list[Cell] = []
    for action in written:
        if action.kind not in KINDS:
            continue
        position = positions[id(action)]
        result = results.get(position)
        if action.kind == "add_code" and result is None:
            break
        cell = _cell(run, action, number, position, "agent" if _by_agent([act]) else "deterministic")
        if result is not None:
            cell = Cell(**{
                **{name: getattr(cell, name) for name in Cell.__slots__},
                "id": result["id"], "status": result["status"], "error": result["error"],
                "count": result["count"], "outputs": _kept_outputs(ctx, run.work, result["outputs"]),
            })  # fmt: skip
        cells.append(cell)
        if result is not None and result["status"] != "ok":
            break
    return cells


def _text_cells(run: NotebookRun, closing: Actions, number: int, mode: str) -> list[Cell]:
    return [
        _cell(run, action, number, position, mode)
        for position, action in enumerate(closing.actions)
        if action.kind in KINDS and action.kind != "add_code"
    ]


def _cell(run: NotebookRun, action: Action, number: int, position: int, mode: str) -> Cell:
    return Cell(
        cell_id(run.attempt, number, position, action.text), KINDS[action.kind], action.text,
        stage=run.stage.stage_id, step=run.step.step_id, behavior=run.behavior.behavior_id,
        iteration=run.iteration, round=number, role="action_generator", mode=mode,
    )  # fmt: skip


def _kept_outputs(ctx: StepContext, work: Path, name: str | None) -> Mapping[str, Any] | None:
    """Outputs into the store; they wait in a file of the work folder until then."""
    if name is None:
        return None
    try:
        return ctx.keep((work / OUTPUTS / f"{name}.json").read_bytes())
    except OSError:
        return ctx.keep(json.dumps([{
            "output_type": "stream", "name": "stderr", "text": "(the outputs of this cell were lost)"
        }]))  # fmt: skip


def _log_of(ctx: StepContext, run: NotebookRun, act: Act, **more: Any) -> dict[str, Any]:
    """The log line of a round: its payload, and how an agent's was read."""
    args = act.effect.args
    answer = RoleAnswer(
        journaled_actions(args["actions"]), args.get("repairs", ()), (), str(args.get("raw", ""))
    )
    return _line(ctx, run, answer, round=args["round"], **more)


def _line(ctx: StepContext, run: NotebookRun, answer: RoleAnswer, **more: Any) -> dict[str, Any]:
    """A line of the log about actions, with the messages that they hold for other agents."""
    assert isinstance(answer.payload, Actions)
    behavior = run.behavior
    more |= {"behavior": behavior.behavior_id, "agent": (behavior.agent or "").lower()}
    if messages := communications(answer.payload.actions):
        more["messages"] = messages
    return logged(ctx, "action_generator", answer, event="COMPLETE_ACTION", **more)


def communications(actions: Iterable[Action]) -> list[dict[str, str]]:
    """Messages of a round to other agents."""
    return [
        {"to": action.to, "text": action.text}
        for action in actions
        if action.kind == "communicate" and action.to is not None
    ]
