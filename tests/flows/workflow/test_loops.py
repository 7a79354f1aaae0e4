"""Loops: for each item, until something holds, side by side; what iterations see and what stops them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.flows.workflow.errors import LoopExhausted, LoopStepExecutionError
from detent.flows.workflow.events import (
    LoopConditionChecked,
    LoopIterationCompleted,
    LoopIterationStarted,
)
from detent.kernel.entries import Recorded
from detent.kernel.status import Status
from tests.flows.workflow.workshop import Workshop, flow

ITEMS = "inputs: {items: {type: array}}"


# -- for each -----------------------------------------------------------------------------------------------


async def test_a_loop_gives_a_list_of_what_the_steps_of_each_iteration_gave(workshop: Workshop) -> None:
    """D-61, D-65."""
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items
              steps:
                - {name: a, type: python, action: give, kwargs: {value: "${{ item }}"}}
                - name: b
                  type: python
                  action: give
                  kwargs: {value: ["${{ index }}", "${{ steps.a.output }}"]}
            """,
            ITEMS,
        ),
        {"items": ["x", {"y": 1}]},
    )
    assert ran.step("each").output == [["x", [0, "x"]], [{"y": 1}, [1, {"y": 1}]]]
    assert ran.result.final_output == ran.step("each").output
    assert [one.path for one in ran.result.step_results] == [
        "each/[0]/a", "each/[0]/b", "each/[1]/a", "each/[1]/b", "each",
    ]  # fmt: skip
    assert set(ran.journals) == {"r", "r.each[0]", "r.each[1]"}


@pytest.mark.parametrize("said", ["[1, '${{ inputs.items[0] }}']", "'${{ inputs.both }}'", "inputs.both"])
async def test_items_may_be_a_list_or_an_expression(workshop: Workshop, said: str) -> None:
    ran = await workshop.run(
        flow(
            f"""
            - name: each
              type: loop
              for_each: {said}
              steps: [{{name: a, type: python, action: give, kwargs: {{value: "${{{{ item }}}}"}}}}]
            """,
            "inputs: {items: {type: array, default: [2]}, both: {type: array, default: [1, 2]}}",
        )
    )
    assert ran.step("each").output == [[1], [2]]


async def test_no_items_are_no_iterations(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow(
            """
        - name: each
          type: loop
          for_each: inputs.items
          steps: [{name: a, type: python, action: boom}]
        """,
            ITEMS,
        ),
        {"items": []},
    )
    assert (ran.result.success, ran.step("each").output) == (True, [])


@pytest.mark.parametrize(
    ("value", "told"),
    [("text", "text"), ({"a": 1}, "a mapping"), (3, "a number"), (None, "null"), (True, "")],
)
async def test_anything_but_a_list_of_items_fails_the_loop(workshop: Workshop, value: Any, told: str) -> None:
    """D-61."""
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items.it
              steps: [{name: a, type: python, action: give}]
            """,
            "inputs: {items: {type: object}}",
        ),
        {"items": {"it": value}},
    )
    error = ran.step("each").error or ""
    assert "it must give a list of items" in error
    assert told in error


async def test_more_than_ten_thousand_items_fail_the_loop_before_any_is_begun(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items
              steps: [{name: a, type: python, action: give}]
            """,
            ITEMS,
        ),
        {"items": list(range(10_001))},
    )
    assert "10,001 items" in (ran.step("each").error or "")
    assert list(ran.journals) == ["r"]


async def test_items_are_kept_in_the_journal_when_the_loop_begins(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items
              steps: [{name: a, type: python, action: give}]
            """,
            ITEMS,
        ),
        {"items": [1, "b"]},
    )
    kept = [entry.body for entry in ran.journals["r"] if isinstance(entry.body, Recorded)]
    assert [(one.key, one.value) for one in kept] == [("items/each", [1, "b"])]


async def test_when_is_evaluated_in_each_iteration(workshop: Workshop) -> None:
    """D-65."""
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items
              steps:
                - {name: a, type: python, action: put, when: item > 1, kwargs: {text: "${{ item }}"}}
                - {name: b, type: python, action: give, kwargs: {value: "${{ steps.a.status }}"}}
            """,
            ITEMS,
        ),
        {"items": [1, 2]},
    )
    assert [iteration[1] for iteration in ran.step("each").output] == ["skipped", "ok"]
    assert ran.step("each").output[0][0] is None
    assert ran.effects == [("put", 2)]


