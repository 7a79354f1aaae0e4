"""Mode-aware step dispatch as its users tell it: every story, edge case and criterion, on real YAML files.

Each test is one sentence of the feature's description. Workflows are files on the project's shelf, actions
come from a plugin, and only the project's settings say who performs a step.
"""

from __future__ import annotations

import inspect
import logging
import shutil

import pytest

from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.cli.main import run as detent
from detent.dispatch.autonomy import AutonomyLevel, Check, FallbackReason, StepMode
from detent.dispatch.executor import NO_MODEL, StepExecutor
from detent.dispatch.prompt import LEAD_IN
from detent.engine.schemas import misfits
from detent.flows.workflow.actions import SHIPPED
from detent.flows.workflow.registry import Registry
from detent.flows.workflow.step_type import StepType
from detent.kernel.status import Status
from tests.flows.workflow.dispatch.project import TWICE

pytestmark = pytest.mark.filterwarnings("ignore:.*retry_policy.*:DeprecationWarning")
"""Said in place of `max_retries` for attempts that follow each other at once."""

LEVELS = ("collaborator", "consultant", "approver")
GREET = """
name: welcome
inputs: {guest: {type: string, default: Ada}}
steps:
  - {name: greeting, type: python, action: greet, kwargs: {name: "${{ inputs.guest }}", loud: true}}
  - {name: tell, type: python, action: echo, kwargs: {value: "${{ steps.greeting.output }}"}}
outputs: {text: "${{ steps.greeting.output.text }}", until: "${{ steps.greeting.output.until }}"}
"""
SINGLE = """
name: one
steps:
  - {name: work, type: python, action: strict_greet, kwargs: {name: Ada, loud: true}}
"""
ADA = {"text": "Good day, Ada!", "length": 14, "until": "2030-01-31", "tags": ["guest"]}
BOB = {"text": "Hello, Bob.", "length": 11, "until": "2031-12-31", "tags": []}


def says(output, **more):
    return [{"output": output, "repeat": True, **more}]


def agent(level=None, **more):
    said = {"mode": "agent", "retry_policy": TWICE, **more}
    return said if level is None else {**said, "autonomy": level}


# -- story 1: run a Python step via an AI agent instead of deterministic code -------------------------------


class TestAPythonStepViaAnAgent:
    @pytest.mark.parametrize("said", [None, {"mode": "deterministic"}])
    async def test_a_deterministic_step_runs_through_its_python_handler(self, project, said):
        """US1.1, D-01: identical to before; the executor is there and is not even made."""
        project.workflow(GREET)
        project.settings(**({"steps": {"greeting": said}} if said else {}))
        ran = await project.run("welcome", script={"*": says(BOB)})
        assert ran.run.status is Status.SUCCEEDED
        assert project.acts.CALLS[0] == ("greet", "Ada")
        assert [name for name, _ in project.acts.CALLS] == ["greet", "echo"]
        assert (ran.asked, ran.source.made) == ([], 0)
        assert ran.output("greeting") == ADA

    async def test_an_agent_step_is_delegated_with_its_intent_and_its_resolved_inputs(self, project):
        """US1.2, D-02, D-40, A-005: the intent as instructions, the inputs as context."""
        project.workflow(GREET)
        project.settings(steps={"greeting": {"mode": "agent"}})
        ran = await project.run("welcome", {"guest": "Grace"}, script={"greeting": says(BOB)})
        (asked,) = ran.executor.calls
        assert asked.step_name == "greeting"
        assert asked.instructions == f"{LEAD_IN}\n\nWelcome one guest of the house by name, in one line."
        assert '"name": "Grace"' in asked.prompt
        assert '"loud": true' in asked.prompt
        assert "${{" not in asked.prompt

    async def test_the_agents_result_comes_back_in_the_same_format_as_the_handlers(self, project):
        """US1.3, D-03: later steps and outputs read it through the same expressions."""
        project.workflow(GREET)
        plain = await project.run("welcome")
        project.settings(steps={"greeting": agent("consultant")})
        ran = await project.run("welcome", script={"greeting": says(ADA)})
        assert ran.moves["greeting"].detail["mode_used"] == "agent"
        assert ran.run.data == plain.run.data
        assert ran.result.final_output == plain.result.final_output

    @pytest.mark.parametrize("mode", ["deterministic", "agent"])
    async def test_both_modes_give_a_result_that_keeps_the_steps_contract(self, project, mode):
        """US1-IT, D-04."""
        project.workflow(SINGLE)
        project.settings(steps={"work": {"mode": mode}})
        ran = await project.run("one", script={"work": says(ADA)})
        assert ran.run.status is Status.SUCCEEDED
        assert ran.dispatch("work").mode_used is StepMode(mode)
        assert misfits(ran.output("work"), project.acts.Greeting) == []


