"""The roles in agent mode, with models that know nothing but their prompt."""

from __future__ import annotations

import pytest

from detent.adapters.models import openai
from detent.adapters.models.executor import ModelStepExecutor
from detent.cli.drive import ending_code
from detent.cli.options import Options
from detent.flows.notebook.commands.display import DISPLAY
from detent.flows.notebook.result import result_of
from detent.flows.notebook.roles.role import ROLES
from detent.flows.notebook.run_view import NotebookRun
from detent.kernel.status import Status
from tests.adapters.models.server import Server, said
from tests.flows.notebook.samples import (
    DONE,
    MEAN,
    PLAIN_PROBLEM,
    SCORE,
    Model,
    actions,
    agents,
    answers,
    arranged,
    driven,
    history,
    log_lines,
    reflected,
    running,
    section,
    stage_reflected,
    step_of,
    written,
)

NAMES = [
    "START_WORKFLOW", "START_STEP", "START_BEHAVIOR", "COMPLETE_ACTION", "TRANSITION_TO_COMPLETE_STEP",
    "START_STEP", "START_BEHAVIOR", "COMPLETE_ACTION", "TRANSITION_TO_COMPLETE_STEP", "COMPLETE_STAGE",
]  # fmt: skip
"""The transitions of one stage of two steps."""


def sources(run) -> list[str]:
    """The code cells of the notebook."""
    return [cell.source for cell in NotebookRun(run.data).live if cell.is_code]


def modes(transitions) -> set[str]:
    """Who performed the transitions."""
    return {t.detail.get("mode_used") for t in transitions[1:]}


def reasons(transitions) -> list[str]:
    """Why code stood in for an agent."""
    return [t.detail["fallback_reason"] for t in transitions if t.detail.get("fallback_used")]


class TestEveryRoleAtEveryLevel:
    """N-91, N-107: a plan of the model's own, carried out by the model alone."""

    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    async def test_a_model_plays_all_six_roles(self, tmp_path, level):
        model = Model(answers())
        async with running(tmp_path, dispatch=agents(model, level=level)) as engine:
            run = await driven(engine, tmp_path, PLAIN_PROBLEM, verify=level == "consultant")
            told = await history(engine, run.id)
        assert [t.name for t in told[1:]] == NAMES
        assert (modes(told), run.state) == ({"agent"}, "WORKFLOW_COMPLETE")
        assert run.status is (Status.SUCCEEDED if level == "consultant" else Status.DEGRADED)
        assert ending_code(Options().workspace(), run, DISPLAY) == 0  # not verified: as it was asked for
        assert ending_code(Options().workspace(), run) == 0
        assert sources(run) == [MEAN, SCORE]
        assert {request.role for request in model.requests} == set(ROLES)

    async def test_at_operator_no_model_is_asked(self, tmp_path):
        model = Model({})
        async with running(tmp_path, dispatch=agents(model, level="operator")) as engine:
            run = await driven(engine, tmp_path, moves=6)
            told = await history(engine, run.id)
        assert model.requests == []
        assert [t.name for t in told[1:]] == NAMES[:6]
        assert reasons(told) == ["operator"] * 6

    async def test_prompts_hold_the_role_the_shape_the_state_and_the_whole_notebook(self, tmp_path):
        """N-38, N-73, N-98."""
        model = Model(answers())
        async with running(tmp_path, dispatch=agents(model)) as engine:
            await driven(engine, tmp_path, PLAIN_PROBLEM)
        for request in model.requests:
            assert ROLES[request.role].prompt().strip() in request.instructions
            assert "An example:" in request.instructions
            assert request.state["variables"]["user_problem"] == PLAIN_PROBLEM
        last = model.requests[-1].prompt
        assert last.count(MEAN) == 1
        assert last.count(SCORE) == 1
        assert "[output]\nmean 2.0" in last
        again = model.asked("action_generator")[1]
        assert "effects.current\nmean 2.0" in again.prompt

    async def test_the_same_over_http_in_a_protocol_of_a_model_server(self, tmp_path):
        """N-91, N-112: answers as a server gives them, one of them as JSON."""
        turn = '{"action": "add", "shot_type": "action", "content": "final_model = 2.0\\nprint(final_model)"}'
        prompts = {"take_mean": '"step_id": "take_mean"', "score_mean": '"step_id": "score_mean"'}
        first, second = (
            f'OBSERVATION\n{{"location": {{"current": {{{text}}}}}}}' for text in prompts.values()
        )
        replies = [
            answers()["stage_planner"], answers()["step_planner"],
            arranged(first), turn, DONE, reflected(first), stage_reflected(first),
            f"```xml\n{arranged(second)}\n```", actions(SCORE), DONE, reflected(second),
            stage_reflected(second),
        ]  # fmt: skip
        async with Server(*(said(reply) for reply in replies)) as server:
            options = {"base_url": f"{server.url}/v1", "model_id": "m-1"}
            executor = ModelStepExecutor(openai.connect(options, kind="vllm"))
            async with running(tmp_path, dispatch=agents(executor)) as engine:
                run = await driven(engine, tmp_path, PLAIN_PROBLEM)
                told = await history(engine, run.id)
                lines = await log_lines(engine, run.id)
        assert (run.state, modes(told)) == ("WORKFLOW_COMPLETE", {"agent"})
        assert sources(run) == ["final_model = 2.0\nprint(final_model)", SCORE]
        assert not server.replies
        assert [line["repairs"] for line in lines if "repairs" in line]  # the fence, the bare `>`


