"""A project's own actions, agents, generators, context builders, prerequisites and stages, used in workflows.

The plugin is the one that the documentation shows, with bodies that do what it promises.
"""

from __future__ import annotations

import logging
import sqlite3

import pytest

from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.authoring.problem import DocumentError
from detent.cli.main import run as detent
from detent.dispatch.autonomy import AutonomyLevel, FallbackReason, StepMode
from detent.flows.workflow.preflight import PrerequisitesMissing
from detent.flows.workflow.registry import action
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import Status
from detent.runtime.settings import SettingsError
from tests.flows.workflow.actions.agents import Workers
from tests.flows.workflow.dispatch.conftest import ACTS

SHOP = '''
import csv
import io
import json
import os
from dataclasses import dataclass
from typing import TypedDict

from detent import StepContext
from detent.agents import CompareRules
from detent.workflow import action, agent, context_builder, generator, prerequisite, validation_stage

CALLS = []


@dataclass
class ImportReport:
    database: str
    key: str
    batch: dict
    inserted: int
    updated: int
    duration_ms: float


class Review(TypedDict):
    verdict: str
    remarks: list[str]


@action("import_orders", intent="Bring the day's orders from the shop export into the order table.",
        effects=["db.upsert"], output_schema=ImportReport, rollback="restore_rows",
        compare=CompareRules(ignore=["/duration_ms"]), max_autonomy="consultant")
async def import_orders(ctx: StepContext, path: str, table: str = "orders") -> ImportReport:
    CALLS.append(("import_orders", path, table, ctx.step_path))
    text = (await ctx.query("files.read", path=path))["text"]
    header, *rows = csv.reader(io.StringIO(text))
    lines = list(range(2, len(rows) + 2))
    batch = ctx.keep(json.dumps({"columns": header, "rows": rows, "lines": lines}))
    done = ctx.propose("db.upsert", database="shop.db", table=table, key=header[0], batch=batch)
    ctx.emit(f"{len(rows)} orders", "success")
    return ImportReport("shop.db", header[0], batch, done.inserted, done.updated, ctx.clock.elapsed())


@agent("reviewer", instructions="You review what changed in the shop.", tools=["files.read"],
       output_schema=Review)
class Reviewer:
    def __call__(self, context):
        return f"Review {', '.join(context['files'])}."


@agent("clerk", instructions="You answer in one word.")
def clerk(context):
    return None


@generator("release_notes", prompt_file="release_notes.md")
def release_notes(ctx, version: str, files=()) -> str:
    """Tell customers what is new in the shop."""
    CALLS.append(("release_notes", version))
    return f"# {version}\\n" + "\\n".join(f"- {one}" for one in files)


@context_builder("changed_files")
async def changed_files(ctx):
    found = await ctx.query("files.list", pattern="*.csv")
    return {"files": found["files"], "version": "1.2"}


@prerequisite("vpn", remediation="Connect to the VPN.")
def vpn():
    return ("SHOP_VPN" in os.environ), "the VPN is down"


docs = validation_stage("docs", command=["true"])


@validation_stage("prices", command=["sh", "-c", "test -f orders.csv"])
def prices():
    """Put above a function, the stage is found with it."""
'''
WORKFLOW = """
name: shop
inputs: {path: {type: string, default: orders.csv}}
steps:
  - {name: load, type: python, action: import_orders, args: ["${{ inputs.path }}"], requires: [vpn]}
  - {name: review, type: agent, agent: reviewer, context: changed_files}
  - {name: notes, type: generate, generator: release_notes, context: changed_files}
  - {name: check, type: validate, stages: [docs, prices]}
outputs:
  inserted: "${{ steps.load.output.inserted }}"
  verdict: "${{ steps.review.output.verdict }}"
  notes: "${{ steps.notes.output }}"
  checked: "${{ steps.check.output.success }}"
"""
REVIEW = {"verdict": "fine", "remarks": []}
NOTES = "# 1.2\n- orders.csv"


@pytest.fixture
def shop(project, monkeypatch):
    monkeypatch.setenv("SHOP_VPN", "up")
    project.plugin(SHOP)
    (project.folder / "release_notes.md").write_text("Write as to an old friend.\n")
    (project.folder / "orders.csv").write_text("id,what\n1,lamp\n2,chair\n")
    project.workflow(WORKFLOW)
    project.settings()
    return project


