"""What the operator is told about agents, and how a step is held at a lower level."""

import asyncio
import io
import sys
import time

import pytest

from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.adapters.stores.sqlite import SQLiteStore
from detent.cli.agreement import PAGE
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.evidence import DEMOTIONS, POWER, ByLevel, Demotion, EvidenceRules, Power, Verdict
from detent.dispatch.evidence_log import mark_of
from detent.dispatch.standing import Observation, Standing
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.kernel.machine import Machine
from detent.runtime.catalog import Catalog
from detent.runtime.settings import read_settings

CLAIMS = '''
from detent import Flow, Machine, Outcome

claim = Flow(
    Machine("claim", start="judge", moves={"judge": ["again", "done"], "again": ["judge"]}, ends=["done"])
)


@claim.step("judge", intent="Say whether the claim is covered by the warranty.")
async def judge(ctx):
    """Leaves what a dispatched step leaves in the journal, as the data say."""
    for note in ctx.data.get("notes", {}).get(str(ctx.visit), []):
        await ctx.note("shadow", **note)
    details = ctx.data["details"]
    return Outcome("again" if ctx.visit < len(details) else "done", detail=details[ctx.visit - 1])


@claim.step("again", intent="Go on with the next claim in the pile.", max_autonomy="collaborator")
def again(ctx):
    return "judge"
'''
SERIES = {"model_id": "m1", "prompt": "p1", "handler": "h1", "check": "c1", "sampling": "s1"}
AGREED = {
    "step": "claim/judge", "mode_used": "agent", "autonomy_level": "collaborator", "agent_called": True,
    "agent_result_accepted": True, "check": "compare", "series": SERIES, "agent_duration_ms": 1840.0,
    "handler_duration_ms": 2.0, "spend": {"cost_usd": 0.004},
}  # fmt: skip
DIFFERED = {
    "step": "claim/judge", "mode_used": "deterministic", "fallback_used": True, "agent_called": True,
    "fallback_reason": "validation_failure", "autonomy_level": "collaborator", "check": "compare",
    "series": SERIES, "validation_details": [{"pointer": "/amount", "kind": "value"}],
    "agent_result_accepted": False,
}  # fmt: skip
SETTINGS = "plugins: [claims.py]\nsteps:\n  claim/judge:\n    mode: agent  # on trial\n"


@pytest.fixture(autouse=True)
def claims(folder):
    """A folder with a flow whose journals say what the test wants them to say."""
    (folder / "claims.py").write_text(CLAIMS)
    (folder / "detent.yaml").write_text(SETTINGS)
    return folder


@pytest.fixture
def ran(folder):
    """Run the flow with these records in its journal."""

    def run(*details, run_id="r1", notes=None):
        async def drive():
            flow = Catalog(read_settings(folder=folder, environ={}), ["claims.py"]).get("claim").flow
            (folder / ".detent").mkdir(exist_ok=True)
            async with Engine(SQLiteStore(folder / ".detent/detent.db"), [flow]) as engine:
                for one in [run_id] if isinstance(run_id, str) else run_id:
                    await engine.run("claim", {"details": list(details), "notes": notes or {}}, run_id=one)

        asyncio.run(drive())

    return run


def judged(folder, n, wrong=0, level="collaborator", step="claim/judge", planted=200):
    """Put the standing that so many judged visits of four days give, and the power of their check."""
    standing = Standing()
    power = Power(planted, planted) if planted else None
    for number in range(n):
        verdict = Verdict.DIFFERED if number < wrong else Verdict.AGREED
        at = time.time() - number % 4 * 86400
        standing, _ = standing.after(Observation(verdict, AutonomyLevel(level), at), EvidenceRules(), power)

    async def put():
        store = SQLiteStore(folder / ".detent/detent.db")
        await store.open()
        marks = {mark_of(step, SERIES): standing.to_plain()}
        if planted:
            marks[f"{POWER}{step}/c1"] = {"sorts": [{"sort": "value", "planted": planted, "caught": planted}]}
        for key, mark in marks.items():
            _, version = await store.mark(key)
            assert await store.set_mark(key, mark, version)
        await store.close()

    asyncio.run(put())


def marked(folder, value, step="claim/judge"):
    """Put a mark as the engine does."""

    async def put():
        store = SQLiteStore(folder / ".detent/detent.db")
        await store.open()
        _, version = await store.mark(DEMOTIONS + step)
        assert await store.set_mark(DEMOTIONS + step, value, version)
        await store.close()

    asyncio.run(put())