async def test_a_step_in_a_loop_means_this_iteration_and_sees_what_was_done_before_the_loop(
    workshop: Workshop,
) -> None:
    """D-65."""
    ran = await workshop.run(
        flow(
            """
            - {name: before, type: python, action: give, kwargs: {value: {deep: x}}}
            - {name: aside, type: python, action: give, kwargs: {value: unread}}
            - name: each
              type: loop
              for_each: inputs.items
              parallel: true
              steps:
                - {name: a, type: python, action: give, kwargs: {value: "${{ item }}"}}
                - name: b
                  type: python
                  action: give
                  kwargs: {value: "${{ steps.before.output.deep }}${{ steps.a.output }}${{ inputs.first }}"}
            """,
            "inputs: {items: {type: array}, first: {type: integer}, other: {type: string, default: unread}}",
        ),
        {"items": [1, 2, 3], "first": 1},
    )
    assert ran.step("each").output == [[1, "x11"], [2, "x21"], [3, "x31"]]
    told = ran.journals["r.each[1]"][0].body.data
    assert told["inputs"] == {"first": 1}
    assert list(told["outer"]) == ["before"]


async def test_nested_loops_have_their_own_items_and_read_the_iteration_around_them(
    workshop: Workshop,
) -> None:
    ran = await workshop.run(
        flow(
            """
            - name: rows
              type: loop
              for_each: inputs.items
              steps:
                - {name: row, type: python, action: give, kwargs: {value: "${{ item }}"}}
                - name: cells
                  type: loop
                  for_each: item.cells
                  steps:
                    - name: cell
                      type: python
                      action: give
                      kwargs: {value: "${{ steps.row.output.name }}${{ item }}${{ index }}"}
                - {name: after, type: python, action: give, kwargs: {value: "${{ item.name }}${{ index }}"}}
            """,
            ITEMS,
        ),
        {"items": [{"name": "a", "cells": [7, 8]}, {"name": "b", "cells": [9]}]},
    )
    assert ran.step("rows").output == [
        [{"name": "a", "cells": [7, 8]}, [["a70"], ["a81"]], "a0"],
        [{"name": "b", "cells": [9]}, [["b90"]], "b1"],
    ]
    assert "r.rows[0].cells[1]" in ran.journals
    assert ran.step("rows/[0]/cells/[1]/cell").output == "a81"


# -- how many at once ---------------------------------------------------------------------------------------

MEET = """
- name: each
  type: loop
  for_each: inputs.items
  {bound}
  steps: [{{name: a, type: python, action: meet, kwargs: {{name: "${{{{ item }}}}"}}}}]
"""


@pytest.mark.parametrize(
    ("bound", "most"),
    [("description: one", 1), ("max_concurrency: 3", 3), ("parallel: true", 4), ("max_concurrency: 0", 4)],
)
async def test_no_more_iterations_run_side_by_side_than_the_loop_is_bound_to(
    workshop: Workshop, bound: str, most: int
) -> None:
    """D-66: and as many as that do; results are in the order of the items whatever finished first."""
    workshop.max_parallel = 4
    names = [f"n{n}" for n in range(9)]
    async with workshop.under_way(flow(MEET.format(bound=bound), ITEMS), {"items": names}) as engine:
        left = list(names)
        while left:
            await workshop.until_inside(*left[:most])
            workshop.door(left.pop(min(most, len(left)) - 1)).set()  # the one that came last goes first
        ran = await workshop.finished(engine)
    assert workshop.most_inside == most
    assert ran.step("each").output == [[{"name": name}] for name in names]


async def test_after_the_first_failure_none_is_begun_and_those_under_way_finish_their_step(
    workshop: Workshop,
) -> None:
    """D-66."""
    text = flow(
        """
        - name: each
          type: loop
          for_each: inputs.items
          max_concurrency: 3
          steps:
            - name: a
              type: python
              action: meet
              kwargs: {name: "${{ item }}", fail: "${{ item == 'n1' }}"}
            - {name: b, type: python, action: put, kwargs: {text: "${{ item }}"}}
        """,
        ITEMS,
    )
    async with workshop.under_way(text, {"items": [f"n{n}" for n in range(6)]}) as engine:
        await workshop.until_inside("n0", "n1", "n2")
        ended = asyncio.Event()
        engine.add_observer(Ended("r.each[1]", ended))
        workshop.door("n1").set()
        await ended.wait()
        workshop.door("n0").set()
        workshop.door("n2").set()
        ran = await workshop.finished(engine)
    assert workshop.arrivals == ["n0", "n1", "n2"]
    assert ran.effects == []  # nobody came to the second step
    assert ran.step("each/[0]/a").status == ran.step("each/[2]/a").status == "ok"
    assert ran.step("each/[1]/a").status == "failed"
    error = ran.step("each").error or ""
    assert "LoopStepExecutionError" in error
    assert "1 of 6 iterations failed ([1])" in error
    assert "n1 failed" in error
    assert set(ran.journals) == {"r", "r.each[0]", "r.each[1]", "r.each[2]"}