def script(**more):
    return {
        "review": [{"output": REVIEW, "repeat": True}], "notes": [{"error": "crash", "repeat": True}], **more
    }  # fmt: skip


def orders(project):
    with sqlite3.connect(project.folder / "shop.db") as link:
        return link.execute("SELECT id, what FROM orders ORDER BY id").fetchall()


class TestThePluginOfTheDocumentation:
    async def test_everything_in_it_is_used_by_a_workflow(self, shop):
        """D-76, 2.10: action, agent, generator, context builder, prerequisite and both forms of a stage."""
        ran = await shop.run("shop", script=script())
        assert ran.run.status is Status.SUCCEEDED, ran.result.error
        assert ran.result.final_output == {
            "inserted": 2, "verdict": "fine", "notes": NOTES, "checked": True,
        }  # fmt: skip
        assert orders(shop) == [("1", "lamp"), ("2", "chair")]
        assert shop.acts.CALLS[0] == ("import_orders", "orders.csv", "orders", "load")

    async def test_the_effect_is_undone_by_the_rollback_the_action_names(self, shop):
        """D-69, D-76: what `restore_rows` needs comes from the output, and `table` from what the action goes
        by where nothing is said."""
        shop.workflow(WORKFLOW.replace("[docs, prices]", "[docs, never]"))
        shop.settings(validation={"stages": {"never": {"command": ["false"]}}})
        ran = await shop.run("shop", script=script())
        assert ran.run.status is Status.FAILED
        assert ran.effects[-2:] == [("db.upsert", "performed"), ("db.restore", "performed")]
        assert ran.result.rollback_errors == ()
        with sqlite3.connect(shop.folder / "shop.db") as link:  # the table was made by the run
            assert link.execute("SELECT name FROM sqlite_master WHERE name = 'orders'").fetchall() == []

    def test_a_rollback_that_could_never_be_called_is_told_before_anything_runs(self, shop):
        """E018: neither the output nor the arguments hold what it needs."""
        shop.plugin(
            SHOP.replace("    database: str\n", "").replace('ImportReport("shop.db", ', "ImportReport(")
        )
        with pytest.raises(DocumentError) as refused:
            shop.open().choose("shop")
        (problem,) = refused.value.problems
        assert (problem.code, problem.path) == ("E018", "steps[0].action")
        assert "rollback 'restore_rows' needs 'database'" in problem.message

    async def test_a_missing_prerequisite_stops_it_before_anything_is_done(self, shop, monkeypatch):
        """D-72, D-76."""
        monkeypatch.delenv("SHOP_VPN")
        with pytest.raises(PrerequisitesMissing, match=r"(?s)the VPN is down.*Connect to the VPN"):
            await shop.run("shop", script=script())
        assert shop.acts.CALLS == []

    async def test_the_action_can_be_an_agents_and_what_varies_is_not_compared(self, shop):
        """D-16, D-76: `/duration_ms` is ignored, the effect is compared and performed once."""
        first = await shop.run("shop", script=script())
        (shop.folder / "shop.db").unlink()
        shop.store = None
        proposal = next(body for body in await journal(first, "load") if type(body).__name__ == "Proposed")
        effect = proposal.effects[0]
        calls = {"calls": [{"tool": "db.upsert", "args": effect["args"]}]}
        shop.settings(steps={"load": {"mode": "agent"}})
        ran = await shop.run(
            "shop", script=script(load=[{"output": calls}, {"output": {"duration_ms": 99999.0}}])
        )
        assert ran.dispatch("load").mode_used is StepMode.AGENT, ran.moves["load"].detail
        assert ran.output("load") == {
            "inserted": 2, "updated": 0, "duration_ms": 99999.0, "database": "shop.db", "key": "id",
            "batch": effect["args"]["batch"],
        }  # fmt: skip
        assert ran.effects.count(("db.upsert", "performed")) == 1
        assert orders(shop) == [("1", "lamp"), ("2", "chair")]
        assert ran.executor.calls[0].tools == ("db.upsert",)

    def test_more_trust_than_it_advises_is_pointed_out(self, shop, monkeypatch, capsys):
        """W006: `max_autonomy` is advice."""
        monkeypatch.chdir(shop.folder)
        shop.settings(steps={"load": {"mode": "agent", "autonomy": "approver"}})
        assert detent(["workflow", "validate", "shop"]) == 0
        said = capsys.readouterr()
        assert "W006" in said.out + said.err

    def test_a_projects_own_stands_in_for_one_that_ships_and_that_is_told(self, shop, monkeypatch, capsys):
        """2.10: in `list`, in `actions`, and in `validate` of a workflow that names it."""
        monkeypatch.chdir(shop.folder)
        note = "Note: the generator 'release_notes' is the project's own (acts.py:"
        assert detent(["workflow", "list"]) == 0
        assert note in capsys.readouterr().out
        assert detent(["workflow", "validate", "shop", "--strict"]) == 2  # an agent step, and no executor
        assert note in capsys.readouterr().out
        assert detent(["workflow", "validate", "commit-and-push", "--strict"]) == 0
        assert note not in capsys.readouterr().out
        assert detent(["workflow", "actions", "release_notes"]) == 0
        assert "detent.flows.workflow.generators:" in capsys.readouterr().out

    def test_the_plugin_is_listed_with_intent_effects_and_origin(self, shop, monkeypatch, capsys):
        """2.10: `detent workflow actions`."""
        monkeypatch.chdir(shop.folder)
        assert detent(["workflow", "actions", "import_orders"]) == 0
        said = capsys.readouterr().out
        for part in ("Bring the day's orders", "db.upsert", "acts.py", "consultant", "restore_rows"):
            assert part in said


