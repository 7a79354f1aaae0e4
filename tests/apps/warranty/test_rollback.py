"""The way back: when it is taken, that it is taken once, and how one returns."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import structlog

from detent.adapters.mail.eml_folder import EmlFolder
from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.apps.warranty.intake import Intake
from detent.apps.warranty.intake_records import Records
from detent.apps.warranty.legacy.flow import Legacy
from detent.apps.warranty.mail_data import pack
from detent.apps.warranty.processor import EmailProcessor
from detent.apps.warranty.results import ProcessingResult
from detent.apps.warranty.rollback import DAY, IntakePaused, Rollback
from detent.apps.warranty.service import Service
from detent.apps.warranty.settings import Orchestration
from detent.engine.tools import ToolError
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import Status
from tests.apps.warranty.correspondence import NOW, TEXTS, mailbox, raw, usual


class Hand:
    """A clock turned by hand."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


def settings(**said: Any) -> Orchestration:
    return Orchestration.model_validate(said)


def ended(number: int, status: Status = Status.SUCCEEDED, **more: Any) -> ProcessingResult:
    failed = status is not Status.SUCCEEDED
    result = ProcessingResult(
        not failed, f"{number:012x}", f"w-{number:012x}-1", "step", "steps:05-send-confirmation", status,
        failed_step="03a-valid-warranty" if failed else None,
    )  # fmt: skip
    return replace(result, **more)


async def watched(
    outcomes: list[Status], store: Any = None, clock: Hand | None = None, **said: Any
) -> Rollback:
    rollback = Rollback(store or MemoryStore(), settings(**said), clock or Hand())
    for number, status in enumerate(outcomes):
        await rollback.settled(ended(number, status))
    return rollback


OK, BAD, WORSE = Status.SUCCEEDED, Status.FAILED, Status.DEGRADED


class TestWhen:
    @pytest.mark.parametrize(
        ("outcomes", "tripped"),
        [
            ([OK] * 94 + [BAD] * 6, True),
            ([OK] * 95 + [BAD] * 5, False),
            ([OK] * 95 + [BAD] * 3 + [WORSE] * 2, False),
            ([OK] * 94 + [BAD] * 3 + [WORSE] * 3, True),
            ([BAD] * 19, False),
            ([BAD] * 20, True),
            ([OK] * 19 + [BAD], False),
            ([OK] * 18 + [BAD] * 2, True),
            ([OK] * 300 + [BAD] * 5, False),
        ],
    )
    async def test_more_than_five_in_a_hundred_of_at_least_twenty(self, outcomes, tripped):
        """W-31: six of a hundred trip it, five do not, fewer than twenty never do."""
        rollback = await watched(outcomes)
        assert ((await rollback.watch()).tripped is not None) is tripped
        assert await rollback.choose() == ("legacy" if tripped else "step")

    async def test_only_the_last_hundred_count(self):
        """W-31."""
        rollback = await watched([OK] * 19 + [BAD] + [OK] * 200)
        watch = await rollback.watch()
        assert (len(watch.window), watch.failed) == (100, 0)

    async def test_what_is_told_twice_counts_once(self):
        rollback = await watched([OK] * 20)
        for _ in range(50):
            await rollback.settled(ended(999, BAD))
        assert (await rollback.watch()).failed == 1

    @pytest.mark.parametrize("status", [Status.CANCELLED, Status.WAITING, Status.RUNNING])
    async def test_what_says_nothing_about_the_steps_does_not_count(self, status):
        rollback = await watched([status] * 50)
        assert (await rollback.watch()).window == ()

    async def test_runs_of_legacy_mode_do_not_count(self):
        rollback = await watched([OK] * 20)
        for number in range(100, 150):
            await rollback.settled(ended(number, BAD, orchestrator="legacy"))
        assert (await rollback.watch()).failed == 0

    async def test_switched_off_it_only_watches(self):
        rollback = await watched([BAD] * 100, rollback={"enabled": False})
        assert await rollback.choose() == "step"
        assert (await rollback.status()).watch.rate == 1.0

    async def test_its_numbers_can_be_set(self):
        rollback = await watched([OK] * 3 + [BAD] * 2, rollback={"min_runs": 5, "threshold_percent": 39.0})
        assert await rollback.choose() == "legacy"


