"""Playbooks made into flows: finding them, the functions they get, one step alone, and their cases played."""

from __future__ import annotations

import shutil
from email import message_from_bytes
from pathlib import Path

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.authoring.problem import DocumentError
from detent.engine.engine import Engine
from detent.engine.tools import ToolError, query
from detent.evals.case import EvalTestCase, ExpectedOutput
from detent.evals.played import PlayFailed, PlayOptions
from detent.evals.reading import read_cases
from detent.evals.runner import EvalRunner
from detent.flows.playbook.evals import PlaybookSubject, claim
from detent.flows.playbook.library import (
    General,
    find_playbook,
    is_playbook,
    mail_out,
    playbook_of,
    problems_of,
)
from detent.flows.playbook.step_file_cache import clear_instruction_cache
from detent.flows.playbook.trial import step_alone
from detent.kernel.entries import Moved
from detent.kernel.errors import ConfigurationError, DefinitionChanged
from detent.kernel.status import Status
from detent.runtime.dispatch_settings import dispatch_settings
from detent.runtime.evals import player_of
from detent.runtime.settings import SettingsError, read_settings
from tests.flows.playbook.bench import step_file, write

EXAMPLE = Path(__file__).parents[3] / "examples" / "playbook"


@pytest.fixture(autouse=True)
def nothing_read_yet():
    clear_instruction_cache()
    yield
    clear_instruction_cache()