class TestAnswersOfAGenerator:
    """N-71, N-90, N-102 to N-105: what is refused or overruled, at the highest trust."""

    async def run_with(self, folder, *rounds, moves=None, **changed):
        """A run whose generator answers so at its first visits, and well afterwards."""
        turns = list(rounds)

        def write(prompt):
            return turns.pop(0) if turns else written(prompt)

        model = Model(answers(action_generator=write, **changed))
        async with running(folder, dispatch=agents(model)) as engine:
            run = await driven(engine, folder, PLAIN_PROBLEM, moves=moves)
            told = await history(engine, run.id)
            lines = await log_lines(engine, run.id)
        return run, told, lines, model

    @pytest.mark.parametrize(
        ("bad", "why"),
        [
            ("I would load the data first.", "payload"),
            (actions("final_model = mean_of_all"), "mean_of_all"),
            (actions("import subprocess\nfinal_model = 2.0"), "subprocess"),
            (actions("final_model = y_test.mean()"), "y_test"),
            (actions(("add-text", "There are 1460 rows."), MEAN), "1460"),
            (actions(("add-text", "Nothing to do.")), "no code"),
            ("<actions><add-code2run>final_model = 2.0 + (", "code"),
        ],
        ids=["prose", "undefined", "policy", "holdout", "figure", "idle", "cut"],
    )
    async def test_an_answer_that_cannot_be_used_is_refused_once_with_the_reason(self, tmp_path, bad, why):
        run, told, _, model = await self.run_with(tmp_path, bad, moves=5)
        first, second = model.asked("action_generator")[:2]
        assert "cannot be used" in second.prompt
        assert why in second.prompt[len(first.prompt) :]
        assert told[-1].to == "STEP_COMPLETED"
        assert sources(run) == [MEAN]

    async def test_a_second_bad_answer_leaves_the_visit_to_code_which_has_no_recipe_here(self, tmp_path):
        """The iteration fails unrun, and the next one is the model's again."""
        bad = "What should I do?"
        run, told, _, _ = await self.run_with(tmp_path, bad, bad, moves=7)
        assert [t.name for t in told[4:]] == [
            "COMPLETE_ACTION", "START_BEHAVIOR", "COMPLETE_ACTION", "TRANSITION_TO_COMPLETE_STEP",
        ]  # fmt: skip
        assert reasons(told) == ["schema_violation"]
        assert sources(run) == [MEAN]

    async def test_text_behind_the_last_code_is_not_written(self, tmp_path):
        """N-37, N-105."""
        told = actions(("add-text", "Before."), MEAN, ("add-text", "It went well."))
        run, _, _, _ = await self.run_with(tmp_path, told, actions(("add-text", "It is 2.0.")), moves=5)
        texts = [cell.source for cell in NotebookRun(run.data).live if cell.kind == "text"]
        assert texts == ["Before.", "It is 2.0."]

    async def test_a_variable_left_from_before_is_not_what_this_behavior_has_produced(self, tmp_path):
        """N-102: the second behavior assigns nothing, though its output exists in the kernel."""
        both = f"{MEAN}\n{SCORE}"
        _, told, _, _ = await self.run_with(
            tmp_path, actions(both), DONE, actions("print('done')"), DONE, moves=9
        )
        second = [t for t in told if t.state["observation"]["location"]["current"]["step_id"] == "score_mean"]
        assert [t.name for t in second][:4] == [
            "START_STEP", "START_BEHAVIOR", "COMPLETE_ACTION", "START_BEHAVIOR",
        ]  # fmt: skip
        produced = second[2].state["observation"]["location"]["progress"]["behaviors"]["current_outputs"]
        assert produced["produced"] == []
        feedback = second[3].state["observation"]["location"]["progress"]["behaviors"]["current"]
        assert "was not assigned" in feedback["whathappened"]["if_continuing_behavior"]

    async def test_an_effect_gets_its_cells_from_a_payload_and_nothing_else(self, tmp_path):
        """A payload cannot say at which behavior or iteration it is."""
        sneaky = '{"action": "add", "shot_type": "action", "content": "final_model = 2.0", "iteration": 9}'
        run, told, _, _ = await self.run_with(tmp_path, sneaky, DONE, moves=5)
        cells = [cell for cell in NotebookRun(run.data).cells if cell.is_code]
        assert [(cell.behavior, cell.iteration) for cell in cells] == [("take_mean_b1", 1)]
        assert told[-1].to == "STEP_COMPLETED"


