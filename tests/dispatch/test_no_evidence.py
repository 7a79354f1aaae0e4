"""What looks like evidence and is none, and what is counted once although it is seen twice."""

from __future__ import annotations

import pytest

from detent.dispatch.evidence import ByLevel, EvidenceRules
from detent.dispatch.standing import Standing, Tally
from detent.dispatch.watch import DRAW_KEY, draw_key, drawn
from detent.kernel.run_config import REPLAYED
from tests.dispatch.samples import FAULT, MAIL, QUESTION, again, agent, forms, scripted, settings


async def tally_of(engine) -> Tally:
    """The judged visits of the only series; none without one."""
    await engine.performer.evidence.settle()
    marks = await engine.store.marks("evidence/")
    return Standing.from_plain(next(iter(marks.values()), None)).tally()


async def test_the_first_answer_that_reached_the_gate_counts(quick):
    """A wrong answer is not asked for again until it agrees."""
    executor = scripted({"output": QUESTION}, {"output": FAULT})
    engine = await quick.engine(forms(), dispatch=settings(executor, agent("collaborator")))
    run = await engine.run("flow", MAIL)
    assert run.data == {**MAIL, **FAULT}  # by the handler
    tally = await tally_of(engine)
    assert (tally.n, tally.wrong, len(executor.calls)) == (1, 1, 1)


async def test_where_the_handler_fails_nobody_is_judged(quick):
    async def broken(ctx):
        raise ValueError("no such mail")

    engine = await quick.engine(
        forms(broken), dispatch=settings(scripted(again(FAULT)), agent("collaborator"))
    )
    for _ in range(3):
        await engine.run("flow", MAIL)
    assert (await tally_of(engine)).judged == 0


async def test_an_answer_out_of_a_recording_is_no_evidence(quick):
    engine = await quick.engine(forms(), dispatch=settings(scripted(again(FAULT)), agent("collaborator")))
    for _ in range(3):
        await engine.run("flow", MAIL, config={REPLAYED: True})
    assert (await tally_of(engine)).judged == 0


async def test_an_audit_and_the_recheck_after_it_count_each_visit_once(quick):
    rules = EvidenceRules(audit=ByLevel(1e-9, 1e-9), recheck=60)
    executor = scripted(again(QUESTION))
    engine = await quick.engine(forms(), dispatch=settings(executor, agent("consultant"), evidence=rules))
    for visit in range(4):
        run = await engine.run("flow", MAIL)
        await engine.performer.evidence.settle()
        # The audited answer has gone out; from then on the handler's is used.
        assert run.data == {**MAIL, **(QUESTION if visit == 0 else FAULT)}
    tally = await tally_of(engine)
    assert (tally.judged, tally.wrong) == (4, 4)


class TestWhichVisitsAreAudited:
    def test_the_draw_is_the_same_after_a_resume_and_another_with_another_key(self):
        places = [f"run-{number}\n/work\n0" for number in range(2000)]
        one, other = ({place for place in places if drawn(key, place) < 0.1} for key in (b"a", b"b"))
        assert one == {place for place in places if drawn(b"a", place) < 0.1}
        assert 140 < len(one) < 260
        assert len(one & other) < len(one) / 2

    async def test_the_key_is_the_stores_and_in_no_prompt(self, quick):
        executor = scripted(again(FAULT))
        rules = EvidenceRules(audit=ByLevel(0.5, 0.5))
        engine = await quick.engine(forms(), dispatch=settings(executor, agent("consultant"), evidence=rules))
        for _ in range(3):
            await engine.run("flow", MAIL)
        key = await draw_key(engine.store)
        assert (await engine.store.mark(DRAW_KEY))[0] == key.hex()
        assert await draw_key(engine.store) == key
        assert executor.calls
        assert not [call for call in executor.calls if key.hex() in repr(call)]


@pytest.mark.parametrize("visits", [1, 7])
async def test_a_replay_beside_live_visits_is_told_apart(quick, visits):
    """Sums are over what one check judged; replayed inputs have a figure of their own."""
    engine = await quick.engine(forms(), dispatch=settings(scripted(again(FAULT)), agent("collaborator")))
    for number in range(visits):
        await engine.run("flow", {**MAIL, "number": number})
    tally = await tally_of(engine)
    assert (tally.judged, tally.replayed, dict(tally.judges)) == (visits, 0, {"comparison": visits})