# -- story 2: autonomy levels control agent result handling -------------------------------------------------


class TestAutonomyLevels:
    async def test_operator_warns_that_it_requires_deterministic_mode_and_falls_back(self, project):
        """US2.1, D-15."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent("operator")})
        ran = await project.run("one", script={"work": says(BOB)})
        warning = ran.heard.one("dispatch.operator_fallback")
        assert warning.level == logging.WARNING
        assert "operator requires deterministic mode" in warning["hint"]
        assert ran.asked == []
        assert ran.output("work") == ADA
        assert ran.dispatch("work").fallback_reason is FallbackReason.OPERATOR

    async def test_at_collaborator_the_handler_validates_the_result_before_it_is_accepted(self, project):
        """US2.2, D-16, A-002."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent("collaborator")})
        ran = await project.run("one", script={"work": says(ADA)})
        assert len(ran.asked) == 1
        assert project.acts.CALLS == [("greet", "Ada")]
        assert ran.dispatch("work").mode_used is StepMode.AGENT
        assert ran.dispatch("work").check is Check.COMPARE
        assert ran.heard.sequence() == "M S C V A"

    async def test_at_collaborator_the_handler_runs_independently_if_validation_fails(self, project):
        """US2.2, D-17: its own result is used, and it ran once."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent("collaborator")})
        ran = await project.run("one", script={"work": says(BOB)})
        assert ran.output("work") == ADA
        assert project.acts.CALLS == [("greet", "Ada")]
        assert ran.dispatch("work").fallback_reason is FallbackReason.VALIDATION_FAILURE
        assert ran.heard.sequence() == "M S C V A F D"

    async def test_at_consultant_discrepancies_are_logged_but_the_result_is_accepted(self, project):
        """US2.3, D-19, D-20, A-003: the handler is not run."""
        project.workflow(GREET)
        project.settings(steps={"greeting": agent("consultant")}, autonomy={"audit": 0})
        odd = {**BOB, "length": "eleven", "mood": "fine"}
        ran = await project.run("welcome", script={"greeting": says(odd)})
        verified = ran.heard.one("dispatch.autonomy_validation")
        assert (verified["check"], verified["outcome"], verified.level) == (
            "contract", "verified", logging.WARNING,
        )  # fmt: skip
        assert verified["discrepancies"] == 2
        assert ("greet", "Ada") not in project.acts.CALLS
        assert ran.output("greeting") == odd

    async def test_at_approver_the_result_is_accepted_directly(self, project):
        """US2.4, D-21."""
        project.workflow(GREET)
        project.settings(steps={"greeting": agent("approver")})
        odd = {"text": 7, "until": None}
        ran = await project.run("welcome", script={"greeting": says(odd)})
        assert ran.output("greeting") == odd
        assert ran.dispatch("greeting").check is Check.NONE
        assert ran.heard.one("dispatch.autonomy_validation").level == logging.INFO

    @pytest.mark.parametrize("fault", [{"error": "crash"}, {"output": {"text": 1}}])
    async def test_at_approver_hard_failures_still_lead_to_the_handler(self, project, fault):
        """US2.4, D-22."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent("approver")})
        ran = await project.run("one", script={"work": [{**fault, "repeat": True}]})
        assert ran.output("work") == ADA
        assert ran.dispatch("work").fallback_used

    async def test_one_answer_at_three_levels_has_three_different_fates(self, project):
        """US2-IT, D-24, SC-004."""
        project.workflow(GREET)
        seen = {}
        for level in LEVELS:
            project.settings(steps={"greeting": agent(level)}, autonomy={"audit": 0})
            odd = {**BOB, "length": "eleven"}
            ran = await project.run("welcome", script={"greeting": says(odd)})
            gate = ran.heard.one("dispatch.autonomy_validation")
            greeted = ("greet", "Ada") in project.acts.CALLS
            seen[level] = (gate["check"], gate["outcome"], greeted, ran.output("greeting") == odd)
        assert seen == {
            "collaborator": ("compare", "rejected", True, False),
            "consultant": ("contract", "verified", False, True),
            "approver": ("none", "accepted", False, True),
        }