class TestReflectionsAreClaims:
    """N-43, N-45, N-46."""

    async def test_a_claim_of_completeness_is_overruled_and_counted(self, tmp_path):
        empty = Model(
            answers(
                action_generator=lambda prompt: (
                    DONE if "effects.current\n" in prompt else actions("print('nothing')")
                )
            )
        )
        async with running(tmp_path, dispatch=agents(empty), max_retries=1) as engine:
            run = await driven(engine, tmp_path, PLAIN_PROBLEM)
            told = await history(engine, run.id)
            lines = await log_lines(engine, run.id)
        assert (run.state, run.status) == ("FAILED", Status.FAILED)
        assert "STEP_COMPLETED" in [t.to for t in told]
        report = next(line["claims"] for line in lines if line["role"] == "behavior_reflector")
        wrong = {(m["kind"], m["claimed"], m["measured"]) for m in report["mismatches"]}
        assert ("artifact", "complete", "missing") in wrong
        assert ("criterion", "passed", "failed") in wrong
        behavior = told[5].state["observation"]["location"]["progress"]["behaviors"]["completed"][-1]
        assert behavior["completion_status"] == "failed"

    async def test_a_claim_of_failure_does_not_keep_a_complete_step_open(self, tmp_path):
        gloomy = Model(answers(behavior_reflector=lambda prompt: reflected(prompt, complete=False)))
        async with running(tmp_path, dispatch=agents(gloomy)) as engine:
            run = await driven(engine, tmp_path, PLAIN_PROBLEM)
            lines = await log_lines(engine, run.id)
        assert run.state == "WORKFLOW_COMPLETE"
        reports = [line["claims"] for line in lines if line["role"] == "behavior_reflector"]
        assert all(report["mismatches"] for report in reports)

    async def test_at_collaborator_a_wrong_decision_is_replaced_by_the_measured_one(self, tmp_path):
        gloomy = Model(answers(behavior_reflector=lambda prompt: reflected(prompt, complete=False)))
        dispatch = agents(gloomy, level="collaborator")
        async with running(tmp_path, dispatch=dispatch) as engine:
            run = await driven(engine, tmp_path, PLAIN_PROBLEM, moves=5)
            told = await history(engine, run.id)
        assert reasons(told) == ["validation_failure"]
        assert run.state == "STEP_COMPLETED"

    async def test_a_decision_that_contradicts_itself_is_refused(self, tmp_path):
        """N-43."""

        def torn(prompt):
            text = reflected(prompt)
            return text if "cannot be used" in prompt else text.replace("STEP_COMPLETED", "STEP_RUNNING")

        model = Model(answers(behavior_reflector=torn))
        async with running(tmp_path, dispatch=agents(model)) as engine:
            run = await driven(engine, tmp_path, PLAIN_PROBLEM, moves=5)
            told = await history(engine, run.id)
        assert len(model.asked("behavior_reflector")) == 2
        assert (run.state, modes(told)) == ("STEP_COMPLETED", {"agent"})