class TestAgentSteps:
    async def test_an_agent_gets_its_instructions_its_prompt_and_the_built_context(self, shop):
        """2.3, D-76."""
        ran = await shop.run("shop", script=script())
        asked = next(call for call in ran.executor.calls if call.step_name == "review")
        assert asked.agent_name == "reviewer"
        assert asked.instructions.endswith("You review what changed in the shop.")
        assert '"task": "Review orders.csv."' in asked.prompt
        assert '"version": "1.2"' in asked.prompt
        assert asked.tools == ("files.read",)
        assert ran.heard.sequence("review") == "S C"

    @pytest.mark.parametrize(
        ("reply", "error"),
        [
            ({"error": "crash"}, "RuntimeError"),
            ({"output": {"verdict": 7}}, "OutputSchemaValidationError"),
            ({"text": "It looks fine to me."}, "OutputSchemaValidationError"),
            ({"output": {"success": False}}, "StepFailed"),
        ],
    )
    async def test_its_failure_is_the_steps_and_nothing_is_tried_instead(self, shop, reply, error):
        """D-29, US3.4."""
        ran = await shop.run("shop", script=script(review=[{**reply, "repeat": True}]))
        assert ran.run.status is Status.FAILED
        assert error in ran.result.error
        assert ran.heard.named("dispatch.fallback", "review") == []
        assert len(ran.heard.named("dispatch.failed", "review")) == 1

    async def test_without_an_executor_it_waits_and_says_what_is_missing(self, shop):
        """D-29, W005: nothing is done in its place, and nothing before it is rolled back."""
        ran = await shop.run("shop")
        assert ran.run.status is Status.WAITING
        (hold,) = ran.run.holds.values()
        assert "no model is configured" in hold.question
        assert hold.choices == ["retry", "fail"]

    async def test_the_settings_of_an_agent_apply_by_its_name(self, shop):
        """1.3, D-53: `agents` chooses the model; a step's own entry beats it."""
        shop.settings(
            agents={"reviewer": {"model_id": "big", "temperature": 0.5}, "dispatch": {"model_id": "small"}},
            steps={"review": {"temperature": 0.25}, "load": {"mode": "agent", "max_retries": 0}},
        )
        ran = await shop.run("shop", script=script(load=[{"error": "crash"}]))
        asked = {call.step_name: call.config for call in ran.executor.calls}
        assert (asked["review"].model_id, asked["review"].temperature) == ("big", 0.25)
        assert asked["load"].model_id == "small"
        assert asked["notes"].model_id == "small"

    async def test_an_agent_nobody_registered_cannot_be_configured(self, shop):
        """D-54, E025."""
        shop.settings(agents={"revewer": {"model_id": "big"}})
        with pytest.raises((SettingsError, DocumentError), match="revewer"):
            await shop.run("shop", script=script())

    async def test_a_prompt_suffix_and_fewer_tools_reach_it_too(self, shop):
        """1.2: agent-only fields on a step that is an agent's by nature."""
        shop.settings(steps={"review": {"prompt_suffix": "Be kind.", "allowed_tools": []}})
        ran = await shop.run("shop", script=script())
        asked = next(call for call in ran.executor.calls if call.step_name == "review")
        assert asked.instructions.endswith("Be kind.")
        assert asked.tools == ()

    @pytest.mark.parametrize("where", ["steps", "file"])
    async def test_mode_deterministic_is_refused_before_anything_runs(self, shop, where):
        """E021: there is no handler."""
        if where == "steps":
            shop.settings(steps={"workflow/shop/review": {"mode": "deterministic"}})
        else:
            shop.workflow(
                WORKFLOW.replace("agent: reviewer,", "agent: reviewer, config: {mode: deterministic},")
            )
        with pytest.raises(DocumentError, match="E021"):
            await shop.run("shop", script=script())

    async def test_an_agent_without_a_prompt_of_its_own_gets_the_context_alone(self, shop):
        """2.10: a function that gives nothing adds nothing."""
        shop.workflow(
            "name: ask\nsteps:\n  - {name: word, type: agent, agent: clerk, context: {day: monday},"
            " output_schema: {type: object, required: [word]}}\n"
        )
        ran = await shop.run("ask", script={"word": [{"output": {"word": "yes"}}]})
        assert ran.run.status is Status.SUCCEEDED
        assert '"task"' not in ran.executor.calls[0].prompt
        assert ran.result.final_output == {"word": "yes"}