# -- story 3: agent failures fall back to deterministic execution -------------------------------------------


class TestFallback:
    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize(
        ("fault", "reason", "errors"),
        [
            ({"error": "crash"}, "exception", 1),
            ({"error": "timeout"}, "timeout", 2),
            ({"output": {"text": 1, "length": "x"}}, "schema_violation", 2),
        ],
    )
    async def test_a_failing_executor_leads_to_the_handler_and_the_fallback_is_logged(
        self, project, fault, reason, errors, level
    ):
        """US3.1, US3.2, US3.3, US3-IT, FR-006, D-26, D-27, D-28."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent(level, timeout=0.02)})
        ran = await project.run("one", script={"work": [{**fault, "repeat": True}]})
        assert ran.output("work") == ADA
        assert ran.heard.one("dispatch.fallback")["reason"] == reason
        assert len(ran.heard.named("executor.step_error")) == errors
        assert project.acts.CALLS == [("greet", "Ada")]

    async def test_the_error_of_a_pure_agent_step_propagates(self, project):
        """US3.4, D-29."""
        project.plugin(
            'from detent.workflow import agent\n@agent("poet", instructions="You write verse.")\n'
            "def poet(context):\n    return 'Write.'\n",
            "poets",
        )
        project.workflow("name: verse\nsteps:\n  - {name: write, type: agent, agent: poet}\n")
        project.settings()
        ran = await project.run("verse", script={"write": [{"error": "crash"}]})
        assert ran.run.status is Status.FAILED
        assert "RuntimeError" in ran.result.error
        assert ran.heard.named("dispatch.fallback") == []
        assert ran.heard.sequence("write") == "S R failed"


# -- story 4: step intent descriptions guide agent execution ------------------------------------------------


class TestIntents:
    def test_every_python_step_handler_has_an_intent_that_says_what_it_accomplishes(self):
        """US4.1, US4-IT, FR-004, SC-006, D-37: brief and not empty, for all that ship."""
        actions = Registry(*SHIPPED).actions
        assert len(actions) >= 20
        for action in actions:
            assert 20 <= len(action.intent) <= 400
            assert "{" not in action.intent
            assert action.intent.endswith(".")

    async def test_the_prompt_includes_the_intent_and_the_resolved_inputs(self, project):
        """US4.2, FR-005, D-40: for every kind of input value."""
        value = {"a": [1, 2.5, None], "b": "ü", "deep": {"list": ["x"]}}
        project.workflow(
            """
            name: kinds
            inputs: {value: {type: object}}
            steps:
              - {name: work, type: python, action: echo, kwargs: {value: "${{ inputs.value }}"}}
        """.replace("\n            ", "\n")
        )
        project.settings(steps={"work": {"mode": "agent"}})
        ran = await project.run("kinds", {"value": value}, script={"work": says({"value": value})})
        (asked,) = ran.executor.calls
        assert "Give back what was given to it, just as it is." in asked.instructions
        for part in ('"a": [', "2.5", "null", '"b": "ü"', '"list": ['):
            assert part in asked.prompt
        assert ran.dispatch("work").mode_used is StepMode.AGENT

    async def test_a_prompt_suffix_is_appended_to_the_intent(self, project):
        """US4.3, FR-005, D-41."""
        project.workflow(SINGLE)
        project.settings(steps={"work": {"mode": "agent", "prompt_suffix": "Be brief."}})
        ran = await project.run("one", script={"work": says(ADA)})
        assert ran.executor.calls[0].instructions.endswith("in one line.\n\nBe brief.")

    async def test_the_text_of_a_prompt_file_is_appended_to_the_intent(self, project):
        """FR-005, D-42: found beside the settings that name it."""
        (project.folder / "more").mkdir()
        (project.folder / "more" / "tone.md").write_text("Speak as a butler would.\n")
        project.workflow(SINGLE)
        project.settings(steps={"work": {"mode": "agent", "prompt_file": "more/tone.md"}})
        ran = await project.run("one", script={"work": says(ADA)})
        assert ran.executor.calls[0].instructions.endswith("in one line.\n\nSpeak as a butler would.")

    async def test_no_expression_of_the_file_survives_and_one_in_a_value_is_data(self, project):
        """A-005, D-43."""
        project.workflow(GREET)
        project.settings(steps={"greeting": {"mode": "agent"}})
        ran = await project.run("welcome", {"guest": "${{ steps.x }}"}, script={"greeting": says(BOB)})
        assert ran.executor.calls[0].prompt.count("${{") == 1
        assert '"name": "${{ steps.x }}"' in ran.executor.calls[0].prompt
        assert ran.output("greeting")["text"] == "Good day, ${{ steps.x }}!"


# -- story 5: structured observability for mode dispatch decisions ------------------------------------------


class TestObservability:
    async def test_a_deterministic_step_says_so_with_its_name(self, project):
        """US5.1, D-44."""
        project.workflow(GREET)
        ran = await project.run("welcome")
        for step in ("greeting", "tell"):
            assert ran.heard.sequence(step) == "M D"
            chosen = ran.heard.one("dispatch.mode_selected", step)
            assert (chosen["mode"], chosen["autonomy"], chosen["forced"]) == (
                "deterministic", "operator", False,
            )  # fmt: skip

    async def test_an_agent_step_says_so_with_name_autonomy_and_duration(self, project):
        """US5.2, D-45."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent("consultant")})
        ran = await project.run("one", script={"work": says(ADA)})
        done = ran.heard.one("dispatch.agent_completed")
        assert (done["step_name"], done["autonomy"], done["accepted"]) == ("work", "consultant", True)
        assert done["duration_ms"] >= 0

    @pytest.mark.parametrize("works", [True, False])
    async def test_a_fallback_says_why_where_and_whether_the_handler_succeeded(self, project, works):
        """US5.3, D-46."""
        action = "echo" if works else "break_down"
        project.workflow(f"name: one\nsteps:\n  - {{name: work, type: python, action: {action}}}\n")
        project.settings(steps={"work": agent()})
        ran = await project.run("one", script={"work": [{"error": "permanent"}]})
        told = ran.heard.one("dispatch.fallback")
        assert (told["reason"], told["step_name"], told["fallback_succeeded"]) == ("exception", "work", works)
        assert told.level == logging.WARNING

    async def test_a_rejected_result_says_the_validation_failure_and_the_fallback(self, project):
        """US5.4, D-47."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent("collaborator")})
        ran = await project.run("one", script={"work": says(BOB)})
        rejected = ran.heard.one("dispatch.autonomy_validation")
        assert (rejected["outcome"], rejected.level) == ("rejected", logging.WARNING)
        assert rejected["pointers"] == ["/output/length", "/output/tags", "/output/text", "/output/until"]
        assert ran.heard.one("dispatch.fallback")["reason"] == "validation_failure"

    async def test_every_event_says_which_run_workflow_step_and_action_it_is_about(self, project):
        """US5-IT, FR-007, D-48: 1.16, inside a loop too."""
        project.workflow(
            """
            name: many
            steps:
              - name: each
                type: loop
                for_each: "['a', 'b']"
                steps: [{name: work, type: python, action: strict_greet, kwargs: {name: Ada, loud: true}}]
        """.replace("\n            ", "\n")
        )
        project.settings(steps={"work": agent("collaborator")})
        ran = await project.run("many", script={"work": [{"output": ADA}, {"error": "crash"}]})
        told = [one for one in ran.heard.events if one.name.startswith(("dispatch.", "executor."))]
        inner = [one for one in told if one["step_name"] == "work"]
        assert {one["flow"] for one in inner} == {"workflow"}
        assert {one["definition"] for one in inner} == {"many"}
        assert {one["action"] for one in inner} == {"strict_greet"}
        assert {one["step_path"] for one in inner} == {"each/[0]/work", "each/[1]/work"}
        assert {one["run_id"] for one in inner} == {f"{ran.run.id}.each[0]", f"{ran.run.id}.each[1]"}
        assert all(isinstance(one["timestamp"], float) for one in told)

    async def test_no_value_reaches_a_log_record_of_info_or_above(self, project):
        """D-51."""
        project.workflow(GREET)
        project.settings(steps={"greeting": agent("collaborator")})
        secret = {**BOB, "text": "hush-hush", "whisper": 1}
        ran = await project.run("welcome", {"guest": "Rumpelstiltskin"}, script={"*": says(secret)})
        assert ran.run.status is Status.SUCCEEDED
        for one in ran.heard.above_debug():
            assert "Rumpelstiltskin" not in one.line
            assert "hush-hush" not in one.line


# -- edge cases ---------------------------------------------------------------------------------------------

CONTROL = """
name: control
steps:
  - {name: mark, type: checkpoint}
  - name: pick
    type: branch
    options: [{step: {name: chosen, type: python, action: echo, kwargs: {value: 1}}}]
  - name: each
    type: loop
    for_each: "[1]"
    steps: [{name: inner, type: python, action: echo, kwargs: {value: "${{ item }}"}}]
  - {name: check, type: validate, stages: [fine]}
  - {name: below, type: subworkflow, workflow: one}