class TestTheTrip:
    async def test_it_is_written_once_however_many_processes_see_it(self, tmp_path):
        """W-32."""
        stores = [SQLiteStore(tmp_path / "runs.db") for _ in range(4)]
        for store in stores:
            await store.open()
        try:
            with structlog.testing.capture_logs() as logs:
                watchers = [Rollback(store, settings(), Hand()) for store in stores]
                await asyncio.gather(
                    *(
                        watchers[number % 4].settled(ended(number, BAD if number % 2 else OK))
                        for number in range(60)
                    )
                )
            tripped = [one for one in logs if one["event"] == "rollback.tripped"]
            found = {repr((await one.watch()).tripped) for one in watchers}
        finally:
            for store in stores:
                await store.close()
        assert len(tripped) == 1
        assert tripped[0]["log_level"] == "error"
        assert set(tripped[0]) >= {"rate", "steps", "runs"}
        assert len(found) == 1

    async def test_it_survives_a_restart(self, tmp_path):
        """W-32."""
        store = SQLiteStore(tmp_path / "runs.db")
        await store.open()
        await watched([BAD] * 20, store)
        await store.close()
        again = SQLiteStore(tmp_path / "runs.db")
        await again.open()
        rollback = Rollback(again, settings(), Hand())
        assert await rollback.choose() == "legacy"
        assert "20 of 20 runs failed" in str(await rollback.line())
        await again.close()

    async def test_reset_returns_to_steps_with_a_new_window(self):
        """W-32."""
        rollback = await watched([BAD] * 20)
        assert await rollback.reset()
        assert await rollback.choose() == "step"
        assert (await rollback.watch()).window == ()
        assert await rollback.line() is None
        for number in range(100, 119):
            await rollback.settled(ended(number, BAD))
        assert await rollback.choose() == "step"
        await rollback.settled(ended(119, BAD))
        assert await rollback.choose() == "legacy"

    async def test_it_can_be_taken_by_hand_once(self):
        rollback = await watched([OK])
        assert await rollback.trip()
        assert not await rollback.trip()
        assert await rollback.choose() == "legacy"
        assert "by hand" in str(await rollback.line())
        assert await rollback.reset()
        assert not await rollback.reset()

    async def test_what_the_settings_say_stands_above_the_watch(self):
        rollback = await watched([OK], use_step_orchestrator=False)
        assert await rollback.choose() == "legacy"

    async def test_with_legacy_mode_retired_intake_pauses_instead(self):
        """W-33."""
        rollback = await watched([BAD] * 20, legacy_available=False)
        assert await rollback.paused() == "rollback_tripped"
        with pytest.raises(IntakePaused, match="legacy_available"):
            await rollback.choose()
        assert "no mail is taken in" in str(await rollback.line())
        await rollback.reset()
        assert await rollback.paused() is None
        assert await rollback.choose() == "step"

    async def test_retired_and_asked_for_is_a_contradiction(self):
        with pytest.raises(ConfigurationError, match="legacy_available"):
            await watched([], use_step_orchestrator=False, legacy_available=False)


class TestRetirement:
    async def test_after_fourteen_untroubled_days_legacy_mode_may_go(self):
        """W-33."""
        clock = Hand()
        rollback = await watched([OK] * 24 + [BAD], clock=clock)
        assert not (await rollback.status()).may_retire
        clock.at += 14 * DAY
        found = await rollback.status()
        assert found.may_retire
        assert found.why == "14 days of step mode, 4.0% of the last runs failed"

    @pytest.mark.parametrize(
        ("outcomes", "days", "why"),
        [
            ([], 20, "no mail has gone by steps yet"),
            ([OK] * 30, 13.9, "13.9 of 14 days"),
            ([OK] * 10, 20, "10 of 20 runs"),
            ([OK] * 19 + [BAD], 20, "5.0% of the last runs failed"),
            ([BAD] * 20, 20, "mails go through it now"),
        ],
    )
    async def test_what_is_missing_is_told(self, outcomes, days, why):
        """W-33."""
        clock = Hand()
        rollback = await watched(outcomes, clock=clock)
        clock.at += days * DAY
        found = await rollback.status()
        assert not found.may_retire
        assert why in found.why

    async def test_a_trip_in_that_time_counts_whoever_reset_it(self):
        clock = Hand()
        rollback = await watched([OK], clock=clock)
        await rollback.trip()
        await rollback.reset()
        clock.at += 1
        for number in range(200, 230):
            await rollback.settled(ended(number))
        clock.at += 14 * DAY
        assert (await rollback.status()).may_retire
        clock.at -= 10 * DAY
        assert not (await rollback.status()).may_retire

    async def test_a_mail_through_legacy_mode_begins_the_count_anew(self):
        clock = Hand()
        rollback = await watched([OK] * 30, clock=clock)
        clock.at += 20 * DAY
        await rollback.settled(ended(300, orchestrator="legacy"))
        await rollback.settled(ended(301))
        assert not (await rollback.status()).may_retire

    async def test_the_status_names_steps_and_runs(self):
        rollback = await watched([OK] * 14 + [BAD] * 6)
        plain = (await rollback.status()).to_plain()
        assert plain["failing_steps"] == {"03a-valid-warranty": 6}
        assert plain["first_failing_runs"][0] == "w-00000000000e-1"
        assert plain["rate"] == 0.3


