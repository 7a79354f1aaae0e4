"""Statistics of the steps: the same as counts made by hand from the journals."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest

from detent import Engine, Flow, Machine, Outcome
from detent.adapters.stores.memory import MemoryStore
from detent.apps.warranty.legacy.flow import Legacy
from detent.apps.warranty.stats import mailbox_stats
from detent.apps.warranty.stats_page import page
from detent.cli.main import run as detent
from detent.engine.tools import ToolError
from detent.insight.percentiles import EXACT, Spread
from detent.kernel.entries import AttemptFailed, Moved
from detent.kernel.status import Status
from tests.apps.warranty.correspondence import (
    ASK,
    CHECK,
    CONFIRM,
    EXPIRED,
    FIRST,
    TICKET,
    Mailbox,
    agents,
    mailbox,
    usual,
)

KINDS = ["valid", "valid", "valid", "expired", "expired", "no serial", "topic"]
SLOW = ToolError("timeout", "too slow", transient=True)
NO = ToolError("refused", "no")


async def by_hand(box: Mailbox, runs: list[str]) -> dict[str, Any]:
    """Moves of the journals, counted one by one."""
    left: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    paths: Counter[tuple[str, ...]] = Counter()
    attempts: Counter[str] = Counter()
    for run_id in runs:
        path = []
        for entry in await box.entries(run_id):
            body = entry.body
            if isinstance(body, AttemptFailed):
                attempts[body.step] += 1
            if isinstance(body, Moved):
                left[body.frm] += 1
                attempts[body.frm] += 1
                path.append(body.frm)
                if body.status is not None:
                    ends[body.to] += 1
        paths[tuple(path)] += 1
    return {"visits": left, "ends": ends, "paths": paths, "attempts": attempts}


class Tables(HTMLParser):
    """The tables of a page by name: rows of texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self._name = ""
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._name = dict(attrs)["id"] or ""
            self.found[self._name] = []
        elif tag == "tr" and self._name:
            self.found[self._name].append([])
        elif tag == "td":
            self._cell = True
            self.found[self._name][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.found[self._name][-1][-1] += data


class TestPage:
    async def test_the_page_says_what_was_counted_by_hand(self, tmp_path):
        """W-62."""
        async with mailbox(tmp_path, faults={"create_ticket": [NO]}) as box:
            runs = [(await box.orchestrate(usual(kind))).run_id for kind in KINDS]
            hand = await by_hand(box, runs)
            found = await mailbox_stats(box.engine.store)
        tables = Tables(page(found, now=0.0)).found
        steps = [row for row in tables["steps"] if row]
        assert {row[0]: int(row[1]) for row in steps} == hand["visits"]
        assert {row[0]: int(row[5]) for row in steps if int(row[5])} == {TICKET: 1}
        assert sorted(int(row[1]) for row in tables["paths"] if row) == sorted(hand["paths"].values())
        assert {row[0]: int(row[1]) for row in tables["ends"] if row} == hand["ends"]

    async def test_nothing_in_it_comes_from_elsewhere_and_texts_stay_texts(self, tmp_path):
        async with mailbox(tmp_path, faults={"check_warranty": [SLOW]}) as box:
            await box.orchestrate(usual("valid"))
            found = await mailbox_stats(box.engine.store)
        text = page(found, now=0.0, line="back to <legacy> mode & on")
        assert "http" not in text
        assert "back to &lt;legacy&gt; mode &amp; on" in text


class TestByHand:
    async def test_visits_paths_ends_and_attempts_are_those_of_the_journals(self, tmp_path):
        """W-62."""
        async with mailbox(tmp_path, faults={"check_warranty": [SLOW, SLOW, None, SLOW]}) as box:
            runs = [(await box.orchestrate(usual(kind))).run_id for kind in KINDS]
            hand = await by_hand(box, runs)
            found = await mailbox_stats(box.engine.store)
        assert found.runs == len(KINDS)
        assert {step.step: step.visits for step in found.steps} == hand["visits"]
        assert {step.step: step.attempts for step in found.steps} == hand["attempts"]
        assert found.ends == {"DONE": 7} == hand["ends"]
        assert sorted(found.paths.values()) == sorted(hand["paths"].values())
        assert found.paths["01 → 02 → 03a → 05"] == 3
        assert next(iter(found.paths)) == "01 → 02 → 03a → 05"
        shares = {step.step: step.share for step in found.steps}
        assert (shares[FIRST], shares[CHECK], shares[ASK]) == (1.0, 5 / 7, 1 / 7)
        assert found.troubles == ()
        assert all(0 < (step.p50_ms or 0) <= (step.p95_ms or 0) for step in found.steps)

    async def test_a_step_visited_twice_in_a_run_counts_once_in_its_share(self):
        """W-62."""
        store = MemoryStore()
        flow = Flow(
            Machine(
                "warranty", start=FIRST, moves={FIRST: [CHECK], CHECK: [FIRST, "DONE"]},
                ends={"DONE": Status.SUCCEEDED},
            )
        )  # fmt: skip

        @flow.step(FIRST)
        async def first(ctx: Any) -> Outcome:
            return Outcome(CHECK, set={"rounds": ctx.data.rounds - 1})

        @flow.step(CHECK)
        async def check(ctx: Any) -> Outcome:
            return Outcome(FIRST if ctx.data.rounds > 0 else "DONE")

        async with Engine(store, [flow]) as engine:
            for rounds in (3, 1):
                await engine.run("warranty", {"rounds": rounds})
            found = {step.step: step for step in (await mailbox_stats(store)).steps}
        assert [(found[name].visits, found[name].runs, found[name].share) for name in (FIRST, CHECK)] == [
            (4, 2, 1.0), (4, 2, 1.0),
        ]  # fmt: skip

    async def test_failures_stand_where_they_happened_with_their_reason(self, tmp_path):
        """W-62."""
        faults = {"create_ticket": [NO, None, NO], "send_email": [None, None, NO, None]}
        async with mailbox(tmp_path, faults=faults) as box:
            results = [await box.orchestrate(usual(kind)) for kind in KINDS]
            found = await mailbox_stats(box.engine.store)
        status = Counter(result.status for result in results)
        steps = {step.step: step for step in found.steps}
        assert steps[TICKET].failures == {"ticket_failed": status[Status.DEGRADED]}
        failed = {step.step: sum(step.failures.values()) for step in found.steps if step.failures}
        assert sum(failed.values()) == status[Status.DEGRADED] + status[Status.FAILED]
        assert {(one.step, one.reason): one.count for one in found.troubles} == Counter(
            (result.final_step, result.reason) for result in results if result.status is not Status.SUCCEEDED
        )
        assert found.ends["graceful-degradation"] == status[Status.DEGRADED]
        assert all(one.run in {result.run_id for result in results} for one in found.troubles)

    async def test_runs_that_were_flagged_are_told_though_they_succeeded(self, tmp_path):
        """A registry that did not answer leaves a mail answered and nobody wiser."""
        async with mailbox(tmp_path, faults={"check_warranty": [SLOW] * 3}) as box:
            flagged = await box.orchestrate(usual("valid"))
            await box.orchestrate(usual("valid"))
            stats = await mailbox_stats(box.engine.store)
            shown = page(stats, now=0.0)
        assert tuple(flagged.flags) == ("warranty_check_failed",)
        assert stats.flags == (("warranty_check_failed", 1, flagged.run_id),)
        assert stats.troubles == ()
        assert f"  warranty_check_failed  1  {flagged.run_id}" in stats.lines()
        assert flagged.run_id in shown

    async def test_a_run_that_goes_in_circles_fails_at_the_step_it_did_not_begin(self, tmp_path):
        """W-62."""
        async with mailbox(tmp_path, {"orchestration": {"max_steps": 2}}) as box:
            result = await box.orchestrate(usual("valid"))
            found = await mailbox_stats(box.engine.store)
        assert result.reason == "max_steps"
        steps = {step.step: step for step in found.steps}
        assert (steps[TICKET].visits, steps[TICKET].failures) == (0, {"max_steps": 1})
        assert found.paths == {"01 → 02": 1}
        assert found.ends == {"FAILED": 1}

    async def test_what_a_run_took_over_from_another_is_counted_once(self, tmp_path):
        """W-61, W-62."""
        async with mailbox(tmp_path, faults={"send_email": [NO]}) as box:
            failed = await box.orchestrate(usual("valid"))
            entries = await box.entries(failed.run_id)
            came = max(
                entry.seq for entry in entries if isinstance(entry.body, Moved) and entry.body.status is None
            )
            again = await box.engine.fork(failed.run_id, came)
            assert (await box.engine.finish(again)).status is Status.SUCCEEDED
            found = await mailbox_stats(box.engine.store)
        visits = {step.step: step.visits for step in found.steps}
        assert visits == {FIRST: 1, CHECK: 1, TICKET: 1, CONFIRM: 2}
        assert found.paths == {"01 → 02 → 03a → 05": 2}
        assert found.ends == {"DONE": 1, "FAILED": 1}

    async def test_fallbacks_are_told_by_reason(self, tmp_path):
        dispatch, _ = agents({FIRST: ["no line at all", "none again"]})
        async with mailbox(tmp_path, dispatch=dispatch) as box:
            await box.orchestrate(usual("valid"))
            found = await mailbox_stats(box.engine.store)
        steps = {step.step: step for step in found.steps}
        assert steps[FIRST].fallbacks == {"schema_violation": 1}
        assert steps[CHECK].fallbacks == {}

    async def test_runs_of_legacy_mode_are_told_apart(self, tmp_path):
        async with mailbox(tmp_path) as box:
            older = Legacy(box.components, box.engine)
            box.processor.legacy = older
            await box.process(usual("valid"), how="legacy")
            await box.process(usual("expired"), how="step")
            found = await mailbox_stats(box.engine.store)
        assert (found.runs, found.legacy) == (1, {"DONE": 1})

    async def test_pages_of_runs_make_no_difference(self, tmp_path, monkeypatch):
        async with mailbox(tmp_path) as box:
            for kind in KINDS:
                await box.orchestrate(usual(kind))
            whole = await mailbox_stats(box.engine.store)
            monkeypatch.setattr("detent.engine.journal_reader.ROWS", 2)
            assert await mailbox_stats(box.engine.store) == whole

    async def test_an_empty_store_adds_up_to_nothing(self):
        found = await mailbox_stats(MemoryStore())
        assert (found.runs, found.steps, found.paths) == (0, (), {})

    async def test_everything_can_be_said_as_json(self, tmp_path):
        async with mailbox(tmp_path, faults={"create_ticket": [NO]}) as box:
            await box.orchestrate(usual("valid"))
            await box.orchestrate(usual("expired"))
            found = await mailbox_stats(box.engine.store)
        plain = json.loads(json.dumps(found.to_plain()))
        assert {step["step"]: step["visits"] for step in plain["steps"]}[EXPIRED] == 1
        text = "\n".join(found.lines())
        assert "ticket_failed 1" in text
        assert "01 → 02 → 03c" in text


class TestSpread:
    @pytest.mark.parametrize(("share", "value"), [(0.5, 50.0), (0.95, 95.0), (0.0, 1.0), (1.0, 100.0)])
    def test_it_gives_the_nearest_rank(self, share, value):
        spread = Spread()
        for number in range(100, 0, -1):
            spread.add(float(number))
        assert spread.at(share) == value

    def test_nothing_has_no_middle(self):
        assert Spread().at(0.5) is None

    def test_very_many_values_take_little_memory_and_stay_near(self):
        spread = Spread()
        for number in range(1, 50_001):
            spread.add(number / 7)
        assert spread.kept <= 900 * 5
        assert spread.kept < spread.count / 10 > EXACT
        assert spread.at(0.5) == pytest.approx(25_000 / 7, rel=0.01)
        assert spread.at(0.95) == pytest.approx(47_500 / 7, rel=0.01)


class TestCommands:
    @pytest.fixture
    def project(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert detent(["warranty", "init", "box"]) == 0
        monkeypatch.chdir(tmp_path / "box")
        (tmp_path / "box" / "mail" / "inbox").mkdir(parents=True, exist_ok=True)
        from tests.apps.warranty.correspondence import raw

        inbox = tmp_path / "box" / "mail" / "inbox"
        (inbox / "one.eml").write_bytes(raw("Our printer has stopped and does not start any more."))
        assert detent(["run", "warranty", "--once", "--quiet"]) == 0
        return tmp_path / "box"

    def test_stats_rollback_and_ab_answer_in_words_and_in_json(self, project, capsys):
        """W-33, W-62, W-63."""
        capsys.readouterr()
        assert detent(["warranty", "stats"]) == 0
        assert "01 → 03d" in capsys.readouterr().out
        assert detent(["warranty", "stats", "--html", "mailbox.html"]) == 0
        assert "Warranty mailbox" in (project / "mailbox.html").read_text(encoding="utf-8")
        assert detent(["warranty", "stats", "--html", "gone/mailbox.html"]) == 2
        assert "cannot be written" in capsys.readouterr().err
        assert detent(["warranty", "stats", "--since", "7d", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["runs"] == 1
        assert detent(["warranty", "rollback", "status"]) == 0
        assert "may not be retired" in capsys.readouterr().out
        assert detent(["warranty", "rollback", "trip"]) == 0
        assert detent(["warranty", "stats"]) == 0
        assert "rolled back by hand" in capsys.readouterr().out
        assert detent(["warranty", "rollback", "reset"]) == 0
        assert detent(["warranty", "rollback", "status", "--json"]) == 0
        assert json.loads(capsys.readouterr().out.partition("\n")[2])["tripped"] is None
        assert detent(["warranty", "ab", "first-step"]) == 2
        assert "no experiment 'first-step'" in capsys.readouterr().err