"""


class TestEdgeCases:
    async def test_mode_agent_on_an_agent_step_is_ignored(self, project):
        """EC1, D-09: it runs as it would without it, and only a debug event says so."""
        project.plugin(
            'from detent.workflow import agent\n@agent("poet", instructions="You write verse.")\n'
            "def poet(context):\n    return 'Write.'\n",
            "poets",
        )
        project.workflow("name: verse\nsteps:\n  - {name: write, type: agent, agent: poet}\n")
        project.settings()
        without = await project.run("verse", script={"write": says({"verse": "a line"})})
        project.settings(steps={"write": {"mode": "agent"}})
        ran = await project.run("verse", script={"write": says({"verse": "a line"})})
        assert ran.run.status is Status.SUCCEEDED
        assert ran.run.data == without.run.data
        assert ran.executor.calls[0].prompt == without.executor.calls[0].prompt
        ignored = ran.heard.one("dispatch.mode_ignored", "write")
        assert (ignored.level, ignored["step_type"]) == (logging.DEBUG, "agent")
        assert without.heard.named("dispatch.mode_ignored") == []

    @pytest.mark.parametrize("inline", [True, False])
    async def test_mode_agent_on_control_flow_warns_and_the_step_runs_deterministically(
        self, project, inline
    ):
        """EC2, D-10: whether the file or the settings say it."""
        steps = ("mark", "pick", "each", "check", "below")
        project.workflow(SINGLE)
        project.workflow(CONTROL)
        stages = {"stages": {"fine": {"command": ["true"]}}}
        project.settings(validation=stages)
        plain = await project.run("control", script={"*": says(BOB)})
        if inline:
            text = CONTROL
            for name in steps:
                text = text.replace(f"{{name: {name},", f"{{name: {name}, config: {{mode: agent}},").replace(
                    f"- name: {name}\n", f"- name: {name}\n    config: {{mode: agent}}\n"
                )
            project.workflow(text)
        project.settings(
            validation=stages, **({} if inline else {"steps": {name: {"mode": "agent"} for name in steps}})
        )
        ran = await project.run("control", script={"*": says(BOB)})
        assert ran.run.status is Status.SUCCEEDED
        assert ran.asked == []
        for name in steps:
            warning = ran.heard.one("dispatch.no_intent", name)
            assert warning.level == logging.WARNING
            assert warning["step_type"] in {"checkpoint", "branch", "loop", "validate", "subworkflow"}
            assert plain.heard.named("dispatch.no_intent", name) == []
        for step in ("pick", "each", "below"):
            assert ran.output(step) == plain.output(step)

    async def test_the_handlers_error_propagates_if_the_fallback_fails_too(self, project):
        """EC3, A-006, D-30: it names both, and nothing else is tried."""
        project.workflow(
            "name: one\nsteps:\n  - {name: work, type: python, action: break_down, kwargs: {say: no bell}}\n"
        )
        project.settings(steps={"work": agent(max_retries=3) | {"retry_policy": None}})
        ran = await project.run("one", script={"work": [{"error": "permanent"}]})
        assert ran.run.status is Status.FAILED
        assert "no bell" in ran.result.error
        assert "ExecutorError" in ran.result.error
        assert project.acts.CALLS == [("break_down", "no bell")]
        assert ran.asked == ["work"]
        assert ran.heard.sequence() == "M S R F failed"

    @pytest.mark.parametrize("there", [True, False])
    async def test_a_missing_executor_is_named_in_a_warning_and_the_handler_runs(self, project, there):
        """EC4, D-31: none configured, or one that cannot be used."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent("approver")})
        executor = ScriptedStepExecutor([{"output": BOB}], unavailable="no key is set") if there else None
        ran = await project.run("one", executor=executor)
        warning = ran.heard.one("dispatch.no_executor")
        assert warning.level == logging.WARNING
        assert warning["why_not"] == ("no key is set" if there else NO_MODEL)
        assert ran.output("work") == ADA
        assert ran.heard.sequence() == "M no_executor F D"

    @pytest.mark.parametrize(
        ("level", "used"), [("collaborator", False), ("consultant", True), ("approver", True)]
    )
    async def test_a_result_in_another_format_is_caught_reported_or_accepted(self, project, level, used):
        """EC5, D-23: with no declared schema."""
        project.workflow(GREET.replace("outputs:", "outputs_: ").split("outputs_")[0])
        project.settings(steps={"greeting": agent(level)})
        other = ["Good day,", "Ada!"]
        ran = await project.run("welcome", script={"greeting": says(other)})
        assert ran.run.status is Status.SUCCEEDED
        assert ran.output("greeting") == (other if used else ADA)
        gate = ran.heard.one("dispatch.autonomy_validation")
        assert (gate["discrepancies"] > 0) == (level != "approver")

    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_result_that_breaks_a_declared_schema_is_used_at_no_level(self, project, level):
        """EC5, D-23, D-28."""
        project.workflow(SINGLE)
        project.settings(steps={"work": agent(level)})
        ran = await project.run("one", script={"work": says(["Good day,", "Ada!"])})
        assert ran.output("work") == ADA
        assert ran.dispatch("work").fallback_reason is FallbackReason.SCHEMA_VIOLATION