@pytest.fixture
def project(tmp_path):
    """A project with a stranger's playbook in it."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder / "overdue")
    return folder


def settings_of(folder, said=""):
    if said:
        (folder / "detent.yaml").write_text(said)
    return read_settings(folder=folder, environ={})


async def run(flow, data, **options):
    async with Engine(options.pop("store", None) or MemoryStore(), [flow], **options) as engine:
        done = await engine.run(flow.name, data)
        entries = await engine.store.entries(done.id, 0, 10_000)
    moves = [entry.body for entry in entries if isinstance(entry.body, Moved)]
    return done, [*(move.frm for move in moves), moves[-1].to]


def outbox(project):
    files = sorted((project / "mail" / "outbox").glob("*.eml"))
    return [message_from_bytes(file.read_bytes()) for file in files]


# -- finding ------------------------------------------------------------------------------------------------


def test_a_playbook_is_found_by_its_path_and_by_its_name(project):
    (project / "playbooks").mkdir()
    shutil.copytree(EXAMPLE, project / "playbooks" / "letters")
    assert find_playbook("overdue", project) == project / "overdue"
    assert find_playbook("letters", project) == project / "playbooks" / "letters"
    assert find_playbook(str(project / "overdue"), project.parent) == project / "overdue"
    (project / "letters").mkdir()  # a folder that is no playbook does not hide one
    assert find_playbook("letters", project) == project / "playbooks" / "letters"


def test_what_is_no_playbook_is_said_in_one_sentence(project):
    (project / "playbooks" / "letters").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"Did you mean 'letters'\? Under playbooks/: letters\."):
        find_playbook("leters", project)
    with pytest.raises(ConfigurationError, match="is a file; a playbook is a folder"):
        find_playbook("overdue/loans.csv", project)
    assert is_playbook(project / "overdue")
    assert not is_playbook(project)


# -- functions ----------------------------------------------------------------------------------------------


async def test_a_strangers_playbook_runs_with_the_general_functions(project):
    """W-64: no Python anywhere; the letter lies in the outbox of the project."""
    flow = playbook_of(settings_of(project), project / "overdue")
    done, path = await run(flow, {"loan_number": "L-101"})
    assert done.status is Status.SUCCEEDED
    assert path == ["01-find-loan", "02-remind-reader", "DONE"]
    (mail,) = outbox(project)
    assert (mail["To"], mail["Subject"]) == ("otto@reader.example", "Your loan L-101")
    assert done.data["message_id"] == mail["Message-ID"]
    assert "second letter" in mail.get_payload(decode=True).decode()


async def test_a_file_is_written_into_the_projects_folder(project):
    flow = playbook_of(settings_of(project), project / "overdue")
    done, path = await run(flow, {"loan_number": "L-103"})
    assert path[1] == "03-note-for-desk"
    assert done.data["note"] == "desk/L-103.txt"
    assert "L-103" in (project / "desk" / "L-103.txt").read_text()
    assert not (project / "mail" / "outbox").exists() or outbox(project) == []


async def test_a_hostile_value_writes_nowhere_else(project):
    flow = playbook_of(settings_of(project), project / "overdue")
    done, _ = await run(flow, {"loan_number": "../../../escape"})
    assert (done.status, done.reason) == (Status.FAILED, "effect_failed")
    assert not list(project.parent.rglob("escape*"))
    done, _ = await run(flow, {"loan_number": "../overdue/steps/04-mine"})
    assert done.status is Status.FAILED
    assert len(list((project / "overdue" / "steps").iterdir())) == 3


async def test_the_playbooks_own_functions_go_before_the_general_ones(project):
    folder = write(
        project / "own",
        {
            "playbook.yaml": "tools: [own_shelf]\nhandlers: [own_shelf]\n",
            "01-look": step_file(
                "01-look", "call: {lookup: {table: x.csv, value: 1}, into: row}\noutputs: [row]\n"
                "available_functions: [lookup]", next="[02-decide]",
            ),
            "02-decide": step_file("02-decide", "needs: [row]", handler="decide"),
        },
    )  # fmt: skip
    (folder / "own_shelf.py").write_text(
        "from detent import Outcome, query\n\n"
        "@query('lookup')\ndef lookup(table, value):\n    return {'from': 'own'}\n\n"
        "async def decide(ctx):\n    return Outcome('DONE', set={'seen': dict(ctx.data.row)})\n"
    )
    assert problems_of(settings_of(project), folder) == []
    done, _ = await run(playbook_of(settings_of(project), folder), {})
    assert done.data["seen"] == {"from": "own"}


async def test_a_function_given_by_the_caller_goes_before_the_general_one(project):
    @query("lookup")
    def lookup(table, value, key=None):
        return {"state": "returned"}

    flow = playbook_of(settings_of(project), project / "overdue", tools=[lookup])
    _, path = await run(flow, {"loan_number": "any"})
    assert path == ["01-find-loan", "DONE"]


def test_everything_wrong_is_told_with_its_place_from_the_working_folder(project):
    """W-64: checked."""
    settings = settings_of(project)
    assert problems_of(settings, project / "overdue") == []
    step = project / "overdue" / "steps" / "01-find-loan.md"
    step.write_text(step.read_text().replace("[lookup]", "[look_up]").replace("version: 1.0.0", "version: 1"))
    clear_instruction_cache()
    found = [str(problem) for problem in problems_of(settings, project / "overdue")]
    assert any(one.startswith("overdue/steps/01-find-loan.md:4:1: P08") for one in found)
    assert any("P14 there is no function 'look_up'. Did you mean 'lookup'?" in one for one in found)
    with pytest.raises(DocumentError, match=r"overdue/steps/01-find-loan\.md:4:1: P08"):
        playbook_of(settings, project / "overdue")


def test_a_step_that_settings_give_to_an_agent_needs_no_handler(project):
    folder = write(project / "bare", {"01-decide": step_file("01-decide")})
    with pytest.raises(DocumentError, match="P16"):
        playbook_of(settings_of(project), folder)
    settings = settings_of(project, "steps: {bare/01-decide: {mode: agent}}\n")
    assert playbook_of(settings, folder).name == "bare"


async def test_a_run_left_lying_goes_on_under_the_same_files(project, tmp_path):
    store = tmp_path / "runs.db"
    flow = playbook_of(settings_of(project), project / "overdue")
    async with Engine(SQLiteStore(store), [flow]) as engine:
        run_id = await engine.start(flow, {"loan_number": "L-100"}, drive=False)
    again = playbook_of(settings_of(project), project / "overdue")
    async with Engine(SQLiteStore(store), [again]) as engine:
        await engine.resume(run_id)
        done = await engine.finish(run_id)
    assert done.status is Status.SUCCEEDED
    assert len(outbox(project)) == 1


async def test_a_run_is_not_gone_on_with_under_changed_files(project, tmp_path):
    store = tmp_path / "runs.db"
    flow = playbook_of(settings_of(project), project / "overdue")
    async with Engine(SQLiteStore(store), [flow]) as engine:
        run_id = await engine.start(flow, {"loan_number": "L-100"}, drive=False)
    step = project / "overdue" / "steps" / "02-remind-reader.md"
    step.write_text(step.read_text() + "\nBe stern.\n")
    clear_instruction_cache()
    changed = playbook_of(settings_of(project), project / "overdue")
    async with Engine(SQLiteStore(store), [changed]) as engine:
        with pytest.raises(DefinitionChanged, match="02-remind-reader"):
            await engine.resume(run_id)


# -- mail ---------------------------------------------------------------------------------------------------


def test_mail_goes_where_the_settings_say(project):
    out = mail_out(settings_of(project, "mail: {outbox: post, from: 'Desk <desk@library.example>'}\n"))
    assert out.sender == "Desk <desk@library.example>"
    assert out.sink.describe() == f"folder {project / 'post'}"
    smtp = "{host: mail.library.example, port: 587, tls: starttls}"
    said = f"mail: {{sink: smtp, from: desk@library.example, smtp: {smtp}}}"
    environ = {"MAIL_SMTP_USER": "u", "MAIL_SMTP_PASSWORD": "p"}
    with pytest.raises(ConfigurationError, match="MAIL_SMTP_USER would be sent to mail.library.example"):
        mail_out(settings_of(project, said), environ=environ)
    sink = mail_out(settings_of(project, said), environ={**environ, "DETENT_TRUST": "all"}).sink
    assert sink.describe() == "SMTP server mail.library.example:587"
    assert (sink.server.user, sink.server.tls) == ("u", "starttls")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("{sink: fax}", "detent.yaml:1:8: 'mail.sink' should be 'outbox' or 'smtp'."),
        ("{form: x}", "unknown key 'mail.form'. Did you mean 'from'?"),
        ("{from: nobody}", "'mail.from': mails need a sender"),
        ("{sink: smtp, smtp: {host: h.example}}", "'mail.from' must say who sends by SMTP."),
        ("{sink: smtp, from: a@b.example}", "'mail': sink smtp needs smtp.host"),
        ("{smtp: {hots: x}}", "unknown key 'mail.smtp.hots'. Did you mean 'host'?"),
        (
            "{sink: smtp, from: a@b.example, smtp: {host: h, port: 0}}",
            "'mail.smtp.port' should be greater",
        ),
        (
            "{sink: smtp, from: a@b.example, smtp: {host: h, tls: maybe}}",
            "'mail.smtp.tls' should be 'implicit'",
        ),
        ("{outbox: 7}", "'mail.outbox' should be text."),
        ("{smtp: x}", "'mail.smtp' should be a"),
    ],
)
def test_what_is_wrong_with_the_mail_settings_is_told_with_its_place(project, said, told):
    with pytest.raises(SettingsError) as caught:
        mail_out(settings_of(project, f"mail: {said}\n"))
    assert told in str(caught.value)
    assert "detent.yaml:1:" in str(caught.value) or "the settings" in str(caught.value)


async def test_mail_settings_matter_only_to_playbooks_that_send(project):
    folder = write(project / "quiet", {"01-choose": step_file("01-choose", "call: []")})
    settings = settings_of(project, "mail: {sink: fax}\n")
    done, _ = await run(playbook_of(settings, folder), {})
    assert done.status is Status.SUCCEEDED
    with pytest.raises(SettingsError):
        playbook_of(settings, project / "overdue")


# -- one step alone -----------------------------------------------------------------------------------------

LOAN = {"title": "Tides", "due": "2026-02-01", "reminders": "1"}
KNOWN = {"loan_number": "L-1", "loan": LOAN, "member": {"name": "Ines", "email": "ines@reader.example"}}


async def test_a_step_alone_shows_what_it_would_do_and_does_nothing(project):
    """W-65: next, data, proposed effects, the lines of the protocol; no mail, no file, no run."""
    flow = playbook_of(settings_of(project), project / "overdue")
    trial = await step_alone(flow, "02-remind-reader", KNOWN)
    assert (trial.next_step, trial.mode, trial.missing, trial.error) == ("DONE", "deterministic", (), None)
    (effect,) = trial.effects
    assert effect.function_name == "send_email"
    assert effect.arguments["to"] == "ines@reader.example"
    assert "Tides" in effect.arguments["body"]
    assert trial.changes == {"message_id": "(send_email.message_id)"}
    assert trial.data["loan"] == LOAN
    assert trial.text.endswith("NEXT_STEP: DONE")
    assert "BODY: Dear Ines" in trial.text
    assert not (project / "mail").exists()


async def test_a_step_alone_asks_its_queries_and_goes_no_further(project):
    """W-65."""
    flow = playbook_of(settings_of(project), project / "overdue")
    trial = await step_alone(flow, "find-loan", {"loan_number": "L-100"})
    assert (trial.next_step, trial.reason) == ("02-remind-reader", "overdue")
    assert [one.function_name for one in trial.queries] == ["lookup", "lookup"]
    assert trial.effects == ()
    assert trial.data["member"]["name"] == "Ines Marlow"
    assert trial.to_plain()["next"] == "02-remind-reader"
    assert not (project / "mail").exists()


async def test_a_step_alone_takes_any_data_and_says_what_is_missing(project):
    """W-65: the manifest's input is for whole runs."""
    flow = playbook_of(settings_of(project), project / "overdue")
    trial = await step_alone(flow, "03", {})
    assert trial.missing == ("loan_number",)
    assert trial.next_step == "FAILED"
    assert "{{loan_number}}" in str(trial.error)
    with pytest.raises(ConfigurationError, match="has no step '09'"):
        await step_alone(flow, "09", {})


