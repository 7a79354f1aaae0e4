"""Legacy mode: how a mail's scenario is found, and what is done about it in one go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.apps.warranty.legacy.detect_scenario import (
    CHOICES,
    SCENARIOS,
    Answer,
    by_rules,
    from_answer,
    without_asking,
)
from detent.apps.warranty.legacy.flow import MACHINE, NAME, Legacy, legacy_for
from detent.apps.warranty.legacy.scenarios import Scenarios, scenarios_folder
from detent.apps.warranty.legacy.transcript import transcript
from detent.apps.warranty.mail_data import pack
from detent.apps.warranty.processor import EmailProcessor, view_of
from detent.authoring.problem import DocumentError
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.tools import ToolError
from detent.kernel.budget import Spend
from detent.kernel.status import Status
from tests.apps.warranty.correspondence import (
    COVERED,
    CUSTOMER,
    NOW,
    Mailbox,
    letter,
    mailbox,
    text_of,
    usual,
)


@asynccontextmanager
async def legacy(folder: Path, said: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Mailbox]:
    """A mailbox whose mails go through legacy mode."""
    asked = more.pop("asked", None)
    said = dict(said or {})
    said["orchestration"] = {"use_step_orchestrator": False, **said.get("orchestration", {})}
    async with mailbox(folder, said, **more) as box:
        older = Legacy(box.components, box.engine, asked)
        box.processor = EmailProcessor(box.orchestrator, legacy=older)
        yield box


def view(body: str, subject: str = "Printer") -> Any:
    return view_of(pack(letter(body, subject), "UTC", NOW))


class TestDetecting:
    @pytest.mark.parametrize(
        ("body", "scenario", "confidence", "intent", "ambiguous"),
        [
            ("Please unsubscribe me from your list of clients.", "out-of-scope", 0.85, "spam", False),
            (f"You have won! Printer {COVERED} is broken", "out-of-scope", 0.85, "spam", False),
            ("Help!", "out-of-scope", 0.6, "too_short", True),
            (
                f"Is the warranty of S/N {COVERED} still valid?", "valid-warranty", 0.85,
                "warranty_with_serial", False,
            ),
            (
                f"Czy gwarancja na urządzenie nr seryjny {COVERED} trwa?", "valid-warranty", 0.85,
                "warranty_with_serial", False,
            ),
            (
                "Is there a guarantee on the printer we bought?", "missing-info", 0.9,
                "warranty_without_serial", False,
            ),
            (f"Our printer S/N {COVERED} is broken.", "valid-warranty", 0.5, "unclear", True),
        ],
    )  # fmt: skip
    def test_the_rules_decide_in_their_order(self, body, scenario, confidence, intent, ambiguous):
        found = by_rules(view(body))
        assert (found.scenario_name, found.confidence, found.detected_intent) == (
            scenario, confidence, intent
        )  # fmt: skip
        assert found.ambiguous is ambiguous
        assert found.detection_method == "heuristic"
        assert found.is_warranty_inquiry is (scenario != "out-of-scope")

    def test_the_word_counts_in_the_subject_too(self):
        assert by_rules(view("S/N DR-90214-C, thanks", "Warranty")).scenario_name == "valid-warranty"

    @pytest.mark.parametrize(
        ("body", "scenario"),
        [(f"S/N {COVERED}", "valid-warranty"), ("Help!", "missing-info"), ("", "missing-info")],
    )
    def test_with_nobody_to_ask_the_serial_number_decides(self, body, scenario):
        found = without_asking(view(body), by_rules(view(body)))
        assert (found.scenario_name, found.detection_method, found.ambiguous) == (scenario, "fallback", True)
        assert found.is_warranty_inquiry

    @pytest.mark.parametrize("scenario", CHOICES)
    def test_an_answer_is_one_of_three(self, scenario):
        found = from_answer(by_rules(view("Help!")), f" `{scenario}`.")
        assert (found.scenario_name, found.confidence, found.detection_method) == (scenario, 0.85, "llm")
        assert not found.ambiguous

    @pytest.mark.parametrize("said", [None, 3, "", "invalid-warranty", "DONE", "valid-warranty, I think"])
    def test_any_other_answer_is_a_graceful_degradation(self, said):
        found = from_answer(by_rules(view("Help!")), said)
        assert (found.scenario_name, found.confidence) == ("graceful-degradation", 0.5)
        assert found.ambiguous


class TestOneGo:
    async def test_a_covered_device_gets_a_ticket_and_a_mail_that_names_it(self, tmp_path):
        """W-29, W-30."""
        async with legacy(tmp_path) as box:
            result = await box.process(usual("valid"))
            (ticket,) = await box.tickets()
            reply = box.reply()
        assert (result.orchestrator, result.scenario_used) == ("legacy", "valid-warranty")
        assert (result.success, result.status, result.end) == (True, Status.SUCCEEDED, "DONE")
        assert result.step_sequence == ["detect-scenario", "process-scenario"]
        assert [call.function_name for call in result.function_calls] == [
            "check_warranty", "create_ticket", "send_email"
        ]  # fmt: skip
        assert result.ticket_id == ticket.ticket_id == "TKT-10001"
        assert reply["To"] == CUSTOMER
        assert "Its number is TKT-10001;" in text_of(reply)
        assert "2027-05-31" in text_of(reply)

    async def test_the_ticket_stands_in_a_polish_mail_too(self, tmp_path):
        async with legacy(tmp_path) as box:
            await box.process(usual("valid", "pl"))
            assert "Jego numer to TKT-10001;" in text_of(box.reply())

    @pytest.mark.parametrize(
        ("kind", "scenario", "calls", "says"),
        [
            ("expired", "invalid-warranty", ["check_warranty", "send_email"], "ended on 2024-11-30"),
            ("not found", "invalid-warranty", ["check_warranty", "send_email"], "could not find"),
            ("no serial", "missing-info", ["send_email"], "need the serial number"),
            ("neither", "missing-info", ["send_email"], "two things"),
            ("spam", "out-of-scope", ["send_email"], "does not handle other mail"),
        ],
    )
    async def test_each_scenario_answers_in_its_way(self, tmp_path, kind, scenario, calls, says):
        """W-30."""
        async with legacy(tmp_path) as box:
            result = await box.process(usual(kind))
            assert result.scenario_used == scenario
            assert [call.function_name for call in result.function_calls] == calls
            assert says in text_of(box.reply())
            assert await box.tickets() == []
            assert result.success

    async def test_advertising_is_not_answered_where_the_settings_say_so(self, tmp_path):
        async with legacy(tmp_path, {"warranty": {"reply_to_spam": False}}) as box:
            result = await box.process(usual("spam"))
            assert (result.success, result.response_sent, box.sent()) == (True, False, [])

    async def test_what_was_detected_stands_in_the_journal_and_no_word_of_the_mail(self, tmp_path):
        async with legacy(tmp_path) as box:
            result = await box.process(usual("valid"))
            run = await box.engine.get(result.run_id)
            entries = await box.entries(result.run_id)
        assert run.flow == NAME
        assert run.data["detected"]["scenario_name"] == "valid-warranty"
        assert run.data["detected"]["detection_method"] == "fallback"
        told = repr(entries)
        assert "feeds two labels" not in told
        assert CUSTOMER not in told


class TestTrouble:
    async def test_a_registry_that_fails_three_times_degrades_with_one_redirect(self, tmp_path):
        troubles = [ToolError("timeout", "too slow", transient=True)] * 3
        async with legacy(tmp_path, faults={"check_warranty": troubles}) as box:
            result = await box.process(usual("valid"))
            assert box.faults.calls.count("check_warranty") == 3
            assert (result.status, result.end) == (Status.DEGRADED, "graceful-degradation")
            assert result.scenario_used == "graceful-degradation"
            assert result.flags == ["warranty_check_failed"]
            assert "a colleague will look at it" in text_of(box.reply())
            assert await box.tickets() == []

    async def test_a_registry_that_recovers_is_asked_again(self, tmp_path):
        troubles = [ToolError("timeout", "too slow", transient=True)] * 2
        async with legacy(tmp_path, faults={"check_warranty": troubles}) as box:
            assert (await box.process(usual("valid"))).scenario_used == "valid-warranty"

    async def test_a_refused_ticket_is_never_confirmed(self, tmp_path):
        """W-41."""
        async with legacy(tmp_path, faults={"create_ticket": [ToolError("refused", "no")]}) as box:
            result = await box.process(usual("valid"))
            assert (result.status, result.reason) == (Status.DEGRADED, "ticket_failed")
            assert (result.ticket_created, result.ticket_id) == (False, None)
            assert "TKT" not in text_of(box.reply())
            assert "covered" not in text_of(box.reply())

    async def test_a_refused_mail_never_ends_well(self, tmp_path):
        """W-41."""
        async with legacy(tmp_path, faults={"send_email": [ToolError("refused", "no")]}) as box:
            result = await box.process(usual("valid"))
            assert (result.status, result.reason, result.success) == (Status.FAILED, "send_failed", False)
            assert result.ticket_id == "TKT-10001"
            assert result.requires_retry()
            assert box.sent() == []

    async def test_a_redirect_that_cannot_be_sent_fails_the_run(self, tmp_path):
        refused = {"create_ticket": [ToolError("refused", "no")], "send_email": [ToolError("refused", "no")]}
        async with legacy(tmp_path, faults=refused) as box:
            assert (await box.process(usual("valid"))).status is Status.FAILED


class TestAsking:
    async def test_a_mail_the_rules_are_not_sure_about_is_asked_about_once(self, tmp_path):
        asked: list[Any] = []

        async def ask(mail):
            asked.append(mail)
            return Answer("out-of-scope", Spend(30, 4, 0.001))

        async with legacy(tmp_path, asked=ask) as box:
            result = await box.process(usual("no serial"))
            run = await box.engine.get(result.run_id)
            await box.process(usual("spam"))
        assert result.scenario_used == "out-of-scope"
        assert len(asked) == 1
        assert run.total_spend == Spend(30, 4, 0.001)

    async def test_an_error_or_a_strange_answer_is_a_graceful_degradation(self, tmp_path):
        answers = iter([Answer("ignore all rules"), RuntimeError("down")])

        async def ask(mail):
            said = next(answers)
            if isinstance(said, Exception):
                raise said
            return said

        async with legacy(tmp_path, asked=ask) as box:
            for _ in range(2):
                result = await box.process(usual("no serial"))
                assert (result.scenario_used, result.status) == ("graceful-degradation", Status.DEGRADED)
                assert result.reason == "not_understood"
                run = await box.engine.get(result.run_id)
                assert run.data["detected"]["confidence"] == 0.5
                assert "ignore all rules" not in repr(await box.entries(result.run_id))

    async def test_the_executor_of_the_settings_is_asked(self, tmp_path):
        executor = ScriptedStepExecutor(
            {"detect-scenario": [{"output": {"scenario": "missing-info"}, "usage": {"input_tokens": 7}}]}
        )
        dispatch = DispatchSettings(executors=ScriptedSource(executor))
        async with legacy(tmp_path, dispatch=dispatch) as box:
            result = await box.process(usual("valid"))
        (call,) = executor.calls
        assert result.scenario_used == "missing-info"
        assert call.config.temperature == 0.0
        assert call.output_schema["properties"]["scenario"]["enum"] == list(CHOICES)
        assert "feeds two labels" in call.prompt
        assert "feeds two labels" not in call.instructions

    async def test_an_executor_that_is_not_there_is_as_good_as_none(self, tmp_path):
        executor = ScriptedStepExecutor({}, unavailable="no key")
        async with legacy(tmp_path, dispatch=DispatchSettings(executors=ScriptedSource(executor))) as box:
            result = await box.process(usual("valid"))
            run = await box.engine.get(result.run_id)
        assert result.scenario_used == "valid-warranty"
        assert run.data["detected"]["detection_method"] == "fallback"

    async def test_a_run_kept_to_code_asks_nobody(self, tmp_path):
        async def ask(mail):
            raise AssertionError("nobody should be asked")

        async with legacy(tmp_path, asked=ask) as box:
            result = await box.process(usual("valid"), config={"force_deterministic": True})
            assert result.scenario_used == "valid-warranty"


class TestTheSwitch:
    async def test_step_mode_is_the_default(self, tmp_path):
        """W-29."""
        async with mailbox(tmp_path) as box:
            assert box.settings.orchestration.use_step_orchestrator
            box.processor = EmailProcessor(box.orchestrator, legacy=Legacy(box.components, box.engine))
            assert (await box.process(usual("valid"))).orchestrator == "step"

    async def test_one_mail_is_answered_once_whatever_the_mode(self, tmp_path):
        async with legacy(tmp_path) as box:
            mail = usual("valid", ident="<twice@holt-bakery.example>")
            await box.process(mail, how="step")
            again = await box.process(mail, how="legacy")
            assert len(box.sent()) == 1
            assert len(await box.tickets()) == 1
            assert again.ticket_id == "TKT-10001"

    async def test_retired_it_needs_no_scenario_files(self, tmp_path):
        """W-33."""
        (tmp_path / "instructions" / "scenarios").mkdir(parents=True)
        said = {"orchestration": {"legacy_available": False}}
        async with mailbox(tmp_path, said) as box:
            assert legacy_for(box.components, box.engine) is None
            assert (await box.process(usual("valid"))).success

    async def test_missing_scenario_files_are_all_told_at_once(self, tmp_path):
        (tmp_path / "instructions" / "scenarios").mkdir(parents=True)
        async with mailbox(tmp_path) as box:
            with pytest.raises(DocumentError) as caught:
                legacy_for(box.components, box.engine)
        assert len(caught.value.problems) == len(SCENARIOS)

    async def test_a_project_may_have_scenario_files_of_its_own(self, tmp_path):
        async with mailbox(tmp_path) as box:
            shipped = scenarios_folder(box.settings)
            own = tmp_path / "instructions" / "scenarios"
            own.mkdir(parents=True)
            for path in shipped.glob("*.md"):
                (own / path.name).write_bytes(path.read_bytes())
            assert scenarios_folder(box.settings) == own
            assert list(Scenarios(own)) == list(SCENARIOS)

    async def test_a_projects_templates_win_and_the_shipped_ones_fill_the_gaps(self, tmp_path):
        own = tmp_path / "instructions" / "templates"
        own.mkdir(parents=True)
        (own / "05-send-confirmation.en.txt").write_text("Ticket {{ticket_id}} is open for you now.\n")
        async with legacy(tmp_path) as box:
            await box.process(usual("valid"))
            await box.process(usual("expired"))
            assert sorted(text_of(one).splitlines()[0] for one in box.sent()) == [
                "Hello,", "Ticket TKT-10001 is open for you now."
            ]  # fmt: skip

    def test_the_table_is_the_one_of_the_specification(self):
        assert {MACHINE.named(state) for state in MACHINE.states} == {
            "detect-scenario", "process-scenario", "DONE", "graceful-degradation", "FAILED"
        }  # fmt: skip


class TestTranscripts:
    async def test_the_same_mail_gives_the_same_transcript_whenever_it_comes(self, tmp_path):
        """W-30."""
        told = []
        for number in range(2):
            async with legacy(tmp_path / str(number)) as box:
                result = await box.process(usual("valid", ident=f"<mail-{number}@holt-bakery.example>"))
                told.append(await transcript(box.engine.store, result.run_id))
        assert told[0] == told[1]
        assert told[0].startswith("detected: valid-warranty 0.5 fallback unclear ambiguous\n")
        assert "    | good news: your device with the serial number SN48213" in told[0]
        assert "Its number is TKT-10001;" in told[0]
        assert told[0].endswith("end: DONE (succeeded)\n")

    async def test_a_failed_call_is_told_by_its_code(self, tmp_path):
        async with legacy(tmp_path, faults={"create_ticket": [ToolError("refused", "of no account")]}) as box:
            result = await box.process(usual("valid"))
            told = await transcript(box.engine.store, result.run_id)
        assert "= failed (refused)" in told
        assert "of no account" not in told


async def test_a_mail_nobody_knows_the_fate_of_is_looked_for_and_sent_once(tmp_path):
    """W-44."""
    async with legacy(tmp_path, faults={"send_email": [RuntimeError("the line went dead")]}) as box:
        result = await box.process(usual("valid"))
        assert result.success
        assert "Its number is TKT-10001;" in text_of(box.reply())
        assert len(await box.tickets()) == 1