class TestWithMails:
    async def test_new_mails_go_through_legacy_mode_and_runs_under_way_finish_as_steps(self, tmp_path):
        """W-32."""
        refused = {"create_ticket": [ToolError("refused", "no")] * 3}
        said = {"orchestration": {"rollback": {"min_runs": 3}}}
        async with mailbox(tmp_path, said, faults=refused) as box:
            rollback = Rollback(box.engine.store, box.settings.orchestration, Hand())
            processor = EmailProcessor(
                box.orchestrator, legacy=Legacy(box.components, box.engine), choose=rollback.choose
            )
            packed_way, under_way = await processor.start(packed(box, usual("expired")))
            for _ in range(3):
                result = await processor.process_email(usual("valid"))
                assert result.orchestrator == "step"
                await rollback.settled(result)
            after = await processor.process_email(usual("valid"))
            finished = await processor.result(packed_way, await box.engine.finish(under_way))
        assert after.orchestrator == "legacy"
        assert after.scenario_used == "valid-warranty"
        assert (finished.orchestrator, finished.success) == ("step", True)

    async def serving(self, box: Any, rollback: Rollback, names: dict[str, str]) -> list[Any]:
        """Put mails into the inbox and have the service look once; gives what was done about each."""
        settings = box.settings
        inbox = settings.path(settings.mail.inbox)
        inbox.mkdir(parents=True, exist_ok=True)
        for name, kind in names.items():
            subject, body = TEXTS[kind, "en"]
            (inbox / f"{name}.eml").write_bytes(raw(body, subject))
        older = Legacy(box.components, box.engine) if settings.orchestration.legacy_available else None
        processor = EmailProcessor(box.orchestrator, legacy=older, choose=rollback.choose)
        records = Records(settings.path(settings.tools.database), lambda: NOW.timestamp())
        told: list[Any] = []
        source = EmlFolder(inbox)
        await source.open()
        service = Service(
            box.components, processor, source, Intake(box.components, records, processor.choose),
            tell=told.append, settled=rollback.settled, paused=rollback.paused,
        )  # fmt: skip
        await service.once()
        await source.close()
        await records.close()
        return told

    async def test_the_service_counts_takes_the_way_back_and_goes_on_with_legacy(self, tmp_path):
        """W-32."""
        refused = {"create_ticket": [ToolError("refused", "no")] * 3}
        said = {"orchestration": {"rollback": {"min_runs": 3}}}
        async with mailbox(tmp_path, said, faults=refused) as box:
            rollback = Rollback(box.engine.store, box.settings.orchestration, Hand())
            await self.serving(box, rollback, {"a": "valid", "b": "valid", "c": "valid"})
            watch = await rollback.watch()
            (after,) = await self.serving(box, rollback, {"d": "expired"})
        assert (watch.failed, len(watch.window), watch.failing()) == (3, 3, {"03a-valid-warranty": 3})
        assert after.result.orchestrator == "legacy"
        assert after.result.scenario_used == "invalid-warranty"

    @pytest.mark.parametrize("transient", [False, True])
    async def test_addresses_that_are_refused_change_nothing_for_the_others(self, tmp_path, transient):
        """Any sender can give an address that no server takes; that says nothing about steps or service."""
        refused = ToolError("recipient_refused", "no", transient=transient, of_call=True)
        said = {"orchestration": {"rollback": {"min_runs": 3}}}
        faults = {"send_email": [refused] * (18 if transient else 6)}
        async with mailbox(tmp_path, said, faults=faults) as box:
            rollback = Rollback(box.engine.store, box.settings.orchestration, Hand())
            mails = dict.fromkeys("abcdef", "valid")
            told = await self.serving(box, rollback, mails)
            assert {line.result.error_code for line in told} == {"recipient_refused"}
            assert (await rollback.watch()).window == ()
            (after,) = await self.serving(box, rollback, {"z": "expired"})
        assert (after.result.orchestrator, after.result.success) == ("step", True)

    async def test_the_service_takes_nothing_in_where_legacy_mode_is_retired(self, tmp_path):
        """W-33."""
        said = {"orchestration": {"legacy_available": False}}
        async with mailbox(tmp_path, said) as box:
            rollback = Rollback(box.engine.store, box.settings.orchestration, Hand())
            await rollback.trip()
            assert await self.serving(box, rollback, {"a": "valid"}) == []
            await rollback.reset()
            (told,) = await self.serving(box, rollback, {})
        assert told.result.success


def packed(box: Any, mail: Any) -> Any:
    return pack(mail, box.settings.warranty.timezone, box.components.now())