async def test_a_step_alone_that_waits_says_for_what(project):
    folder = write(
        project / "asking",
        {
            "playbook.yaml": "handlers: [asking_handlers]\n",
            "01-ask": step_file("01-ask", handler="ask"),
            "asking_handlers.py": "from detent import Hold\n\n\n"
            "async def ask(ctx):\n    return Hold(question='May I?')\n",
        },
    )
    trial = await step_alone(playbook_of(settings_of(project), folder), "01", {})
    assert (trial.next_step, trial.question, trial.error) == (None, "May I?", None)


async def test_a_step_alone_may_be_an_agents(project):
    """W-65, W-52: as the settings say, nothing performed either."""
    (project / "script.yaml").write_text(
        "02-remind-reader:\n  - text: |\n      NEXT_STEP: DONE\n      BODY:\n"
        "      Dear Ines, Tides was due. Please.\n"
    )
    settings = settings_of(
        project,
        "steps: {02-remind-reader: {mode: agent, autonomy: approver, prose: free, allowed_tools: []}}\n"
        "models: {scripted: {file: script.yaml}}\n",
    )
    flow = playbook_of(settings, project / "overdue")
    trial = await step_alone(flow, "02", KNOWN, dispatch=dispatch_settings(settings, [flow]))
    assert (trial.mode, trial.next_step) == ("agent", "DONE")
    assert trial.effects[0].arguments["body"] == "Dear Ines, Tides was due. Please."
    assert not (project / "mail").exists()


