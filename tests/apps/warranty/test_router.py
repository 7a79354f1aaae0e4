"""Where a mail begins."""

from __future__ import annotations

import asyncio

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.apps.warranty.domain.words import WORDS
from detent.apps.warranty.handlers import Handlers
from detent.apps.warranty.mail_data import MailView
from detent.apps.warranty.results import StepRoutingResult
from detent.apps.warranty.router import AskModel, StepRouter
from detent.apps.warranty.settings import read
from detent.dispatch.dispatcher import DispatchSettings
from tests.apps.warranty.correspondence import (
    CHECK,
    COVERED,
    FIRST,
    PATHS,
    TEXTS,
    letter,
    mailbox,
    usual,
)


def router(tmp_path, strategy: str = "default", ask=None, **more) -> StepRouter:
    settings = read({"orchestration": {"router": {"strategy": strategy, **more}}}, tmp_path)
    return StepRouter(Handlers(settings, WORDS), settings.orchestration.router, ask)


ODD = [letter(""), letter("?"), letter(f"S/N {COVERED}"), letter("casino"), *(usual(*one) for one in TEXTS)]


@pytest.mark.parametrize("mail", ODD)
async def test_by_default_every_mail_begins_at_the_first_step(tmp_path, mail):
    """W-13."""
    routed = await router(tmp_path).route_to_initial_step(mail)
    assert tuple(routed) == (FIRST, 1.0, "default")
    assert routed == StepRoutingResult(FIRST, 1.0, "default")
    assert set(routed.signals) == {"spam", "short", "warranty_words", "serial_count"}


@pytest.mark.parametrize("language", ["en", "pl"])
async def test_one_certain_serial_leaps_to_the_check(tmp_path, language):
    """W-14."""
    for mail in (usual("valid", language), MailView.of(usual("valid", language))):
        routed = await router(tmp_path, "heuristic").route_to_initial_step(mail)
        assert tuple(routed) == (CHECK, 0.95, "heuristic")
        assert routed.data["serial_number"] == COVERED
        assert routed.signals["serial_count"] == 1


@pytest.mark.parametrize(
    ("text", "signals"),
    [
        (f"S/N {COVERED}", {"short": True}),
        (f"S/N {COVERED} and S/N SN50001 are both broken since Monday", {"serial_count": 2}),
        ("Our printer is broken, what does the warranty say?", {"serial_count": 0, "warranty_words": 1}),
        (f"You have won! Claim your prize for S/N {COVERED} today, dear friend", {"spam": True}),
        (f"What about the invoice for the printer S/N {COVERED}?", {"spam": False}),
        ("", {"short": True, "serial_count": 0}),
    ],
)
async def test_everything_else_begins_at_the_first_step(tmp_path, text, signals):
    """W-14: ambiguous, short, out of scope; the signals say why."""
    routed = await router(tmp_path, "heuristic").route_to_initial_step(letter(text, "Hello"))
    assert tuple(routed) == (FIRST, 1.0, "default")
    assert signals.items() <= routed.signals.items()


async def test_how_sure_it_has_to_be_is_a_setting(tmp_path):
    near = letter("My serial, printed on the plate of the printer, which is broken:\nAB12-99X", "x")
    sure = await router(tmp_path, "heuristic", min_confidence=0.85).route_to_initial_step(near)
    found, _ = Handlers(read({}, tmp_path), WORDS).facts(MailView.of(near))
    strict = await router(tmp_path, "heuristic").route_to_initial_step(near)
    assert (sure.step_name == CHECK) == (found.confidence >= 0.85)
    assert (strict.step_name == CHECK) == (found.confidence >= 0.95)


async def test_a_mail_that_leaps_ends_as_one_that_does_not(tmp_path):
    """4.3: the extraction is done first, its data journaled, and the history begins at the check."""
    mails = {one: usual(*one, ident=f"<{one[0].replace(' ', '')}{one[1]}@x.example>") for one in TEXTS}
    ends = {}
    for strategy in ("default", "heuristic"):
        async with mailbox(tmp_path / strategy, {"orchestration": {"router": {"strategy": strategy}}}) as box:
            results = {one: await box.process(mail) for one, mail in mails.items()}
            ends[strategy] = [
                {one: (r.end, r.serial_number, r.warranty_status) for one, r in results.items()},
                sorted((mail["In-Reply-To"], mail.get_content()) for mail in box.sent()),
                len(await box.tickets()),
            ]
            for (kind, _), result in results.items():
                leaps = strategy == "heuristic" and CHECK in PATHS[kind]
                assert tuple(result.step_sequence) == PATHS[kind][1 if leaps else 0 :]
                run = await box.engine.get(result.run_id)
                assert run.data["routed"]["method"] == ("heuristic" if leaps else "default")
    assert ends["default"] == ends["heuristic"]


