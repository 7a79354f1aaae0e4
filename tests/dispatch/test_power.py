"""The power of a check: planted errors, put to the real check."""

from dataclasses import replace

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.equivalence import CompareRules
from detent.dispatch.evidence import Power
from detent.dispatch.planted import PlainAnswer, Sort, plants
from detent.dispatch.power import PowerReport, SortPower, measure, power_mark
from detent.engine.step import Step
from tests.dispatch.samples import settings
from tests.engine.conftest import flow_of, journal

SCHEMA = {
    "type": "object", "required": ["serial", "amount", "day"], "additionalProperties": False,
    "properties": {"serial": {"type": "string"}, "amount": {"type": "integer"}, "day": {"type": "string"}},
}  # fmt: skip


async def claim(ctx) -> dict:
    """Read serial, amount and day of a claim."""
    return {key: ctx.data[f"of_{key}"] for key in ("serial", "amount", "day")}


async def measured(bench, **options):
    """The power of the step's check after six real runs, and the engine."""
    step = Step("work", claim, "Read the claim.", output_schema=SCHEMA, into="claim", **options)
    flow = flow_of({"work": ["done"]}, {"work": step})
    engine = await bench.engine(flow, dispatch=settings())
    runs = []
    for number in range(6):
        data = {
            "of_serial": f"SN-10{number}7",
            "of_amount": 120 + 13 * number,
            "of_day": f"2026-03-0{number + 1}",
        }
        runs.append(await engine.run(flow.name, data))
    before = [len(await journal(engine, run.id)) for run in runs]
    power = await measure(engine, flow.name, "work", planted=50)
    assert [len(await journal(engine, run.id)) for run in runs] == before  # no visit, no note
    return power, engine, flow


def by_sort(power):
    return {sort.sort: sort for sort in power.sorts}


async def test_a_comparison_catches_every_planted_error(bench):
    power, engine, flow = await measured(bench)
    assert power.visits == 6
    assert power.lowest.share == 1.0
    assert by_sort(power)["another value"].planted == 50
    plan = dispatcher_of(engine).plan_for(flow, flow.steps["work"])
    mark, _ = await engine.store.mark(power_mark(plan))
    assert PowerReport.from_plain(mark) == power
    assert not await engine.store.marks("evidence/")


async def test_a_validator_that_is_always_true_has_no_power(bench):
    power, _, _ = await measured(bench, validator=lambda inputs, proposal: True)
    assert power.lowest.share == 0.0
    assert power.lowest.planted > 0


async def test_the_lowest_sort_shows_what_a_pooled_share_hides(bench):
    """A validator that misses one digit: caught often on the whole, never on amounts off by one."""

    def nearly(inputs, proposal):
        said = proposal.plain
        return said["serial"] == inputs["of_serial"] and abs(said["amount"] - inputs["of_amount"]) < 10

    power, _, _ = await measured(bench, validator=nearly)
    pooled = sum(s.caught for s in power.sorts) / sum(s.planted for s in power.sorts)
    assert power.lowest.sort == "near miss"
    assert power.lowest.share < pooled


async def test_ignored_places_are_planted_with_errors_and_harmless_ones_are_not(bench):
    ignored, _, _ = await measured(bench, compare=CompareRules(ignore=["/day"]))
    assert ignored.lowest.share < 1.0
    harmless, _, _ = await measured(bench, compare=CompareRules(ignore=["/day"], harmless=["/day"]))
    assert harmless.lowest.share == 1.0
    assert harmless.harmless == ("/day",)


async def test_mutants_that_the_contract_refuses_are_not_caught(bench):
    power, _, _ = await measured(bench)
    left_out = by_sort(power)["fact left out"]
    assert left_out.contract > 0
    assert left_out.planted == left_out.caught == 0
    assert left_out.share is None


def test_a_sort_of_which_most_mutants_are_equal_is_not_measurable():
    mostly = SortPower("near miss", planted=3, caught=0, dropped=4)
    other = SortPower("another value", planted=40, caught=39, dropped=40, contract=1)
    assert mostly.share is None
    power = PowerReport("flow/work", "comparison", "f", (mostly, other))
    assert power.lowest is other
    assert Power.from_plain(power.to_plain()) == Power(40, 39, "another value")


async def test_a_changed_check_has_no_power_yet(bench):
    _, engine, flow = await measured(bench)
    dispatcher = dispatcher_of(engine)
    changed = replace(flow.steps["work"], compare=CompareRules(ignore=["/day"]))
    one, other = (dispatcher.plan_for(flow, step) for step in (flow.steps["work"], changed))
    assert power_mark(one) != power_mark(other)


async def test_power_is_measured_by_kind(bench):
    kind = AgentSide(kind=lambda inputs: "large" if inputs["of_amount"] > 150 else "small")
    power, _, _ = await measured(bench, agent=kind)
    assert {sort.kind for sort in power.sorts} == {"large", "small"}


def test_a_seeded_answer_gives_moves_and_near_misses():
    answer = PlainAnswer({"day": "2026-03-04", "n": 12}, "accept")
    made = list(plants(answer, schema=None, moves=("accept", "refuse"), others=()))
    assert {plant.answer.next_state for plant in made if plant.sort is Sort.ANOTHER_MOVE} == {"refuse"}
    near = [plant.answer.output for plant in made if plant.sort is Sort.NEAR_MISS]
    assert {"day": "2026-04-03", "n": 12} in near
    assert {"day": "2026-03-04", "n": 21} in near