class Ended:
    """Sets an event when a run's end is told."""

    def __init__(self, run_id: str, event: asyncio.Event) -> None:
        self._run_id = run_id
        self._event = event

    def on_run_entry(self, run: Any, entry: Any) -> None:
        if run.id == self._run_id and run.status.is_end:
            self._event.set()


async def test_a_loop_in_order_stops_at_the_first_failure(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items
              steps:
                - {name: a, type: python, action: put, kwargs: {text: "${{ item }}"}}
                - {name: b, type: python, action: boom, when: item == 2}
            """,
            ITEMS,
        ),
        {"items": [1, 2, 3]},
    )
    assert ran.effects == [("put", 1), ("put", 2), ("take", 2), ("take", 1)]
    assert set(ran.journals) >= {"r.each[0]", "r.each[1]"}
    assert "r.each[2]" not in ran.journals


def test_a_loop_error_says_which_iterations_failed_of_how_many() -> None:
    error = LoopStepExecutionError("each", list(range(12)), 40, "ValueError: no")
    assert error.step_name == "each"
    assert error.failed_iterations == tuple(range(12))
    assert error.total_iterations == 40
    assert "12 of 40 iterations failed" in str(error)
    assert "and 2 more" in str(error)


# -- until --------------------------------------------------------------------------------------------------


async def test_until_is_evaluated_after_each_pass_in_that_pass(workshop: Workshop) -> None:
    """D-67."""
    ran = await workshop.run(
        flow("""
        - name: again
          type: loop
          until: steps.look.output.value >= 2 and index == 2
          steps:
            - {name: look, type: python, action: echo, kwargs: {value: "${{ index }}"}}
            - {name: odd, type: python, action: give, when: index == 1, kwargs: {value: odd}}
        """)
    )
    assert ran.step("again").output == [[{"value": 0}, None], [{"value": 1}, "odd"], [{"value": 2}, None]]
    checked = ran.told(LoopConditionChecked)
    assert [(one.iteration_index, one.condition_met) for one in checked] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert {one.step_path for one in checked} == {"again"}


async def test_a_loop_whose_condition_never_holds_fails_after_its_last_pass(workshop: Workshop) -> None:
    """D-67."""
    ran = await workshop.run(
        flow("""
        - name: again
          type: loop
          until: steps.look.output.value
          max_iterations: 4
          steps: [{name: look, type: python, action: echo, kwargs: {value: false}}]
        """)
    )
    assert len(workshop.called) == 4
    assert "LoopExhausted" in (ran.step("again").error or "")
    assert "4 passes" in (ran.step("again").error or "")
    assert LoopExhausted("again", 4).passes == 4


async def test_thirty_passes_are_made_where_the_file_does_not_say(workshop: Workshop) -> None:
    await workshop.run(
        flow("""
        - name: again
          type: loop
          until: steps.look.output.value
          steps: [{name: look, type: python, action: echo, kwargs: {value: 0}}]
        """)
    )
    assert len(workshop.called) == 30


async def test_an_exhausted_loop_may_go_on(workshop: Workshop) -> None:
    """D-67."""
    ran = await workshop.run(
        flow("""
        - name: again
          type: loop
          until: "false"
          max_iterations: 2
          on_exhausted: continue
          steps: [{name: look, type: python, action: give, kwargs: {value: "${{ index }}"}}]
        - {name: after, type: python, action: give, kwargs: {value: "${{ steps.again.output }}"}}
        """)
    )
    assert ran.result.final_output == [[0], [1]]


async def test_a_pass_that_fails_ends_the_loop(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: again
          type: loop
          until: "index == 5"
          steps:
            - {name: look, type: python, action: boom, when: index == 1, kwargs: {say: broken}}
        """)
    )
    assert "1 of 2 iterations failed ([1])" in (ran.step("again").error or "")
    assert "broken" in (ran.step("again").error or "")


async def test_an_error_in_until_fails_the_loop(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: again
          type: loop
          until: steps.look.output.nowhere
          steps: [{name: look, type: python, action: echo, kwargs: {value: 1}}]
        """)
    )
    assert "nowhere" in (ran.step("again").error or "")
    assert len(workshop.called) == 1


async def test_an_until_loop_inside_another_sees_the_item_of_the_one_around_it(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items
              steps:
                - name: again
                  type: loop
                  until: index == item
                  steps:
                    - {name: look, type: python, action: give, kwargs: {value: "${{ item }}:${{ index }}"}}
            """,
            ITEMS,
        ),
        {"items": [0, 2]},
    )
    assert ran.step("each").output == [[[["0:0"]]], [[["2:0"], ["2:1"], ["2:2"]]]]
    labels = {one.step_path: one.item_label for one in ran.told(LoopIterationStarted)}
    assert labels["each/[1]"] == "2"
    assert labels["each/[1]/again/[2]"] == "Item 3"


# -- side by side -------------------------------------------------------------------------------------------