# -- requirements that no story tells -----------------------------------------------------------------------


class TestRequirements:
    async def test_mode_changes_nothing_for_the_other_step_types(self, project):
        """FR-002, D-08: data, effects and requests are the same with and without it."""
        project.plugin(
            "from detent.workflow import agent, generator\n"
            '@agent("poet", instructions="You write verse.")\ndef poet(context):\n    return "Write."\n'
            '@generator("note", intent="Write a short note about the day.")\n'
            'def note(day) -> str:\n    return f"It was {day}."\n',
            "poets",
        )
        project.workflow(SINGLE)
        project.workflow(
            CONTROL
            + "  - {name: write, type: agent, agent: poet}\n"
            + "  - {name: word, type: generate, generator: note, context: {day: monday}}\n"
        )
        script = {"write": says({"verse": "a line"}), "word": says("a note"), "*": says(BOB)}
        stages = {"stages": {"fine": {"command": ["true"]}}}
        project.settings(validation=stages)
        plain = await project.run("control", script=script, run_id="a" * 8)
        names = ("mark", "pick", "each", "check", "below", "write", "word")
        project.settings(validation=stages, steps={name: {"mode": "agent"} for name in names})
        project.store = None
        ran = await project.run("control", script=script, run_id="a" * 8)
        for data in (plain.run.data, ran.run.data):
            for result in data["steps/check"]["output"]["stage_results"]:
                result["duration_ms"] = 0
            data["steps/mark"]["output"]["timestamp"] = 0
        assert ran.run.data == plain.run.data
        assert ran.asked == plain.asked == ["write", "word"]
        assert [call.prompt for call in ran.executor.calls] == [call.prompt for call in plain.executor.calls]

    async def test_dispatch_adds_no_step_type(self):
        """A-007, D-11."""
        assert [one.value for one in StepType] == [
            "python", "agent", "generate", "validate", "subworkflow", "branch", "loop", "checkpoint",
        ]  # fmt: skip

    async def test_a_step_without_configuration_is_deterministic_at_operator(self, project):
        """FR-008, D-06."""
        project.workflow(GREET)
        ran = await project.run("welcome")
        for step in ("greeting", "tell"):
            assert ran.dispatch(step).autonomy_level is AutonomyLevel.OPERATOR
            assert ran.dispatch(step).shape == "plain"

    async def test_mode_agent_alone_means_collaborator(self, project):
        """FR-008, D-06."""
        project.workflow(SINGLE)
        project.settings(steps={"work": {"mode": "agent"}})
        ran = await project.run("one", script={"work": says(ADA)})
        assert ran.dispatch("work").autonomy_level is AutonomyLevel.COLLABORATOR
        assert ran.moves["work"].detail["sources"] == {"mode": "steps.work"}

    def test_agents_are_reached_through_the_step_executor_protocol(self):
        """FR-010, D-13: the workflow package names no provider."""
        import detent.flows.workflow.steps.agent as agent_steps
        import detent.flows.workflow.steps.python as python

        assert isinstance(ScriptedStepExecutor([{"output": 1}]), StepExecutor)
        for module in (agent_steps, python):
            assert "adapters" not in inspect.getsource(module)

    async def test_a_fallback_calls_the_handler_once_and_the_agent_never_again(self, project):
        """A-006, D-32: whatever the retries."""
        project.workflow(SINGLE)
        project.settings(steps={"work": {"mode": "agent", "retry_policy": {**TWICE, "max_attempts": 4}}})
        ran = await project.run("one", script={"work": [{"error": "transient", "repeat": True}]})
        assert ran.asked == ["work"] * 4
        assert project.acts.CALLS == [("greet", "Ada")]
        assert ran.output("work") == ADA

    async def test_a_fallback_asks_each_query_once(self, project):
        """D-33: the agent's question is not asked again for the handler."""
        project.workflow(
            "name: one\nsteps:\n  - {name: work, type: python, action: lodge, kwargs: {guest: Ada}}\n"
        )
        project.settings(steps={"work": agent("collaborator")})
        look = [{"tool": "rooms.find", "args": {"guest": "Ada"}}]
        ran = await project.run("one", script={"work": says({"guest": "Ada", "room": 9}, calls=look)})
        assert project.acts.CALLS == [("rooms.find", "Ada"), ("lodge", "Ada")]
        assert ran.output("work") == {"guest": "Ada", "room": 3}

    @pytest.mark.parametrize("mode", ["deterministic", "agent"])
    async def test_an_output_that_says_success_false_fails_the_step(self, project, mode):
        """D-36: from the handler, and from the handler an agent's failure leads to."""
        project.workflow("name: one\nsteps:\n  - {name: work, type: python, action: refuse}\n")
        project.settings(steps={"work": {"mode": mode}})
        ran = await project.run("one", script={"work": says({"success": False})})
        assert ran.run.status is Status.FAILED
        assert "the house is full" in ran.result.error

    @pytest.mark.parametrize("level", LEVELS)
    async def test_an_agents_success_false_leads_to_the_handler(self, project, level):
        """D-36: reason exception."""
        project.workflow(GREET)
        project.settings(steps={"greeting": agent(level)})
        ran = await project.run("welcome", script={"greeting": says({"success": False})})
        assert ran.output("greeting") == ADA
        assert ran.dispatch("greeting").fallback_reason is FallbackReason.EXCEPTION