class TestGenerateSteps:
    async def test_a_generator_is_asked_as_an_agent_with_its_prompt_file(self, shop):
        """2.3, 2.10: the docstring is its intent, the file stands beside the plugin."""
        ran = await shop.run("shop", script=script(notes=[{"text": "Dear friend, there are chairs."}]))
        assert ran.output("notes") == "Dear friend, there are chairs."
        asked = next(call for call in ran.executor.calls if call.step_name == "notes")
        assert "Tell customers what is new in the shop." in asked.instructions
        assert "Write as to an old friend." in asked.instructions
        assert "Answer with the text alone" in asked.prompt
        assert ("release_notes", "1.2") not in shop.acts.CALLS

    @pytest.mark.parametrize(
        ("reply", "reason"),
        [
            ({"error": "crash"}, "exception"),
            ({"error": "timeout"}, "timeout"),
            ({"output": {"no": "text"}}, "schema_violation"),
            ({"output": "x", "success": False}, "exception"),
        ],
    )
    async def test_its_handler_writes_the_text_where_the_model_does_not(self, shop, reply, reason):
        """1.7: falls back, on the same inputs."""
        shop.settings(steps={"notes": {"timeout": 0.02, "max_retries": 0}})
        ran = await shop.run("shop", script=script(notes=[{**reply, "repeat": True}]))
        assert ran.run.status is Status.SUCCEEDED
        assert ran.output("notes") == NOTES
        assert ran.dispatch("notes").fallback_reason is FallbackReason(reason)
        assert shop.acts.CALLS.count(("release_notes", "1.2")) == 1

    async def test_its_handler_writes_the_text_where_there_is_no_model(self, shop):
        """1.7."""
        shop.workflow(
            "name: only\nsteps:\n"
            "  - {name: notes, type: generate, generator: release_notes, context: {version: '3'}}\n"
        )
        ran = await shop.run("only")
        assert ran.result.final_output == "# 3\n"
        assert ran.dispatch("notes").fallback_reason is FallbackReason.NO_EXECUTOR

    @pytest.mark.parametrize("mode", [None, "agent", "deterministic"])
    async def test_mode_means_nothing_to_it(self, shop, mode):
        """D-08, FR-002: a debug event says so, and nothing else changes."""
        shop.settings(**({"steps": {"notes": {"mode": mode}}} if mode else {}))
        ran = await shop.run("shop", script=script(notes=[{"text": "Dear friend."}]))
        assert ran.output("notes") == "Dear friend."
        told = ran.heard.named("dispatch.mode_ignored", "notes")
        assert [(one.level, one["step_type"]) for one in told] == (
            [(logging.DEBUG, "generate")] if mode else []
        )
        assert ran.dispatch("notes").autonomy_level is AutonomyLevel.APPROVER

    async def test_a_missing_prompt_file_is_told_before_anything_runs(self, shop):
        """2.10: which generator, and which file."""
        (shop.folder / "release_notes.md").unlink()
        with pytest.raises(ConfigurationError, match=r"release_notes.*release_notes\.md"):
            await shop.run("shop", script=script())
        assert shop.acts.CALLS == []

    async def test_a_failing_handler_after_a_failing_model_names_both(self, shop):
        """D-30."""
        shop.workflow(
            "name: only\nsteps:\n"
            "  - {name: notes, type: generate, generator: release_notes, context: {files: []}}\n"
        )
        ran = await shop.run("only", script={"notes": [{"error": "crash"}]})
        assert ran.run.status is Status.FAILED
        assert "RuntimeError" in ran.result.error
        assert "version" in ran.result.error