# -- cases --------------------------------------------------------------------------------------------------


def case(**said):
    return EvalTestCase("a_001", "d", "c", said, ExpectedOutput(status="succeeded"))


async def played(player, **said):
    return await player.play(case(**said), orchestrator="step", options=PlayOptions())


@pytest.fixture
def player(project):
    return player_of(PlaybookSubject(settings_of(project), project / "overdue"))


async def test_the_cases_beside_a_playbook_pass(project, player):
    """W-64: evaluated."""
    cases = read_cases(project / "overdue" / "evals", player).check()
    report = await EvalRunner(player, suite="overdue", repeat=2, deterministic=True).run(cases.cases)
    assert report.ok
    assert report.counted == 12


async def test_nothing_a_case_does_is_left_behind(project, player):
    """Effects are captured: neither mail nor notes turn up in the project."""
    before = sorted(str(path) for path in project.rglob("*"))
    first = await played(player, data={"loan_number": "L-100"})
    second = await played(player, data={"loan_number": "L-103"})
    assert [mail["to"] for mail in first.artifacts["emails"]] == ["ines@reader.example"]
    assert [one.function_name for one in second.calls][-1] == "write_file"
    assert sorted(str(path) for path in project.rglob("*")) == before


async def test_an_effect_of_ones_own_is_noted_and_not_performed(project):
    folder = write(
        project / "ringing",
        {
            "playbook.yaml": "tools: [ringing_tools]\n",
            "01-ring": step_file(
                "01-ring", "available_functions: [ring]\neffects: {ring: {number: 5, into: {answer: said}}}\n"
                "outputs: [answer]",
            ),
            "ringing_tools.py": "from pathlib import Path\nfrom detent import tool\n\n\n"
            "@tool('ring')\ndef ring(number):\n    Path(__file__).with_name('rang').touch()\n",
        },
    )  # fmt: skip
    player = player_of(PlaybookSubject(settings_of(project), folder))
    found = await played(player, data={})
    assert (found.status, found.calls[0].arguments) == ("succeeded", {"number": 5})
    mocked = await played(player, data={}, mock_function_responses={"ring": {"said": "hello"}})
    assert mocked.context["answer"] == "hello"
    assert not (folder / "rang").exists()