def answer(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# -- the report ---------------------------------------------------------------------------------------------


def test_a_store_without_evidence_is_told_so(detent, ran):
    ran({})
    said = detent("autonomy", "report")
    assert (said.code, said.out) == (
        0,
        "No agent has been put to the test yet: no step of a run in this store was performed or shadowed by "
        "one.\n",
    )
    assert detent("autonomy", "report", "--json").json == {"steps": [], "justified": []}
    assert detent("autonomy", "report", "judge").out == "No agent has been put to the test of judge.\n"


def test_the_report_is_the_table_of_the_specification(detent, ran, folder):
    """D-49: no share without its number, its judge and its power; with the lines to change below it."""
    ran(*[AGREED] * 8)
    judged(folder, 300)
    report = detent("autonomy", "report")
    assert report.code == 0
    assert report.lines[0].split() == [
        "STEP", "JUDGED", "BY", "N", "WRONG", "POWER", "TRUE", "ERROR", "UNUSABLE", "FALLBACKS",
        "AGENT/HANDLER", "MS", "COST", "NOW", "COULD", "BE",
    ]  # fmt: skip
    assert report.lines[1].split() == [
        "claim/judge", "comparison", "300", "0", "1.00", "(200", "of", "200)", "at", "most", "1.3%", "–", "–",
        "1840", "/", "2", "$0.0040", "collaborator", "consultant",
    ]  # fmt: skip
    assert report.lines[2:] == [
        "",
        "claim/judge at consultant: 10% of its answers are judged afterwards; about 10 wrong ones go out "
        "before one is seen.",
        "",
        "The evidence would justify this in detent.yaml:",
        "",
        "steps:",
        "  claim/judge: {autonomy: consultant}",
        "",
        "Nothing is raised by itself. To write it: detent autonomy report --apply",
    ]


def test_evidence_without_power_justifies_nothing(detent, ran, folder):
    ran(*[AGREED] * 8)
    judged(folder, 900, planted=0)
    report = detent("autonomy", "report")
    assert report.lines[1].endswith("stay: no power measured")
    assert "not known" in report.lines[1]
    assert "%" not in report.lines[1]


def test_one_body_of_evidence_does_not_carry_two_levels(detent, ran, folder):
    ran(*[AGREED] * 8)
    judged(folder, 2000)
    assert detent("autonomy", "report", "--apply", "--yes").code == 0
    ran({**AGREED, "autonomy_level": "consultant", "check": "contract"}, run_id="r2")
    (row,) = detent("autonomy", "report", "--json").json["steps"]
    assert (row["now"], row["could_be"]) == ("consultant", None)
    assert row["why_not"] == "stay: nothing was judged at consultant yet"


def test_a_restart_begins_the_evidence_anew_as_a_further_attempt(detent, ran, folder):
    ran(*[AGREED] * 8)
    judged(folder, 300)
    assert detent("autonomy", "restart", "judge").out == "The evidence about claim/judge begins anew.\n"
    (row,) = detent("autonomy", "report", "--json").json["steps"]
    assert (row["attempt"], row["could_be"], row["kinds"][0]["n"]) == (2, None, 0)


def test_a_proposal_says_how_many_prompts_were_tried(detent, ran, folder):
    """Of ten prompts that are all as wrong as tolerated, one is proposed in a third of the cases."""
    for number in range(4):
        ran({**AGREED, "series": {**SERIES, "prompt": f"q{number}"}}, run_id=f"r{number}")
    ran(AGREED, run_id="last")
    judged(folder, 300)
    said = detent("autonomy", "report", "judge")
    assert "5 prompts, models or handlers were tried in 30 days." in said.out


def test_stats_agreement_is_the_same_command(detent, ran):
    """D-49, under the specification's name and with its option."""
    ran(*[AGREED] * 60, DIFFERED)
    assert detent("stats", "agreement", "--workflow", "claim").out == detent("autonomy", "report").out


def test_what_keeps_a_step_where_it_is_is_named(detent, ran):
    ran(AGREED, DIFFERED, DIFFERED)
    said = detent("autonomy", "report")
    assert said.lines[1].endswith("stay: no power measured")
    assert "validation_failure 2" in said.lines[1]
    assert len(said.lines) == 2


def test_differences_are_listed_with_run_entry_and_pointer(detent, ran):
    failed = {"step": "claim/judge", "side": "agent", "outcome": "failed", "reason": "timeout"}
    ran(AGREED, {**DIFFERED, "more_details": 4}, notes={"1": [{**failed, "series": SERIES}]})
    said = detent("autonomy", "report", "--differences")
    at = said.lines.index("claim/judge: latest differences")
    assert said.lines[at + 1].endswith("run r1, entry 5: differed at /amount and 4 more")
    assert said.lines[at + 2].endswith("run r1, entry 2 (shadow): timeout")
    plain = detent("autonomy", "report", "--differences", "--format", "json").json["steps"][0]
    assert [(one["run"], one["entry"], one["pointers"]) for one in plain["differences"]] == [
        ("r1", 5, ["/amount"]), ("r1", 2, []),
    ]  # fmt: skip
    assert plain["last_at"].endswith("+00:00")
    assert "differences" not in detent("autonomy", "report", "--json").json["steps"][0]


def test_an_earlier_series_is_shown_on_request(detent, ran):
    ran(AGREED, run_id="old")
    ran({**AGREED, "series": {**SERIES, "prompt": "p2"}}, run_id="new")
    said = detent("autonomy", "report")
    assert len([line for line in said.lines if line.startswith("claim/judge")]) == 1
    assert said.lines[-1] == (
        "1 earlier series (another model, prompt or handler) not shown; --all shows them."
    )
    said = detent("autonomy", "report", "--all")
    assert [line.split()[1:4] for line in said.lines[1:3]] == [["m1", "p2", "h1"], ["m1", "p1", "h1"]]


def test_more_runs_than_a_page_holds_are_all_read(detent, ran):
    ran(AGREED, run_id=[f"r{number}" for number in range(PAGE + 5)])
    assert detent("autonomy", "report", "--json").json["steps"][0]["n"] == PAGE + 5


def test_a_report_is_narrowed_by_step_flow_and_time(detent, ran):
    ran(AGREED, {**AGREED, "step": "claim/again"})

    def steps(*args):
        return [row["step"] for row in detent("autonomy", "report", "--json", *args).json["steps"]]

    assert steps() == ["claim/again", "claim/judge"]
    assert steps("judge") == steps("claim/judge") == ["claim/judge"]
    assert steps("--flow", "claim", "--since", "1d") == ["claim/again", "claim/judge"]
    ahead = time.strftime("%Y-%m-%d", time.localtime(time.time() + 2 * 86400))
    assert steps("--since", ahead) == []
    assert detent("autonomy", "report", "--since", ahead).out == (
        "No agent has been put to the test in that time.\n"
    )


def test_an_unknown_step_or_flow_is_told_with_the_nearest(detent, ran):
    ran(AGREED)
    said = detent("autonomy", "report", "jugde")
    assert (said.code, said.err) == (
        2, "There is no step 'jugde'. Did you mean 'judge'? Steps: claim/again, claim/judge.\n"
    )  # fmt: skip
    said = detent("autonomy", "report", "--flow", "clam")
    assert (said.code, "Did you mean 'claim'?" in said.err) == (2, True)
    assert detent("autonomy", "report", "--since", "soon").code == 2


def test_what_a_step_advises_is_not_exceeded(detent, ran, folder):
    ran(*[{**AGREED, "step": "claim/again"}] * 8)
    (folder / "detent.yaml").write_text(SETTINGS + "  claim/again: {mode: agent}\n")
    judged(folder, 300, step="claim/again")
    assert detent("autonomy", "report").lines[1].endswith("stay: capped at collaborator")


def test_the_projects_tolerance_is_used(detent, ran, folder):
    """Forty clean drafts say at most 10 %: enough where the operator has set 12 %."""
    ran(*[AGREED] * 9)
    judged(folder, 40)
    assert detent("autonomy", "report").lines[1].endswith("stay: at most 9.4%, 2.0% wanted")
    (folder / "detent.yaml").write_text(SETTINGS + "autonomy: {tolerate: {consultant: 0.12}}\n")
    assert detent("autonomy", "report").lines[1].split()[-1] == "consultant"


def test_a_step_configured_in_its_flow_is_changed_there(detent, ran, folder):
    ran(*[AGREED] * 8)
    judged(folder, 300)
    inline = CLAIMS.replace(
        'warranty.")', 'warranty.", config={"mode": "agent", "autonomy": "collaborator"})'
    )
    assert inline != CLAIMS
    (folder / "claims.py").write_text(inline)
    said = detent("autonomy", "report", "--apply", "--yes")
    assert said.lines[-1] == (
        "claim/judge could be consultant: its own configuration in the flow says how far it is trusted; "
        "change it there"
    )
    assert said.err == "There is nothing to write: the evidence justifies no change of the settings.\n"
    assert (folder / "detent.yaml").read_text() == SETTINGS


def test_settings_that_were_raised_already_are_not_asked_for_again(detent, ran, folder):
    ran(*[AGREED] * 8)
    judged(folder, 300)
    (folder / "detent.yaml").write_text(SETTINGS + "    autonomy: consultant\n")
    assert detent("autonomy", "report").lines[-1].endswith("stay: nothing was judged at consultant yet")


# -- writing it ---------------------------------------------------------------------------------------------


def test_apply_writes_after_a_yes_and_keeps_the_rest_of_the_file(detent, ran, folder, monkeypatch):
    ran(*[AGREED] * 8)
    judged(folder, 300)
    answer(monkeypatch, "y\n")
    said = detent("autonomy", "report", "--apply")
    assert said.code == 0
    assert said.err == (
        "Raise claim/judge to consultant, in detent.yaml? [y/N] "
        "Written to detent.yaml: claim/judge to consultant.\n"
    )
    assert (folder / "detent.yaml").read_text() == SETTINGS + "    autonomy: consultant\n"
    assert read_settings(folder=folder, environ={}).get("steps", "claim/judge", "autonomy") == "consultant"


def test_without_a_yes_nothing_is_written(detent, ran, folder, monkeypatch):
    ran(*[AGREED] * 8)
    judged(folder, 300)
    answer(monkeypatch, "\n")
    said = detent("autonomy", "report", "--apply")
    assert (said.code, said.err.endswith("Nothing was changed.\n")) == (0, True)
    answer(monkeypatch, "")
    said = detent("autonomy", "report", "--apply")
    assert (said.code, "confirm with --yes" in said.err) == (2, True)
    assert (folder / "detent.yaml").read_text() == SETTINGS


def test_a_shadowed_step_is_given_to_the_agent(detent, ran, folder):
    note = {"step": "claim/judge", "side": "agent", "outcome": "agreed", "series": SERIES}
    (folder / "detent.yaml").write_text("plugins: [claims.py]\n")
    ran({}, notes={"1": [note] * 8})
    judged(folder, 80, level="operator")
    said = detent("autonomy", "report", "--apply", "--yes")
    assert "  claim/judge: {mode: agent, autonomy: collaborator}" in said.lines
    assert (folder / "detent.yaml").read_text() == (
        "plugins: [claims.py]\nsteps:\n  claim/judge:\n    mode: agent\n    autonomy: collaborator\n"
    )


def test_a_file_that_cannot_be_edited_safely_is_left_alone(detent, ran, folder):
    ran(*[AGREED] * 8)
    judged(folder, 300)
    text = "plugins: [claims.py]\nsteps:\n  claim/again: &base {mode: agent}\n  claim/judge: *base\n"
    (folder / "detent.yaml").write_text(text)
    said = detent("autonomy", "report", "--apply", "--yes")
    assert said.code == 2
    assert "detent.yaml was left as it is" in said.err
    assert "claim/judge: {autonomy: consultant}" in said.err
    assert (folder / "detent.yaml").read_text() == text


# -- lowering and restoring ---------------------------------------------------------------------------------


class Scripted:
    """Gives every run the same scripted executor."""

    default = "scripted"

    def __init__(self, *replies):
        self.executor = ScriptedStepExecutor({"judge": list(replies)})

    def make(self, provider):
        return self.executor

    async def close(self):
        pass


def test_a_step_that_is_wrong_goes_down_by_itself_and_stays_down(detent, folder):
    """With the real dispatcher: lowered once, told, kept over a restart, back only when a person says so."""
    small = Flow(Machine("claim", start="judge", moves={"judge": ["done"]}, ends=["done"]))

    @small.step("judge", intent="Say whether the claim is covered by the warranty.")
    def judge(ctx):
        return {"covered": True}

    (folder / ".detent").mkdir()
    bad, broken = {"output": {"covered": False}}, {"error": "permanent"}
    source = Scripted(broken, broken, broken, bad, bad, bad, bad, {**bad, "repeat": True})
    rules = EvidenceRules(audit=ByLevel(1.0, 1.0), patience=40)

    def run(*ids):
        async def drive():
            config = StepConfig(mode=StepMode.AGENT, max_retries=0, autonomy=AutonomyLevel.CONSULTANT)
            dispatch = DispatchSettings(steps={"claim/judge": config}, executors=source, evidence=rules)
            store = SQLiteStore(folder / ".detent/detent.db")
            async with Engine(store, [small], dispatch=dispatch) as engine:
                return [(await engine.run("claim", {}, run_id=one)).data["covered"] for one in ids]

        return asyncio.run(drive())

    # Three outages cost nothing; two wrong answers go out and are seen, and then the handler is asked too.
    assert run("r1", "r2", "r3", "r4", "r5", "r6") == [True, True, True, False, False, True]
    (held,) = detent("autonomy", "list", "--json").json
    assert (held["step"], held["level"], held["was"], held["by"], held["why"]) == (
        "claim/judge", "collaborator", "consultant", "engine", "more than 2.0% wrong: 2 of 2 judged visits"
    )  # fmt: skip
    (row,) = detent("autonomy", "report", "--json").json["steps"]
    assert (row["n"], row["differed"], row["unusable"]) == (3, 3, {"outage": 3})
    assert row["fallbacks"] == {"exception": 3, "validation_failure": 1}
    assert (row["now"], row["executions"], row["attempt"]) == ("collaborator", 6, 2)
    assert detent("autonomy", "restore", "judge").code == 0
    assert run("r7") == [False]
    assert detent("autonomy", "list", "--json").json == []


def test_what_could_be_follows_the_level_in_force_now(detent, ran, folder):
    """The last run was a collaborator's; the settings have said consultant since."""
    ran(*[AGREED] * 8)
    judged(folder, 300)
    assert detent("autonomy", "report", "--json").json["steps"][0]["could_be"] == "consultant"
    (folder / "detent.yaml").write_text(SETTINGS + "    autonomy: consultant\n")
    (row,) = detent("autonomy", "report", "--json").json["steps"]
    assert (row["now"], row["could_be"]) == ("consultant", None)
    assert row["why_not"] == "stay: nothing was judged at consultant yet"
    ran({**AGREED, "autonomy_level": "consultant", "check": "contract"}, run_id="r2")
    judged(folder, 600, level="consultant")
    (row,) = detent("autonomy", "report", "--json").json["steps"]
    assert (row["now"], row["could_be"]) == ("consultant", "approver")


def test_differences_of_several_series_are_told_apart(detent, ran):
    ran(AGREED, DIFFERED, {**DIFFERED, "series": {**SERIES, "model_id": "m2"}})
    said = detent("autonomy", "report", "--differences", "--all")
    heads = [line for line in said.lines if line.endswith("latest differences")]
    assert len(heads) == len(set(heads)) == 2


def test_a_step_is_lowered_and_restored_by_hand(detent, ran):
    ran(AGREED)
    assert detent("autonomy", "list").out == "No step is held below its configured level.\n"
    said = detent("autonomy", "demote", "judge", "--reason", "too many odd answers", "--by", "ada")
    assert said.out == (
        "claim/judge is held at operator from now on (configured: collaborator).\n"
        "Back with: detent autonomy restore claim/judge\n"
    )
    (held,) = detent("autonomy", "list", "--json").json
    at, work = held.pop("at"), held.pop("work")
    assert len(work) == 12
    assert held == {
        "step": "claim/judge", "level": "operator", "was": "collaborator", "by": "ada", "series": None,
        "why": "too many odd answers",
    }  # fmt: skip
    assert at.endswith("+00:00")
    row = detent("autonomy", "list").lines[1].split()
    assert row[:4] == ["claim/judge", "operator", "collaborator", "ada"]
    said = detent("autonomy", "restore", "judge")
    assert said.lines[0] == "claim/judge has its configured level again."
    assert said.lines[1].startswith("claim/judge was lowered from collaborator to operator on ")
    assert said.lines[1].endswith(" by ada: too many odd answers.")
    assert detent("autonomy", "list", "--json").json == []
    said = detent("autonomy", "restore", "judge")
    assert (said.code, "nothing to restore" in said.out) == (0, True)


def test_the_engines_own_demotion_is_shown_and_can_be_taken_back(detent, ran, folder):
    ran(*[AGREED] * 8)
    judged(folder, 300)
    made = Demotion(
        AutonomyLevel.OPERATOR, AutonomyLevel.COLLABORATOR, "3 of the last 20 failed hard", time.time(),
        "engine", SERIES,
    )  # fmt: skip
    marked(folder, made.to_plain())
    said = detent("autonomy", "report")
    assert "operator (configured: collaborator)" in said.lines[1]
    assert any(line.endswith("by engine: 3 of the last 20 failed hard.") for line in said.lines)
    assert said.lines[-1] == "claim/judge could be collaborator: detent autonomy restore claim/judge"
    assert detent("autonomy", "report", "--json").json["steps"][0]["demotion"]["series"] == SERIES
    assert detent("autonomy", "restore", "claim/judge", "--json").json["restored"] is True
    assert "(lowered)" not in detent("autonomy", "report").out


def test_a_step_lowered_twice_is_raised_one_level_at_a_time(detent, ran, folder):
    """Restoring would give it back both levels; the evidence justifies one."""
    ran(*[AGREED] * 8)
    judged(folder, 300)
    (folder / "detent.yaml").write_text(SETTINGS + "    autonomy: approver\n")
    marked(folder, Demotion(AutonomyLevel.COLLABORATOR, AutonomyLevel.CONSULTANT, "x", 1.0).to_plain())
    said = detent("autonomy", "report")
    command = "autonomy demote claim/judge --to consultant"
    assert said.lines[-1] == f"claim/judge could be consultant: detent {command}"
    assert detent(*command.split()).code == 0
    assert detent("autonomy", "list", "--json").json[0]["level"] == "consultant"


def test_a_demotion_goes_down_one_level_at_a_time_or_to_the_level_said(detent, ran, folder):
    ran(AGREED)
    (folder / "detent.yaml").write_text(SETTINGS + "    autonomy: approver\n")
    for level in ("consultant", "collaborator", "operator"):
        assert detent("autonomy", "demote", "judge", "--json").json["level"] == level
    said = detent("autonomy", "demote", "judge")
    assert (said.code, "the lowest level" in said.err) == (2, True)
    assert detent("autonomy", "demote", "judge", "--to", "consultant", "--json").json["was"] == "approver"
    said = detent("autonomy", "demote", "judge", "--to", "approver")
    assert (said.code, "configured as approver" in said.err) == (2, True)
    said = detent("autonomy", "demote", "judge", "--to", "consultent")
    assert (said.code, "Did you mean 'consultant'?" in said.err) == (2, True)


def test_a_restored_step_is_not_lowered_by_what_came_before(detent, ran, folder):
    ran(AGREED)
    tallies = {"claim/judge/0a1b": {"n": 2, "hard": 2, "recent": "hh"}, "claim/judge/more/0a1b": {"n": 1}}

    async def marks(put=None):
        store = SQLiteStore(folder / ".detent/detent.db")
        await store.open()
        for key, tally in (put or {}).items():
            assert await store.set_mark(f"evidence/{key}", tally, 0)
        found = await store.marks("evidence/")
        await store.close()
        return {key.removeprefix("evidence/"): tally for key, tally in found.items() if tally}

    assert asyncio.run(marks(tallies)) == tallies
    detent("autonomy", "demote", "judge", "--to", "operator")
    assert detent("autonomy", "restore", "judge").code == 0
    after = asyncio.run(marks())
    assert after["claim/judge/more/0a1b"] == {"n": 1}
    assert Standing.from_plain(after["claim/judge/0a1b"]).attempt == 2


def test_a_demotion_of_a_step_that_is_gone_can_still_be_restored(detent, ran, folder):
    ran(AGREED)
    marked(folder, Demotion(AutonomyLevel.OPERATOR, None, "x", 1.0).to_plain(), "claim/gone")
    assert detent("autonomy", "restore", "gone").code == 0
    assert detent("autonomy", "list", "--json").json == []


def test_a_mark_nobody_can_read_is_told_and_passed_over(detent, ran, folder):
    ran(AGREED)
    marked(folder, {"level": "emperor"})
    said = detent("autonomy", "list")
    assert (said.code, said.out) == (0, "No step is held below its configured level.\n")
    assert "The demotion of claim/judge cannot be read" in said.err


def test_an_unknown_step_is_not_lowered(detent, ran):
    ran(AGREED)
    for command in ("demote", "restore"):
        said = detent("autonomy", command, "claim/jugde")
        assert (said.code, "Did you mean 'claim/judge'?" in said.err) == (2, True)