class TestPlans:
    """N-20, N-21, N-25, N-27, N-29, N-43."""

    async def asked_again(self, folder, role, bad, problem=PLAIN_PROBLEM, **more):
        good = answers()[role]

        def answer(prompt):
            if "cannot be used" not in prompt:
                return bad(prompt) if callable(bad) else bad
            return good(prompt) if callable(good) else good

        model = Model(answers(**{role: answer}, **more))
        async with running(folder, dispatch=agents(model)) as engine:
            await driven(engine, folder, problem, moves=3)
        first, second = model.asked(role)[:2]
        return second.prompt[len(first.prompt) :]

    async def test_a_stage_that_needs_what_nothing_gives_is_refused_with_the_names_there_are(self, tmp_path):
        bad = str(answers()["stage_planner"]).replace(
            "</verified_artifacts>",
            '</verified_artifacts><required_variables><variable name="magic"/></required_variables>',
        )
        told = await self.asked_again(tmp_path, "stage_planner", bad)
        assert "magic" in told
        assert "user_submit_files" in told

    async def test_a_plan_without_an_evaluation_is_refused(self, tmp_path):
        bad = str(answers()["stage_planner"]).replace("test_performance", "impression")
        assert "test_performance" in await self.asked_again(tmp_path, "stage_planner", bad)

    async def test_a_plan_that_drops_the_users_threshold_is_refused(self, tmp_path):
        """N-78 at the planner; the second answer drops it too, so the catalogue plans."""
        model = Model(answers())
        async with running(tmp_path, dispatch=agents(model, ["stage_planner"])) as engine:
            run = await driven(engine, tmp_path, moves=1)
            told = await history(engine, run.id)
        assert "R2 > 0.5" in model.requests[1].prompt[len(model.requests[0].prompt) :]
        assert reasons(told) == ["schema_violation"]
        assert len(NotebookRun(run.data).document.stages.remaining) == 7

    async def test_steps_that_leave_an_artifact_of_the_stage_out_are_refused(self, tmp_path):
        bad = str(answers()["step_planner"])
        bad = bad[: bad.index('<step id="score_mean"')] + "</steps>"
        assert "test_performance" in await self.asked_again(tmp_path, "step_planner", bad)

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (("final_model == 2.0", "True"), "acceptance"),
            (("final_model == 2.0", "the mean looks right"), "acceptance"),
            (("final_model == 2.0", "final_modl == 2.0"), "final_modl"),
            (('name="final_model"', 'name="something_else"'), "outputs"),
            (("take_mean_b1", "take_mean_b2"), "take_mean_b1"),
            (("<outputs>", '<inputs><variable name="magic"/></inputs><outputs>'), "magic"),
        ],
        ids=["constant", "prose", "unknown name", "no output of the step", "number", "unbound input"],
    )
    async def test_a_behavior_that_cannot_be_judged_is_refused(self, tmp_path, change, why):
        """N-27, N-29, N-30, N-103."""
        told = await self.asked_again(
            tmp_path, "behavior_arranger", lambda prompt: arranged(prompt).replace(*change)
        )
        assert why in told


async def test_a_message_reaches_the_named_agents_next_prompt_and_is_no_cell(tmp_path):
    """N-36: the Model agent writes to Evaluate, who has the next step; nobody else is told."""
    note = "The mean is a stand-in."

    def arrange(prompt):
        text = arranged(prompt)
        return text.replace(">Model<", ">Evaluate<") if step_of(prompt) == "score_mean" else text

    def write(prompt):
        if "effects.current\n" in prompt:
            return DONE
        if step_of(prompt) == "take_mean":
            return actions(MEAN, ('communication to="evaluate"', note))
        return actions(SCORE)

    model = Model(answers(behavior_arranger=arrange, action_generator=write))
    async with running(tmp_path, dispatch=agents(model)) as engine:
        run = await driven(engine, tmp_path, PLAIN_PROBLEM)
    assert run.state == "WORKFLOW_COMPLETE"
    requests = model.asked("action_generator")
    assert section(requests[2].prompt, "MESSAGES") == [note]
    others = [request for request in model.requests if request not in requests[2:]]
    assert not [request for request in others if note in request.prompt]
    assert note not in str(NotebookRun(run.data).cells)
    assert result_of(run)["state"] == "WORKFLOW_COMPLETE"


@pytest.mark.parametrize("asked_for", [True, False])
async def test_a_generator_sees_what_was_printed_before_where_its_plan_asks_for_it(tmp_path, asked_for):
    """N-31."""

    def arrange(prompt: str) -> str:
        return arranged(prompt).replace("<outputs>", f"<effects>{asked_for}</effects><outputs>")

    model = Model(answers(behavior_arranger=arrange))
    async with running(tmp_path, dispatch=agents(model)) as engine:
        await driven(engine, tmp_path, PLAIN_PROBLEM, moves=8)
    asked = model.asked("action_generator")
    request = next(request for request in asked if step_of(request.prompt) == "score_mean")
    assert ("PREVIOUS_OUTPUT\nmean 2.0" in request.prompt) is asked_for
    assert request.state["effects"] == {"current": [], "history": []}