async def test_a_case_may_answer_for_functions_and_plan_their_failures(player):
    rows = [{"state": "overdue", "card": "x", "title": "T", "due": "d", "reminders": "1"}, None]
    mocked = await played(player, data={"loan_number": "?"}, mock_function_responses={"lookup": rows})
    assert [step.step_name for step in mocked.steps] == ["01-find-loan", "03-note-for-desk"]
    flaky = await played(player, data={"loan_number": "L-100"}, failures={"send_email": ["timeout", "ok"]})
    assert (flaky.status, len(flaky.artifacts["emails"])) == ("succeeded", 1)
    dead = await played(player, data={"loan_number": "L-100"}, failures={"send_email": ["http_400"]})
    assert (dead.status, dead.end, dead.reason) == ("failed", "FAILED", "effect_failed")
    with pytest.raises(PlayFailed, match="there is no function 'lokup'"):
        await played(player, data={"loan_number": "L-100"}, failures={"lokup": ["timeout"]})
    with pytest.raises(PlayFailed, match="does not fit playbook 'overdue'"):
        await played(player, data={})


async def test_a_case_may_begin_in_the_middle(player):
    found = await played(player, data=KNOWN, start_step="02-remind-reader")
    assert [step.step_name for step in found.steps] == ["02-remind-reader"]
    assert found.start_data == KNOWN


async def test_a_case_may_give_a_step_to_a_scripted_agent(player):
    """W-53: wherever the agent wants to go, the conditions of the edges hold."""
    said = "NEXT_STEP: 02-remind-reader\nREASON: write anyway"
    found = await played(
        player, data={"loan_number": "L-102"}, agent_replies={"01-find-loan": [said, said]},
        steps={"01-find-loan": {"mode": "agent", "autonomy": "approver", "allowed_tools": []}},
    )  # fmt: skip
    first = found.steps[0]
    assert (first.fallback, first.next_step) == ("schema_violation", "DONE")
    assert found.artifacts["emails"] == ()


async def test_an_overlay_of_a_case_counts(project, player):
    step = (project / "overdue" / "steps" / "01-find-loan.md").read_text()
    changed = step.replace(
        "{to: DONE, when: {loan.state: ret", "{to: 03-note-for-desk, when: {loan.state: ret"
    )
    write(project / "overdue" / "tidy", {"01-find-loan": changed})
    found = await played(player, data={"loan_number": "L-102"}, overlays=["tidy"])
    assert [one.step_name for one in found.steps] == ["01-find-loan", "03-note-for-desk"]
    edges = player.contracts(case(overlays=["tidy"])).steps["01-find-loan"].edges
    assert [edge.to for edge in edges][1] == "03-note-for-desk"
    with pytest.raises(ConfigurationError, match="no overlay folder 'nope'"):
        player.contracts(case(overlays=["nope"]))


async def test_a_recorded_case_is_played_back_without_asking_anybody(project, player, tmp_path):
    """W-58: the same steps from the recording, although the table is gone."""
    told = case(data={"loan_number": "L-100"})
    first = await player.play(told, orchestrator="step", options=PlayOptions(record=tmp_path / "tapes"))
    (project / "overdue" / "loans.csv").unlink()
    again = await player.play(told, orchestrator="step", options=PlayOptions(replay=tmp_path / "tapes"))
    assert [(step.step_name, step.next_step) for step in again.steps] == [
        (step.step_name, step.next_step) for step in first.steps
    ]
    other = EvalTestCase("b_002", "d", "c", told.input)
    with pytest.raises(PlayFailed, match="There is no recording"):
        await player.play(other, orchestrator="step", options=PlayOptions(replay=tmp_path / "tapes"))


def test_a_folder_is_claimed_when_it_is_a_playbook_that_nobody_else_judges(project):
    suite = claim(project / "overdue")
    assert suite is not None
    assert (suite.name, suite.folder) == ("overdue", (project / "overdue" / "evals").resolve())
    assert claim(project) is None
    assert claim(project / "nowhere") is None
    write(project / "ours", {"playbook.yaml": "name: warranty\n", "01-a": step_file("01-a", "call: []")})
    assert claim(project / "ours") is None


@pytest.mark.parametrize(
    "path",
    [
        "detent.yaml",
        "DETENT.yaml",
        "tools.py",
        "playbooks/desk/steps/02.md",
        "instructions/a.md",
        "evals/a.yaml",
        "sentences/01-a.en.yaml",
    ],
)
def test_a_function_of_a_playbook_does_not_write_what_configures_detent(tmp_path, path):
    (tmp_path / "tools.py").write_text("")
    (tmp_path / "steps").mkdir()
    (tmp_path / "playbook.yaml").write_text("name: desk\n")
    files = General.of(read_settings(folder=tmp_path, environ={}), tmp_path, sends=False).files
    with pytest.raises(ToolError, match="not for functions to write"):
        files.write(path, "x", replace=True)
    assert files.write("letters/a.txt", "x")["status"] == "written"