# -- success criteria ---------------------------------------------------------------------------------------


class TestSuccessCriteria:
    def test_one_field_in_the_settings_switches_a_step_and_the_file_stays_as_it_is(
        self, project, monkeypatch, capsys
    ):
        """SC-002, FR-009, D-05: through the program, twice the same command."""
        monkeypatch.chdir(project.folder)
        monkeypatch.setenv("NO_COLOR", "1")
        file = project.workflow(GREET)
        before = file.read_bytes()
        (project.folder / "script.yaml").write_text(
            "greeting: [{output: {text: 'Good day, Ada!', length: 14, until: '2030-01-31', tags: [guest]}}]\n"
        )
        model = {"models": {"scripted": {"kind": "scripted", "file": "script.yaml"}}}
        project.settings(**model)
        seen = []
        for settings in ({}, {"steps": {"greeting": {"mode": "agent"}}}):
            project.settings(**model, **settings)
            assert detent(["workflow", "run", "welcome", "--json"]) == 0
            seen.append(json_of(capsys))
            assert file.read_bytes() == before
        plain, switched = seen
        assert switched["final_output"] == plain["final_output"]
        modes = [
            {one["name"]: one["dispatch"].get("mode_used", "deterministic") for one in result["step_results"]}
            for result in seen
        ]
        assert modes[0] == {"greeting": "deterministic", "tell": "deterministic"}
        assert modes[1] == {"greeting": "agent", "tell": "deterministic"}

    def test_the_environment_alone_can_switch_a_step(self, project, monkeypatch, capsys):
        """SC-002, 1.3: no file changes at all."""
        monkeypatch.chdir(project.folder)
        project.workflow(SINGLE)
        (project.folder / "script.yaml").write_text("work: [{error: crash}]\n")
        project.settings(models={"scripted": {"kind": "scripted", "file": "script.yaml"}})
        monkeypatch.setenv("DETENT__STEPS__WORK__MODE", "agent")
        assert detent(["workflow", "run", "one", "--json"]) == 0
        (step,) = json_of(capsys)["step_results"]
        assert (step["output"], step["dispatch"]["fallback_reason"]) == (ADA, "exception")

    async def test_every_dispatch_decision_has_an_event_and_one_in_the_journal(self, project):
        """SC-005: so that agent and deterministic outcomes can be compared across runs."""
        project.workflow(GREET)
        project.settings(steps={"greeting": agent("collaborator")})
        ran = await project.run("welcome", script={"greeting": says(ADA)})
        for step in ("greeting", "tell"):
            assert len(ran.heard.named("dispatch.mode_selected", step)) == 1
        assert ran.moves["greeting"].detail["step"] == "workflow/welcome/greeting"
        assert ran.moves["greeting"].detail["series"]["handler"]

    def test_no_workflow_needs_an_executor_to_exist(self, project, monkeypatch, capsys):
        """SC-001, W005: with agent mode and no model at all the run ends as it would have."""
        monkeypatch.chdir(project.folder)
        project.workflow(SINGLE)
        project.settings(steps={"work": {"mode": "agent"}})
        assert shutil.which("detent-model") is None
        assert detent(["workflow", "run", "one", "--json"]) == 0
        assert json_of(capsys)["final_output"] == ADA


def json_of(capsys):
    import json

    return json.loads(capsys.readouterr().out)