BOTH = """
- name: both
  type: loop
  {more}
  steps:
    - {{name: one, type: python, action: meet, kwargs: {{name: one}}}}
    - {{name: two, type: python, action: meet, kwargs: {{name: two}}}}
    - {{name: three, type: python, action: meet, kwargs: {{name: three}}}}
"""


async def test_a_loop_with_neither_runs_its_steps_once_side_by_side(workshop: Workshop) -> None:
    """D-61, D-66."""
    async with workshop.under_way(flow(BOTH.format(more="description: x"))) as engine:
        await workshop.until_inside("one", "two", "three")
        for name in ("three", "two", "one"):
            workshop.door(name).set()
        ran = await workshop.finished(engine)
    assert ran.step("both").output == [[{"name": "one"}, {"name": "two"}, {"name": "three"}]]
    assert set(ran.journals) == {"r", "r.both[0]", "r.both[1]", "r.both[2]"}
    assert ran.told(LoopIterationStarted, LoopIterationCompleted) == []


@pytest.mark.parametrize(("more", "settings"), [("max_concurrency: 2", 8), ("parallel: true", 2)])
async def test_steps_side_by_side_keep_to_a_bound_too(workshop: Workshop, more: str, settings: int) -> None:
    """D-66."""
    workshop.max_parallel = settings
    async with workshop.under_way(flow(BOTH.format(more=more))) as engine:
        await workshop.until_inside("one", "two")
        workshop.door("one").set()
        await workshop.until_inside("two", "three")
        workshop.door("two").set()
        workshop.door("three").set()
        ran = await workshop.finished(engine)
    assert workshop.most_inside == 2
    assert ran.result.success


async def test_a_step_side_by_side_may_be_passed_over_or_fail(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: both
          type: loop
          steps:
            - {name: one, type: python, action: give, when: "false"}
            - {name: two, type: python, action: give, kwargs: {value: 2}}
        - name: bad
          type: loop
          steps:
            - {name: three, type: python, action: boom}
            - {name: four, type: python, action: give}
        """)
    )
    assert ran.step("both").output == [[None, 2]]
    assert "of 2 iterations failed ([0])" in (ran.step("bad").error or "")


async def test_steps_side_by_side_inside_an_iteration_are_no_iterations_and_see_its_item(
    workshop: Workshop,
) -> None:
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items
              steps:
                - name: both
                  type: loop
                  steps:
                    - {name: one, type: python, action: give, kwargs: {value: "${{ item }}"}}
                    - {name: two, type: python, action: give, kwargs: {value: "${{ index }}"}}
            """,
            ITEMS,
        ),
        {"items": ["x", "y"]},
    )
    assert ran.step("each").output == [[[["x", 0]]], [[["y", 1]]]]
    started = [one.step_path for one in ran.told(LoopIterationStarted)]
    assert started == ["each/[0]", "each/[1]"]


# -- labels and ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "label"),
    [
        ({"id": 7, "phase": "p", "title": "t", "name": "n", "label": "l"}, "l"),
        ({"id": 7, "phase": "p", "title": "t", "name": "n"}, "n"),
        ({"id": 7, "phase": "p", "title": "t"}, "t"),
        ({"id": 7, "phase": "p"}, "p"),
        ({"id": 7}, "7"),
        ({"label": "", "id": "x"}, "x"),
        ({"else": 1}, "Item 1"),
        ("text", "text"),
        ("a\nlong " + "line " * 40, None),
        (3, "3"),
        (None, "Item 1"),
        ([1], "Item 1"),
    ],
)
async def test_an_item_is_known_by_its_label(workshop: Workshop, item: Any, label: str | None) -> None:
    """D-77."""
    ran = await workshop.run(
        flow(
            """
            - name: each
              type: loop
              for_each: inputs.items
              steps: [{name: a, type: python, action: give}]
            """,
            ITEMS,
        ),
        {"items": [item]},
    )
    (started,) = ran.told(LoopIterationStarted)
    assert (started.iteration_index, started.total_iterations, started.parent_step_name) == (0, 1, "each")
    if label is not None:
        assert started.item_label == label
    else:  # cut, at a word if it can be
        assert 60 < len(started.item_label) <= 80


async def test_a_cancelled_loop_leaves_no_iteration_under_way(workshop: Workshop) -> None:
    text = flow(MEET.format(bound="max_concurrency: 2"), ITEMS)
    async with workshop.under_way(text, {"items": ["a", "b", "c"]}) as engine:
        await workshop.until_inside("a", "b")
        await engine.cancel("r")
        ran = await workshop.finished(engine)
        assert ran.run.status is Status.CANCELLED
        for child in ("r.each[0]", "r.each[1]"):
            assert (await engine.get(child)).status is Status.CANCELLED
    assert workshop.arrivals == ["a", "b"]