class TestContracts:
    ODD = '''
from typing import Any
from detent import Hold, StepContext
from detent.workflow import action

CALLS = []


class Own:
    """A class of its own, which no schema describes."""

    def __init__(self, n):
        self.n = n


@action("vague", intent="Give something of which nobody has said what it is.")
def vague(n: int = 1):
    return {"n": n}


@action("anything", intent="Give something that may be of any kind at all.")
def anything(n: int = 1) -> Any:
    return [n]


@action("waits", intent="Give something now, or perhaps a little while later.")
def waits(ctx: StepContext, n: int = 1) -> dict | Hold:
    return {"n": n}


@action("owned", intent="Give something of a class that only this plugin knows.")
def owned(n: int = 1) -> "Own | dict":
    return {"n": n}


@action("numbers", intent="Give back the numbers that were given, in a tuple.")
def numbers(n: int = 1) -> tuple[int, ...]:
    return (n, n)


@action("nothing", intent="Do whatever is to be done and give nothing back.")
def nothing(n: int = 1) -> None:
    CALLS.append(n)
'''

    @pytest.mark.parametrize(
        ("action", "answer"),
        [
            ("vague", {"n": 1}), ("anything", [1]), ("waits", {"n": 1}), ("owned", {"n": 1}),
            ("numbers", [1, 1]), ("nothing", None),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    async def test_whatever_an_action_says_it_returns_an_agent_can_stand_in(
        self, project, action, answer, level
    ):
        """D-03: an annotation that no agent could be told is not told."""
        project.plugin(self.ODD)
        project.workflow(f"name: odd\nsteps:\n  - {{name: work, type: python, action: {action}}}\n")
        project.settings()
        plain = await project.run("odd")
        project.settings(steps={"work": {"mode": "agent", "autonomy": level}})
        ran = await project.run("odd", script={"work": [{"output": answer}]})
        assert ran.dispatch("work").mode_used is StepMode.AGENT, ran.moves["work"].detail
        assert ran.run.data == plain.run.data

    async def test_a_dataclass_that_says_it_did_not_succeed_fails_the_step(self, project):
        """D-36: as a mapping would."""
        project.plugin(
            "from dataclasses import dataclass\nfrom detent.workflow import action\nCALLS = []\n"
            "@dataclass\nclass Report:\n    success: bool\n    error: str\n"
            '@action("try_it", intent="Try to do it and report how that went.")\n'
            'def try_it() -> Report:\n    return Report(False, "no luck")\n'
            '@action("try_there", intent="Try to do it out there and report how it went.", opaque=True)\n'
            'def try_there() -> Report:\n    return Report(False, "no luck")\n'
        )
        for name in ("try_it", "try_there"):
            project.workflow(f"name: one\nsteps:\n  - {{name: work, type: python, action: {name}}}\n")
            project.settings()
            ran = await project.run("one")
            assert ran.run.status is Status.FAILED
            assert "no luck" in ran.result.error

    async def test_a_step_may_narrow_its_actions_contract_in_the_file(self, project):
        """2.3: `output_schema` of the step, as JSON Schema."""
        project.workflow(
            """
            name: narrow
            steps:
              - name: work
                type: python
                action: echo
                kwargs: {value: 3}
                output_schema: {type: object, required: [value], properties: {value: {type: integer}}}
        """.replace("\n            ", "\n")
        )
        project.settings(steps={"work": {"mode": "agent", "autonomy": "approver", "max_retries": 0}})
        ran = await project.run("narrow", script={"work": [{"output": {"value": "three"}}]})
        assert ran.dispatch("work").fallback_reason is FallbackReason.SCHEMA_VIOLATION
        assert ran.output("work") == {"value": 3}


async def journal(ran, step):
    return [
        entry.body
        for entry in await ran.engine.store.entries(ran.run.id, 0, 10_000)
        if getattr(entry.body, "step", None) == step
    ]


def test_an_agent_without_an_executor_class_is_still_an_executor():
    """D-14: the protocol is what counts."""
    from detent.agents import StepExecutor

    assert isinstance(ScriptedStepExecutor([{"output": 1}]), StepExecutor)


CRASH = {"*": [{"error": "crash", "repeat": True}]}

# -- what receipts hold -------------------------------------------------------------------------------------

CHARGE = """
name: one
steps:
  - {name: work, type: python, action: charge, kwargs: {what: breakfast}}
"""


@pytest.mark.parametrize("level", ["consultant", "approver"])
async def test_what_a_receipt_holds_is_not_an_agents_to_say_without_a_schema_either(project, level):
    """An action that declares no output, performed by an agent that makes up the number."""
    project.workflow(CHARGE)
    project.settings(steps={"work": {"mode": "agent", "autonomy": level}})
    calls = {"calls": [{"tool": "ledger.post", "args": {"what": "breakfast"}}]}
    script = {"work": [{"output": calls}, {"output": {"what": "breakfast", "number": 99}}]}
    ran = await project.run("one", script=script)
    assert ran.dispatch("work").mode_used is StepMode.AGENT
    assert ran.output("work") == {"what": "breakfast", "number": 1}


# -- acting in rounds ---------------------------------------------------------------------------------------

ROUNDS = """


def _billed(acts):
    return {"numbers": [act.receipt["number"] for act in acts]}


@action(
    "bill", intent="Put every item of the bill into the ledger, in order.", effects=["ledger.post"],
    output_schema={
        "type": "object", "required": ["numbers"],
        "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
    },
    rounds=3, from_receipts=_billed, timeout=TIMEOUT,
)
async def bill(ctx: StepContext, items: list) -> dict:
    receipts = [await ctx.perform("ledger.post", what=item) for item in items]
    return {"numbers": [receipt["number"] for receipt in receipts]}
"""
BILL = """
name: one
steps:
  - {name: work, type: python, action: bill, kwargs: {items: [room, breakfast]}}
"""


def billing(asked):
    """Posts one item after the other, and makes the numbers up."""
    left = asked.inputs["items"][len(asked.results) :]
    return [("ledger.post", {"what": left[0]})] if left else {"numbers": [98, 99]}


@pytest.mark.parametrize("timeout", [None, 30])
async def test_an_action_acts_in_rounds_by_code_and_by_an_agent_that_is_compared(project, timeout):
    project.plugin(ACTS + ROUNDS.replace("TIMEOUT", str(timeout)))
    project.workflow(BILL)
    plain = await project.run("one")
    assert plain.output("work") == {"numbers": [1, 2]}
    project.settings(steps={"work": {"mode": "agent", "max_retries": 0}})
    ran = await project.run("one", executor=Workers(CRASH, {"work": billing}))
    assert ran.dispatch("work").mode_used is StepMode.AGENT, ran.moves["work"].detail
    assert project.acts.POSTED == ["room", "breakfast"]
    assert ran.output("work") == {"numbers": [1, 2]}


@pytest.mark.parametrize("level", ["consultant", "approver"])
async def test_its_own_rule_says_what_the_receipts_settle(project, level):
    """Whatever the agent says of it; and it acts no oftener than the action allows."""
    project.plugin(ACTS + ROUNDS.replace("TIMEOUT", "None"))
    project.workflow(BILL.replace("[room, breakfast]", "[room, breakfast, bar, phone]"))
    project.settings(steps={"work": {"mode": "agent", "autonomy": level, "max_retries": 0}})
    ran = await project.run("one", executor=Workers(CRASH, {"work": billing}))
    assert ran.dispatch("work").mode_used is StepMode.AGENT, ran.moves["work"].detail
    assert project.acts.POSTED == ["room", "breakfast", "bar"]
    assert ran.output("work") == {"numbers": [1, 2, 3]}


@pytest.mark.parametrize("rounds", [0, -1, 1.5, True, "many"])
def test_rounds_that_are_no_number_are_refused(rounds):
    with pytest.raises(ConfigurationError, match=r"'bill': `rounds`"):
        action("bill", intent="Put every item of the bill into the ledger.", rounds=rounds)
