"""The shipped cases: all pass without a model, every edge of the step files is held by one, runs repeat."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from detent.apps.warranty.evals import suite
from detent.apps.warranty.evals.cases import shipped_cases
from detent.apps.warranty.evals.mails import mail_of
from detent.apps.warranty.evals.subject import WarrantySubject, contracts_of
from detent.apps.warranty.flow import shipped
from detent.apps.warranty.settings import WarrantySettings, read
from detent.authoring.problem import DocumentError, Place
from detent.evals.case import EvalTestCase, ExpectedFunctionCall, ExpectedStepExecution
from detent.evals.played import Played, PlayFailed, PlayOptions
from detent.evals.player import FlowPlayer
from detent.evals.reading import read_case, read_cases
from detent.evals.report import EvalReport
from detent.evals.runner import EvalRunner
from detent.evals.transitions import validate_step_transitions
from detent.flows.playbook.playbook import read_playbook
from detent.kernel.errors import ConfigurationError
from detent.runtime.evals import player_for, player_of
from detent.runtime.settings import Settings, read_settings
from tests.adapters.models.server import Server, answer, chat
from tests.apps.warranty.golden import GOLDEN, legacy_cases, transcripts
from tests.cli.conftest import detent, folder
from tests.examples import ALL

__all__ = ["detent", "folder"]

pytestmark = pytest.mark.slow  # some share a play of all cases

NAMED = (
    "valid_warranty_001", "valid_warranty_short_003", "valid_warranty_with_details_001",
    "valid_warranty_with_details_002", "invalid_warranty_001", "device_not_found_001", "missing_info_001",
    "missing_serial_001", "missing_description_001", "missing_description_with_serial_002",
    "missing_description_short_serial_003", "missing_description_with_serial_004",
)  # fmt: skip
FURTHER = (
    "out_of_scope_001", "out_of_scope_invoice_002", "out_of_scope_spam_003",
    "prompt_injection_next_step_001", "prompt_injection_agent_002", "prompt_injection_recipient_003",
    "prompt_injection_quote_004", "quoted_thread_two_serials_001", "several_serials_002", "html_only_001",
    "html_hidden_text_002", "attachment_photo_001", "forwarded_message_001", "autoresponder_001",
    "bounce_001", "own_loop_001", "mailing_list_001", "no_reply_sender_001", "empty_body_001",
    "empty_mail_002", "charset_iso8859_2_001", "charset_wrong_002", "duplicate_message_001",
    "followup_same_ticket_001", "warranty_last_day_001", "warranty_day_after_002", "registry_timeout_001",
    "registry_recovers_002", "ticket_failure_001", "send_failure_001", "agent_reask_001",
    "agent_invalid_route_002", "agent_no_handler_003", "agent_alias_004", "loop_breaker_001",
    "missing_context_001", "order_number_001", "serial_lowercase_002", "extension_offer_001",
    "extension_offer_late_002", "safety_priority_001", "language_mixed_001", "long_mail_001",
    "agent_timeout_005",
)  # fmt: skip
PATHS = {
    "valid-warranty": ("01", "02", "03a", "05"),
    "expired-warranty": ("01", "02", "03c"),
    "device-not-found": ("01", "02", "03b"),
    "missing-info": ("01", "03d"),
    "out-of-scope": ("01", "04"),
}
"""What each category of mail comes to."""


def settings(folder: Path, **said: Any) -> WarrantySettings:
    return read(said, folder)


def of(found: WarrantySettings, **options: Any) -> FlowPlayer:
    """A player on the shipped cases."""
    return player_of(WarrantySubject(found, shipped_cases(), **options))


_READ: dict[str, Sequence[EvalTestCase]] = {}


def cases_for(player: FlowPlayer, only: Iterable[str] | None = None) -> list[EvalTestCase]:
    """The shipped cases, read and checked once for all players with the same step files."""
    assert isinstance(player.subject, WarrantySubject)
    files = repr(player.subject.settings.playbook)
    if files not in _READ:
        found = read_cases(shipped_cases(), player, ignore=suite.ignore)
        _READ[files] = found.check().cases
    chosen = None if only is None else set(only)
    return [case for case in _READ[files] if chosen is None or case.scenario_id in chosen]


def one(player: FlowPlayer, name: str) -> EvalTestCase:
    (case,) = cases_for(player, [name])
    return case


async def judged(player: FlowPlayer, cases: Iterable[EvalTestCase], **options: Any) -> EvalReport:
    mode = options.pop("orchestrator", "step")
    runner = EvalRunner(player, suite="warranty", **{"jobs": 4, **options})
    return await runner.run(cases, orchestrator=mode)


_WHOLE: list[EvalReport] = []


async def of_all(player: FlowPlayer) -> EvalReport:
    """The report on all shipped cases, played once for the tests that look at it."""
    if not _WHOLE:
        _WHOLE.append(await judged(player, cases_for(player)))
    return _WHOLE[0]


def told(report: EvalReport) -> list[str]:
    return [str(failure) for result in report.cases for failure in result.failures]


@pytest.fixture
def player(tmp_path: Path) -> FlowPlayer:
    """A player on the shipped step files, with nothing else configured."""
    return of(settings(tmp_path))


# -- the shipped cases --------------------------------------------------------------------------------------


async def test_the_twelve_named_cases_pass_without_a_model(player):
    """W-25."""
    cases = cases_for(player, NAMED)
    assert {case.scenario_id for case in cases} == set(NAMED)
    for case in cases:
        assert case.required, case.scenario_id
        assert case.path_comment.startswith("path: 01 -> "), case.scenario_id
        assert case.expected_steps, case.scenario_id
    report = await judged(player, cases)
    assert told(report) == []
    assert (report.passed, report.counted, report.model) == (12, 12, None)


async def test_all_further_cases_pass_without_a_model(player):
    """W-27."""
    cases = cases_for(player)
    assert {case.scenario_id for case in cases} == {*NAMED, *FURTHER}
    report = await of_all(player)
    assert told(report) == []
    assert report.ok


async def test_every_category_follows_its_path(player):
    """W-26."""
    cases = {case.scenario_id: case for case in cases_for(player)}
    report = await of_all(player)
    seen: set[str] = set()
    for result in report.cases:
        category = cases[result.scenario_id].category
        short = tuple(step.partition("-")[0] for step in result.path)
        if category in PATHS:
            assert short == PATHS[category], result.scenario_id
            seen.add(category)
        elif category == "missing-description":  # the registry's answer decides
            assert short == PATHS["valid-warranty"], result.scenario_id
    assert seen == set(PATHS)


async def test_a_missing_description_with_a_serial_follows_the_registrys_answer(player):
    """W-26."""
    case = one(player, "missing_description_001")
    for answered, last in (
        ({"status": "valid", "expires": "2027-01-01"}, "05-send-confirmation"),
        ({"status": "expired", "expiration_date": "2024-01-01"}, "03c-expired-warranty"),
        ({"error": "Device not found"}, "03b-device-not-found"),
        ({"error": "the registry is down"}, "04-out-of-scope"),
    ):
        given = replace(case, input={**case.input, "mock_responses": {"warranty_api": answered}})
        played = await player.play(given, orchestrator="step", options=PlayOptions())
        assert played.steps[-1].step_name == last
        assert played.steps[0].data_after["description_missing"] is True


def test_every_case_states_the_path_it_expects(player):
    """W-25: the first comment of a file is its path."""
    for case in cases_for(player):
        stated = case.path_comment.removeprefix("path: ")
        expected = [step.step_name.partition("-")[0] for step in case.expected_steps or ()]
        assert stated == (" -> ".join(expected) or "no step"), case.scenario_id


def test_the_template_is_a_case(player):
    text = (shipped_cases() / "TEMPLATE.yaml.example").read_text(encoding="utf-8")
    case, problems = read_case(text, player, stem="TEMPLATE")
    assert problems == []
    assert case is not None


async def test_the_template_passes(player):
    text = (shipped_cases() / "TEMPLATE.yaml.example").read_text(encoding="utf-8")
    case, _ = read_case(text, player, stem="TEMPLATE")
    report = await judged(player, [case])
    assert told(report) == []


# -- every edge is held -------------------------------------------------------------------------------------


def edges() -> list[tuple[str, str]]:
    playbook, _ = read_playbook(shipped())
    return [(step, edge.to) for step, row in playbook.edges.items() for edge in row]


def redirected(folder: Path, step: str, to: str, instead: str) -> Path:
    """A project whose step files are the shipped ones with one edge leading elsewhere."""
    shutil.copytree(shipped(), folder / "instructions")
    file = folder / "instructions" / "steps" / f"{step}.md"
    text = file.read_text(encoding="utf-8")
    changed = text.replace(f"{{to: {to},", f"{{to: {instead},")
    assert changed != text
    file.write_text(changed, encoding="utf-8")
    return folder


def taking(cases: Iterable[EvalTestCase], step: str, to: str) -> list[EvalTestCase]:
    """Cases whose path has an edge, required ones first."""
    found = []
    for case in cases:
        names = [*(one.step_name for one in case.expected_steps or ()), case.expected_output.end]
        if (step, to) in pairwise(names) and not case.input.get("overlays"):
            found.append(case)
    return sorted(found, key=lambda case: not case.required)


@pytest.mark.parametrize(("step", "to"), edges())
async def test_redirecting_any_edge_makes_a_case_fail_that_names_the_step(tmp_path, player, step, to):
    """W-28: every edge, to one state in four at every change and wherever it leads with `make test-all`."""
    cases = taking(cases_for(player), step, to)[:2]
    assert cases, "no case takes this edge"
    targets = [name for name in (*player.contracts(cases[0]).steps, "DONE") if name != to]
    for instead in targets[:: 1 if ALL else 4]:
        project = redirected(tmp_path / instead, step, to, instead)
        changed = of(settings(project), check=False)
        report = await judged(changed, cases)
        assert not report.ok, instead
        failures = [failure for result in report.cases for failure in result.failures]
        named = (f"{step.partition('-')[0]} chose it", f"{step} led to")
        assert any(one.step_name == step or any(text in one.hint for text in named) for one in failures), (
            failures
        )


async def test_the_unchanged_step_files_of_a_project_pass(tmp_path):
    """W-28: it is the edge that makes the difference, not the copy."""
    shutil.copytree(shipped(), tmp_path / "instructions")
    player = of(settings(tmp_path))
    report = await judged(player, cases_for(player, NAMED))
    assert told(report) == []


# -- the validators on the real step files ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "data", "at"),
    [
        (["01-extract-serial", "03d-request-serial"], {"serial_number": "SN1"}, "01-extract-serial"),
        (["01-extract-serial", "02-check-warranty"], {"serial_number": None}, "01-extract-serial"),
        (
            ["02-check-warranty", "03a-valid-warranty"],
            {"serial_number": "SN1", "warranty_data": {"status": "expired"}},
            "02-check-warranty",
        ),
        (["01-extract-serial", "05-send-confirmation"], {"serial_number": "SN1"}, "01-extract-serial"),
    ],
)
def test_a_move_that_the_data_or_the_files_forbid_fails(path, data, at):
    """W-20."""
    playbook, _ = read_playbook(shipped())
    email = {"reply_address": "a@b.example", "subject": "s"}
    whole = {"email": email, "issue_description": "x", "ticket_id": "TKT-1", "warranty_data": {}, **data}
    passed, failures = validate_step_transitions(path, whole, contracts=contracts_of(playbook, 10))
    assert not passed
    assert at in [
        failure.step_name for failure in failures if failure.kind in ("condition", "undeclared_step")
    ]


async def test_moves_that_are_allowed_pass(player):
    """W-20."""
    case = one(player, "valid_warranty_001")
    played = await player.play(case, orchestrator="step", options=PlayOptions())
    passed, failures = validate_step_transitions(
        played.steps, contracts=player.contracts(case), start_data=played.start_data, end=played.end
    )
    assert (passed, failures) == (True, [])


async def played_and_case(player: FlowPlayer, name: str = "valid_warranty_001") -> tuple[Played, Any]:
    case = one(player, name)
    return await player.play(case, orchestrator="step", options=PlayOptions()), case


async def test_a_function_called_in_the_wrong_step_fails(player):
    """W-21."""
    played, case = await played_and_case(player)
    steps = list(played.steps)
    steps[0] = replace(steps[0], calls=steps[1].calls)
    failures = EvalRunner(player).validate_output(case, replace(played, steps=tuple(steps)))
    assert ("undeclared_function", "01-extract-serial") in [(one.kind, one.step_name) for one in failures]


async def test_a_function_missing_in_the_right_step_fails(player):
    """W-21."""
    played, case = await played_and_case(player)
    steps = list(played.steps)
    steps[1] = replace(steps[1], calls=())
    calls = tuple(call for call in played.calls if call.function_name != "check_warranty")
    failures = EvalRunner(player).validate_output(case, replace(played, steps=tuple(steps), calls=calls))
    found = [(one.kind, one.step_name) for one in failures]
    assert ("function_call", "02-check-warranty") in found
    assert ("calls", None) in found


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"output_contains": ("SERIAL: OTHER-1",)}, "output"),
        ({"function_call": "create_ticket"}, "function_call"),
        ({"function_call": "check_warranty", "function_args": {"serial_number": "OTHER-1"}}, "function_args"),
        ({"data": {"warranty_data": {"status": "expired"}}}, "data"),
    ],
)
async def test_every_expectation_of_a_step_is_able_to_fail_a_case(player, wrong, kind):
    """W-22."""
    played, case = await played_and_case(player)
    steps = list(case.expected_output.expected_steps)
    steps[1] = ExpectedStepExecution("02-check-warranty", **wrong)
    changed = replace(case, expected_output=replace(case.expected_output, expected_steps=tuple(steps)))
    (failure,) = EvalRunner(player).validate_output(changed, played)
    assert (failure.kind, failure.step_name) == (kind, "02-check-warranty")


async def test_a_case_without_a_path_is_still_decided_by_its_older_fields(player):
    """W-23."""
    played, case = await played_and_case(player)
    older = replace(case.expected_output, expected_steps=None)
    assert EvalRunner(player).validate_output(replace(case, expected_output=older), played) == []
    for wrong, kind in (
        ({"email_sent": False}, "email_sent"),
        ({"ticket_created": False}, "ticket_created"),
        ({"ticket_fields": {"priority": "urgent"}}, "ticket_fields"),
        ({"response_body_contains": ("refund",)}, "response_body"),
    ):
        changed = replace(case, expected_output=replace(older, artifacts=wrong))
        (failure,) = EvalRunner(player).validate_output(changed, played)
        assert failure.kind == kind


def test_items_of_a_path_may_be_objects_and_names_mixed(player):
    """W-23."""
    case = one(player, "quoted_thread_two_serials_001")
    text = case.source.read_text(encoding="utf-8")
    said = yaml.safe_load(text)["expected_output"]["expected_steps"]
    assert {type(item) for item in said} == {dict, str}
    assert [step.step_name for step in case.expected_steps] == [
        "01-extract-serial", "02-check-warranty", "03a-valid-warranty", "05-send-confirmation",
    ]  # fmt: skip


async def test_time_scenario_and_calls_are_checked_beside_the_steps(player):
    """W-24."""
    played, case = await played_and_case(player)
    for wrong, kind in (
        ({"processing_time_ms": 0.0001}, "time"),
        ({"scenario_instruction_used": "missing-info"}, "scenario"),
        ({"expected_function_calls": (ExpectedFunctionCall("check_warranty"),)}, "calls"),
    ):
        changed = replace(case, expected_output=replace(case.expected_output, **wrong))
        (failure,) = EvalRunner(player).validate_output(changed, played)
        assert failure.kind == kind


# -- legacy mode, overlays ----------------------------------------------------------------------------------


async def test_in_legacy_mode_every_case_that_allows_it_passes_what_is_not_about_steps(player):
    """W-30."""
    cases = legacy_cases(player)
    assert set(NAMED) <= {case.scenario_id for case in cases}
    report = await judged(player, cases, orchestrator="legacy")
    assert told(report) == []
    assert all("expected_steps" in result.not_applicable for result in report.cases)


async def test_legacy_mode_does_what_it_always_did(player):
    """W-30: a difference to a golden transcript is a mistake, not news."""
    now = await transcripts(player, legacy_cases(player))
    frozen = {file.stem: file.read_text(encoding="utf-8") for file in GOLDEN.glob("*.txt")}
    assert set(now) == set(frozen)
    for name, text in now.items():
        assert text == frozen[name], name


async def test_a_retired_legacy_mode_is_not_played(tmp_path):
    said = settings(tmp_path, orchestration={"legacy_available": False})
    player = of(said)
    report = await judged(player, cases_for(player, ["missing_info_001"]), orchestrator="legacy")
    (failure,) = report.cases[0].failures
    assert "Legacy mode is retired" in failure.actual


async def test_all_shipped_cases_still_pass_with_the_overlay(tmp_path):
    """W-60: one case in four at every change, every case with `make test-all`."""
    said = settings(tmp_path, playbook={"overlays": ["extension-offer"]})
    player = of(said)
    assert told(await judged(player, cases_for(player)[:: 1 if ALL else 4])) == []


# -- what the player gives ----------------------------------------------------------------------------------


async def test_what_lies_beside_the_journal_is_shown_in_its_place(player):
    played, _ = await played_and_case(player)
    assert played.steps[0].data_after["email"]["subject"] == "Label printer"
    assert "two labels" in played.steps[0].data_after["issue_description"]
    assert "DESCRIPTION: Hello," in played.steps[0].output_text
    (mail,) = played.artifacts["emails"]
    assert mail["body"].strip() == played.calls[-1].arguments["body"].strip()
    assert mail["in_reply_to"] == "<valid_warranty_001@cases.example>"
    assert "$blob" not in json.dumps([call.arguments for call in played.calls])


async def test_a_play_leaves_nothing_behind(player, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    await played_and_case(player)
    assert sorted(tmp_path.rglob("*")) == before


async def test_the_mail_delivered_twice_leaves_one_ticket_and_one_reply(player):
    played, _ = await played_and_case(player, "duplicate_message_001")
    assert {kind: len(there) for kind, there in played.artifacts.items()} == {"emails": 1, "tickets": 1}


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"form": "a@b.example"}, "line 3: input.email.form: there is no such key. Did you mean 'from'?"),
        ({"received": "yesterday"}, "input.email.received: takes a time"),
        ({"deliver": 0}, "input.email.deliver: takes a number of 1 or more"),
        ({"raw": "mails/none.eml"}, "input.email.raw: mails/none.eml cannot be read"),
        ({"raw": "mails/bounce.eml", "body": "x"}, "input.email.body: has no effect beside `raw`"),
        ({"body": "łódź", "charset": "ascii"}, "input.email.charset: the text cannot be written in ascii"),
        ({"attachments": [{"name": "x", "base64": "!!"}]}, "input.email.attachments.0.base64: is not base64"),
    ],
)
def test_a_mail_that_cannot_be_made_is_told_with_its_place(said, what):
    case = EvalTestCase(
        "x", "d", "c", {"email": said},
        places={"input.email": Place("x.yaml", 2), "input.email.form": Place("x.yaml", 3)},
        source=shipped_cases() / "x.yaml",
    )  # fmt: skip
    with pytest.raises(PlayFailed) as caught:
        mail_of(case, said)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"failures": {"check_waranty": ["timeout"]}}, "Did you mean 'check_warranty'"),
        ({"steps": {"09-nowhere": {"mode": "agent"}}}, "there is no step '09-nowhere'"),
        ({"agent_replies": {"01-extract-serial": [{"say": "x"}]}}, "(01-extract-serial[0].say)"),
        ({"registry": [{"serial": "X1", "manufacturer_end": "soon"}]}, "manufacturer_end is no date"),
    ],
)
async def test_an_input_that_cannot_be_played_fails_its_case_and_says_why(player, more, what):
    case = one(player, "valid_warranty_001")
    report = await judged(player, [replace(case, input={**case.input, **more})])
    (failure,) = report.cases[0].failures
    assert failure.kind == "play"
    assert what in failure.actual


def test_an_unknown_key_of_the_input_is_told_with_line_and_nearest(player, tmp_path):
    file = tmp_path / "cases" / "wrong_001.yaml"
    file.parent.mkdir()
    text = (shipped_cases() / "valid_warranty_001.yaml").read_text(encoding="utf-8")
    file.write_text(
        text.replace("valid_warranty_001", "wrong_001").replace("\n  email:", "\n  emial:"), encoding="utf-8"
    )
    with pytest.raises(DocumentError) as caught:
        read_cases(file.parent, player).check()
    (problem,) = caught.value.problems
    assert (problem.path, problem.suggestions) == ("input.emial", ("email",))


# -- repeats ------------------------------------------------------------------------------------------------


async def test_five_repeats_without_a_model_are_identical(player):
    """W-55: one case in five at every change, every case with `make test-all`."""
    cases = cases_for(player)[:: 1 if ALL else 5]
    report = await judged(player, cases, repeat=5, deterministic=True)
    assert report.unstable == ()
    assert told(report) == []
    assert report.counted == 5 * len(cases)


# -- models, recorded and played back -----------------------------------------------------------------------

KEY = "EVAL_TEST_KEY"
FORMS: dict[str, dict[str, Any]] = {
    "invalid_warranty_001": {"about": "device", "numbers": {"PX2-55910": "serial"}},
    "missing_info_001": {"about": "device"},
    "valid_warranty_001": {"about": "device", "numbers": {"SN48213": "serial"}},
}
"""What the model states about the mail of each case."""


def with_model(folder: Path, url: str, *, said: str = "") -> FlowPlayer:
    """A project that gives step 01 to a model behind a server, and step 02 to the same one."""
    folder.mkdir(exist_ok=True)
    (folder / "detent.yaml").write_text(
        f"model: {{provider: openai, id: served-1, base_url: {url}/v1, api_key_env: {KEY}}}\n"
        "steps:\n"
        "  01-extract-serial: {mode: agent, autonomy: consultant}\n"
        "  02-check-warranty: {mode: agent, autonomy: consultant}\n"
        f"{said}"
    )
    found = read_settings(folder=folder)
    return project_player(found)


def project_player(found: Settings) -> FlowPlayer:
    """The player `detent eval` makes for a project."""
    player = player_for(suite, found, shipped_cases())
    assert isinstance(player, FlowPlayer)
    return player


def replies() -> list[Any]:
    """What the server says to the three cases, in order: each step 01, then 02 with its function call."""
    given = []
    for name, form in sorted(FORMS.items()):
        given.append(answer(chat(json.dumps(form))))
        if "numbers" not in form:
            continue
        (serial,) = form["numbers"]
        given.append(answer(chat(None, [("c1", "check_warranty", {"serial_number": serial})])))
        status = "valid" if name.startswith("valid") else "expired"
        given.append(answer(chat(json.dumps({"status": status}))))
    return given


def summary(report: EvalReport) -> Any:
    """A report without what no two share: times, and when it began."""
    plain = report.to_plain()
    plain.pop("started_at")
    for case in plain["cases"]:
        case.pop("ms")
    return plain


async def test_a_recorded_suite_replays_offline_with_the_same_report(tmp_path, monkeypatch):
    """W-58; W-55: temperature 0 is sent as 0."""
    monkeypatch.setenv(KEY, "a-key-that-nobody-sees")
    async with Server(*replies()) as server:
        player = with_model(tmp_path / "project", server.url)
        cases = cases_for(player, FORMS)
        options = PlayOptions(record=tmp_path / "tapes")
        first = await judged(player, cases, jobs=1, options=options)
        await player.close()
        assert told(first) == []
        assert [asked.body["temperature"] for asked in server.asked] == [0] * 7
        assert {asked.body["model"] for asked in server.asked} == {"served-1"}
    tapes = {file.name: file.read_text(encoding="utf-8") for file in (tmp_path / "tapes").iterdir()}
    assert set(tapes) == {f"{name}.jsonl" for name in FORMS}
    assert not any("a-key-that-nobody-sees" in text for text in tapes.values())
    line = json.loads(tapes["valid_warranty_001.jsonl"].splitlines()[1])
    assert (line["kind"], line["step"]) == ("agent", "01-extract-serial")
    assert line["request"]["config"]["temperature"] == 0

    again = with_model(tmp_path / "project", server.url)  # nobody listens there any more
    replayed = await judged(again, cases_for(again, FORMS), options=PlayOptions(replay=tmp_path / "tapes"))
    await again.close()
    assert summary(replayed) == summary(first)
    assert first.model == "served-1"


async def test_a_changed_prompt_is_a_miss_that_names_step_and_field(tmp_path, monkeypatch):
    """W-58."""
    monkeypatch.setenv(KEY, "a-key-that-nobody-sees")
    project = tmp_path / "project"
    async with Server(*replies()) as server:
        player = with_model(project, server.url)
        await judged(player, cases_for(player, FORMS), jobs=1, options=PlayOptions(record=tmp_path / "tapes"))
        await player.close()
    shutil.copytree(shipped(), project / "instructions")
    file = project / "instructions" / "steps" / "02-check-warranty.md"
    file.write_text(file.read_text(encoding="utf-8").replace("Nothing else counts", "Nothing else matters"))
    again = with_model(project, server.url)
    report = await judged(again, cases_for(again, FORMS), options=PlayOptions(replay=tmp_path / "tapes"))
    await again.close()
    failed = {result.scenario_id: result.failures for result in report.cases if not result.passed}
    assert set(failed) == {"invalid_warranty_001", "valid_warranty_001"}
    for (failure,) in failed.values():
        assert (failure.kind, failure.step_name) == ("play", "02-check-warranty")
        assert "/messages/0/content" in failure.actual
        assert "Nothing else matters" in failure.actual
        assert "record it anew with the same model" in failure.hint
        assert "detent eval warranty --record tapes" in failure.hint


async def test_a_case_that_was_not_recorded_is_a_miss(tmp_path, monkeypatch):
    """W-58."""
    monkeypatch.setenv(KEY, "a-key-that-nobody-sees")
    player = with_model(tmp_path / "project", "http://127.0.0.1:9")
    (tmp_path / "tapes").mkdir()
    report = await judged(
        player, cases_for(player, ["missing_info_001"]), options=PlayOptions(replay=tmp_path / "tapes")
    )
    await player.close()
    (failure,) = report.cases[0].failures
    assert failure.kind == "play"
    assert "There is no recording missing_info_001.jsonl" in failure.actual


async def test_scripted_agents_are_recorded_and_played_back_too(player, tmp_path):
    """W-58."""
    names = [name for name in FURTHER if name.startswith(("agent_", "prompt_injection_"))]
    cases = cases_for(player, names)
    first = await judged(player, cases, options=PlayOptions(record=tmp_path / "tapes"))
    assert told(first) == []
    silent = [
        replace(case, input={**case.input, "agent_replies": dict.fromkeys(case.input["agent_replies"], "?")})
        if "agent_replies" in case.input
        else case
        for case in cases
    ]
    replayed = await judged(player, silent, options=PlayOptions(replay=tmp_path / "tapes"))
    assert summary(replayed) == summary(first)


def test_a_provider_without_a_pinned_model_is_a_configuration_error(tmp_path, monkeypatch):
    """W-55."""
    monkeypatch.setenv(KEY, "a-key-that-nobody-sees")
    (tmp_path / "detent.yaml").write_text(
        f"model: {{provider: openai, base_url: http://127.0.0.1:9/v1, api_key_env: {KEY}}}\n"
        "steps: {01-extract-serial: {mode: agent}}\n"
    )
    found = read_settings(folder=tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        project_player(found)
    assert "model" in str(caught.value)


# -- arms ---------------------------------------------------------------------------------------------------


async def test_an_arm_is_played_with_its_strategy_and_steps(tmp_path):
    experiment = {
        "name": "first-step",
        "arms": {
            "plain": {"share": 50},
            "sure": {"share": 50, "strategy": "heuristic"},
            "agent": {"share": 0, "steps": {"01-extract-serial": {"mode": "agent"}}},
        },
    }
    said = settings(tmp_path, orchestration={"router": {"experiment": experiment}})
    player = of(said)
    assert player.arms == ("plain", "sure", "agent")
    case = one(player, "valid_warranty_001")
    paths = {}
    for arm in player.arms:
        played = await player.play(case, orchestrator="step", options=PlayOptions(arm=arm))
        paths[arm] = (len(played.steps), played.steps[0].fallback)
    assert paths == {"plain": (4, None), "sure": (3, None), "agent": (4, "no_executor")}
    # A case with step files of its own need not have the step that an arm is about.
    loop = one(player, "loop_breaker_001")
    assert len((await player.play(loop, orchestrator="step", options=PlayOptions(arm="agent"))).steps) == 10


# -- the command --------------------------------------------------------------------------------------------


def test_the_command_plays_the_shipped_cases(detent):
    """W-57, W-68: no model, key or network."""
    result = detent("eval", "warranty")
    assert result.code == 0, result.out
    count = len(NAMED) + len(FURTHER)
    assert result.lines[0].startswith(f"eval warranty   {count} cases   step mode   no model")
    assert result.lines[-1] == f"  {count} / {count} passed (100.0 %)   threshold 99.0 %"


def test_a_required_case_that_fails_ends_with_4_whatever_the_threshold(detent, folder):
    """W-57."""
    cases = folder / "evals" / "scenarios"
    cases.mkdir(parents=True)
    for name in NAMED:
        text = (shipped_cases() / f"{name}.yaml").read_text(encoding="utf-8")
        if name == "missing_info_001":
            text = text.replace("- {step_name: 03d-request-serial,", "- {step_name: 04-out-of-scope,")
        (cases / f"{name}.yaml").write_text(text, encoding="utf-8")
    result = detent("eval", "warranty", "--threshold", "50")
    assert result.code == 4
    assert "required case failed: missing_info_001" in result.lines[-1]
    assert any("step 2: expected 04-out-of-scope, got 03d-request-serial" in line for line in result.lines), (
        result.out
    )
    assert detent("eval", "warranty", "-s", "valid_warranty_001").code == 0


def test_nothing_found_ends_with_4(detent, folder):
    """W-57."""
    assert detent("eval", "warranty", "-s", "no such case").code == 4
    (folder / "evals" / "scenarios").mkdir(parents=True)
    assert detent("eval", "warranty").code == 4