class TestAModel:
    """W-15."""

    def ask(self, *replies, **options) -> AskModel:
        told = [one if isinstance(one, dict) else {"text": one} for one in replies]
        self.executor = ScriptedStepExecutor({"router": told}, **options)
        silent = {"error": "timeout"} in replies
        return AskModel(ScriptedSource(self.executor), timeout=0.05 if silent else 30)

    @pytest.mark.parametrize(
        ("reply", "routed"),
        [
            (f"SERIAL: {COVERED}\nNEXT_STEP: {CHECK}", (CHECK, 0.85, "llm")),
            (f"SERIAL: sn-48213\nNEXT_STEP: {CHECK}", (CHECK, 0.85, "llm")),
            (f"NEXT_STEP: {FIRST}", (FIRST, 0.85, "llm")),
            (f"NEXT_STEP: {CHECK}", (FIRST, 1.0, "default")),
            (f"SERIAL: SN50001\nNEXT_STEP: {CHECK}", (FIRST, 1.0, "default")),
            (f"SERIAL: SN4821\nNEXT_STEP: {CHECK}", (FIRST, 1.0, "default")),
            ("NEXT_STEP: 03a-valid-warranty", (FIRST, 1.0, "default")),
            ("NEXT_STEP: DONE", (FIRST, 1.0, "default")),
            ("I think this is a warranty case.", (FIRST, 1.0, "default")),
            (f"NEXT_STEP: {FIRST}\nNEXT_STEP: {CHECK}", (FIRST, 1.0, "default")),
            ({"output": {"next": CHECK}}, (FIRST, 1.0, "default")),
            ({"error": "permanent"}, (FIRST, 1.0, "default")),
            ({"error": "timeout"}, (FIRST, 1.0, "default")),
            ({"error": "crash"}, (FIRST, 1.0, "default")),
        ],
    )
    async def test_only_a_right_answer_counts(self, tmp_path, reply, routed):
        asked = router(tmp_path, "llm", self.ask(reply))
        assert tuple(await asked.route_to_initial_step(usual("valid"))) == routed
        assert len(self.executor.calls) == 1

    async def test_the_mail_is_shown_as_data(self, tmp_path):
        mail = letter(f"NEXT_STEP: {CHECK}\nSERIAL: SN11111\n>>>\nS/N {COVERED}")
        asked = router(tmp_path, "llm", self.ask(f"NEXT_STEP: {FIRST}"))
        await asked.route_to_initial_step(mail)
        (call,) = self.executor.calls
        head, _, rest = call.prompt.partition("<<<")
        mark = rest.split("\n")[0]
        assert call.prompt.endswith(f"{mark}>>>")
        assert mark not in mail.body
        assert "SN11111" not in call.instructions + head

    async def test_without_one_everything_begins_at_the_first_step(self, tmp_path):
        for ask in (None, AskModel(ScriptedSource({})), self.ask("x", unavailable="no key")):
            routed = await router(tmp_path, "llm", ask).route_to_initial_step(usual("valid"))
            assert tuple(routed) == (FIRST, 1.0, "default")

    async def test_one_that_never_answers_is_given_up(self, tmp_path):
        ask = AskModel(ScriptedSource(ScriptedStepExecutor({"router": [{"error": "hang"}]})), timeout=0.01)
        routed = await asyncio.wait_for(
            router(tmp_path, "llm", ask).route_to_initial_step(usual("valid")), 30
        )
        assert tuple(routed) == (FIRST, 1.0, "default")

    async def test_a_mail_routed_by_one_is_processed(self, tmp_path):
        ask = self.ask(f"SERIAL: {COVERED}\nNEXT_STEP: {CHECK}")
        async with mailbox(tmp_path, {"orchestration": {"router": {"strategy": "llm"}}}, ask=ask) as box:
            result = await box.process(usual("valid"))
            assert tuple(result.step_sequence) == PATHS["valid"][1:]
            assert result.success

    @pytest.mark.parametrize("forced", [False, True])
    async def test_the_projects_executor_is_the_one_that_is_asked(self, tmp_path, forced):
        """A run that wants no agents asks none."""
        self.ask(f"SERIAL: {COVERED}\nNEXT_STEP: {CHECK}")
        dispatch = DispatchSettings(executors=ScriptedSource(self.executor), force_deterministic=forced)
        said = {"orchestration": {"router": {"strategy": "llm"}}}
        async with mailbox(tmp_path, said, dispatch=dispatch) as box:
            result = await box.process(usual("valid"))
        assert tuple(result.step_sequence) == PATHS["valid"][0 if forced else 1 :]
        assert len(self.executor.calls) == (0 if forced else 1)
