"""Branches: the first option that holds is performed in the branch's own state."""

from __future__ import annotations

import pytest

from detent.flows.workflow.events import CheckpointSaved, LoopConditionChecked, StepCompleted, StepStarted
from detent.kernel.entries import Moved, Recorded
from detent.stores import SQLiteStore
from tests.flows.workflow.workshop import Workshop, flow

HEAD = "inputs: {n: {type: integer}}"
PICK = """
- name: pick
  type: branch
  options:
    - {when: inputs.n == 1, step: {name: one, type: python, action: put, kwargs: {text: one}}}
    - {when: inputs.n >= 1, step: {name: more, type: python, action: put, kwargs: {text: more}}}
    MAYBE
- name: after
  type: python
  action: give
  kwargs: {value: ["${{ steps.pick.output }}", "${{ steps.pick.status }}"]}
"""
ELSE = "- {step: {name: other, type: python, action: give, kwargs: {value: other}}}"


@pytest.mark.parametrize(("n", "text"), [(1, "one"), (2, "more")])
async def test_the_first_option_that_holds_is_performed_and_no_other(
    workshop: Workshop, n: int, text: str
) -> None:
    """D-61."""
    ran = await workshop.run(flow(PICK.replace("MAYBE", ELSE), HEAD), {"n": n})
    assert ran.effects == [("put", text)]
    assert ran.result.final_output == [{"text": text, "number": 1}, "ok"]
    assert [(one.path, one.status) for one in ran.result.step_results] == [
        (f"pick/{text}", "ok"), ("pick", "ok"), ("after", "ok"),
    ]  # fmt: skip
    assert ran.step("pick").output == ran.step(f"pick/{text}").output
    assert (ran.step("pick").step_type, ran.step(f"pick/{text}").step_type) == ("branch", "python")
    states = [entry.body.frm for entry in ran.journals["r"] if isinstance(entry.body, Moved)]
    assert states == ["ready", "pick", "after"]


async def test_without_a_condition_the_last_option_is_what_happens_else(workshop: Workshop) -> None:
    ran = await workshop.run(flow(PICK.replace("MAYBE", ELSE), HEAD), {"n": 0})
    assert ran.result.final_output == ["other", "ok"]


async def test_where_no_option_holds_the_output_is_null(workshop: Workshop) -> None:
    """D-61."""
    ran = await workshop.run(flow(PICK.replace("    MAYBE\n", ""), HEAD), {"n": 0})
    assert ran.result.final_output == [None, "ok"]
    assert ran.effects == []
    assert [one.path for one in ran.result.step_results] == ["pick", "after"]


async def test_the_chosen_option_is_kept_in_the_journal_before_it_is_performed(workshop: Workshop) -> None:
    ran = await workshop.run(flow(PICK.replace("MAYBE", ELSE), HEAD), {"n": 2})
    (kept,) = [entry for entry in ran.journals["r"] if isinstance(entry.body, Recorded)]
    assert (kept.body.key, kept.body.value) == ("branch/pick", 1)


async def test_a_resumed_branch_goes_the_way_it_had_chosen_without_asking_again(workshop: Workshop) -> None:
    """What was kept is all there is of the choice: it is not kept a second time."""
    text = flow(
        """
        - name: pick
          type: branch
          options:
            - when: inputs.n == 1
              step: {name: one, type: python, action: meet, kwargs: {name: one}}
            - step: {name: other, type: python, action: meet, kwargs: {name: other}}
        """,
        HEAD,
    )
    path = workshop.folder / "runs.db"
    async with workshop.under_way(text, {"n": 1}, store=SQLiteStore(path)) as engine:
        await workshop.until_inside("one")
        await engine.stop(grace=0)
    workshop.door("one").set()
    workshop.door("other").set()
    spec = workshop.spec(text)
    async with workshop.engine(spec, SQLiteStore(path)) as engine:
        await engine.resume("r")
        ran = await workshop.finished(engine)
    assert ran.result.final_output == {"name": "one"}
    assert workshop.arrivals == ["one", "one"]
    assert len([entry for entry in ran.journals["r"] if isinstance(entry.body, Recorded)]) == 1


async def test_an_error_in_a_condition_fails_the_branch(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow(
            """
            - name: pick
              type: branch
              options:
                - {when: inputs.o.x == 1, step: {name: one, type: python, action: put, kwargs: {text: one}}}
                - {step: {name: two, type: python, action: put, kwargs: {text: two}}}
            """,
            "inputs: {o: {type: object}}",
        ),
        {"o": {}},
    )
    assert "'x'" in (ran.step("pick").error or "")
    assert [one.path for one in ran.result.step_results] == ["pick"]
    assert ran.effects == []


async def test_an_option_that_fails_fails_the_branch(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: pick
          type: branch
          options: [{step: {name: one, type: python, action: boom, kwargs: {say: oh no}}}]
        """)
    )
    assert [(one.path, one.status) for one in ran.result.step_results] == [
        ("pick/one", "failed"), ("pick", "failed"),
    ]  # fmt: skip
    assert "oh no" in (ran.step("pick").error or "")
    done = [(one.step_path, one.success) for one in ran.told(StepCompleted)]
    assert done == [("pick/one", False), ("pick", False)]


async def test_an_option_that_is_passed_over_leaves_a_branch_that_is_not(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: pick
          type: branch
          options: [{step: {name: one, type: python, action: put, when: "false", kwargs: {text: a}}}]
        - {name: after, type: python, action: give, kwargs: {value: "${{ steps.pick.status }}"}}
        - {name: bad, type: python, action: boom}
        """)
    )
    assert [(one.path, one.status, one.output) for one in ran.result.step_results[:3]] == [
        ("pick/one", "skipped", None), ("pick", "ok", None), ("after", "ok", "ok"),
    ]  # fmt: skip
    skipped = {one.step_path: one.skipped for one in ran.told(StepCompleted)}
    assert (skipped["pick/one"], skipped["pick"]) == (True, False)
    assert ran.effects == []  # nothing to take off


NESTED = """
- name: outer
  type: branch
  options:
    - when: inputs.n > 0
      step:
        name: inner
        type: branch
        options:
          - {when: inputs.n == 1, step: {name: leaf, type: python, action: put, kwargs: {text: leaf}}}
    - {step: {name: other, type: python, action: give}}
"""


async def test_a_branch_may_choose_a_branch(workshop: Workshop) -> None:
    ran = await workshop.run(flow(NESTED, HEAD), {"n": 1})
    assert [(one.path, one.step_type) for one in ran.result.step_results] == [
        ("outer/inner/leaf", "python"), ("outer/inner", "branch"), ("outer", "branch"),
    ]  # fmt: skip
    assert ran.result.final_output == {"text": "leaf", "number": 1}
    assert [one.step_path for one in ran.told(StepStarted)] == ["outer", "outer/inner", "outer/inner/leaf"]
    assert [one.step_path for one in ran.told(StepCompleted)] == ["outer/inner/leaf", "outer/inner", "outer"]


async def test_an_inner_branch_of_which_no_option_holds_gives_null(workshop: Workshop) -> None:
    ran = await workshop.run(flow(NESTED, HEAD), {"n": 2})
    assert [(one.path, one.output) for one in ran.result.step_results] == [
        ("outer/inner", None), ("outer", None),
    ]  # fmt: skip
    assert [one.step_path for one in ran.told(StepCompleted)] == ["outer/inner", "outer"]


async def test_what_a_chosen_option_did_is_undone(workshop: Workshop) -> None:
    """D-69."""
    ran = await workshop.run(flow(NESTED + "- {name: bad, type: python, action: boom}\n", HEAD), {"n": 1})
    assert ran.effects == [("put", "leaf"), ("take", "leaf")]


async def test_an_option_may_be_a_loop(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: pick
          type: branch
          options:
            - step:
                name: again
                type: loop
                until: index == 1
                steps: [{name: a, type: python, action: put, kwargs: {text: "${{ index }}"}}]
        - {name: bad, type: python, action: boom}
        """)
    )
    assert ran.step("pick").output == [[{"text": 0, "number": 1}], [{"text": 1, "number": 2}]]
    assert {"r.again[0]", "r.again[1]"} <= set(ran.journals)
    assert ran.step("pick/again/[1]/a").status == "ok"
    assert [one.path for one in ran.result.step_results] == [
        "pick/again/[0]/a", "pick/again/[1]/a", "pick/again", "pick", "bad",
    ]  # fmt: skip
    assert {one.step_path for one in ran.told(LoopConditionChecked)} == {"pick/again"}
    assert ran.effects[2:] == [("take", 1), ("take", 0)]


async def test_an_option_may_be_a_subworkflow(workshop: Workshop) -> None:
    workshop.files["other"] = flow(
        '- {name: a, type: python, action: put, kwargs: {text: "${{ inputs.n }}"}}', HEAD, "other"
    )
    ran = await workshop.run(
        flow(
            """
            - name: pick
              type: branch
              options:
                - {step: {name: sub, type: subworkflow, workflow: other, inputs: {n: "${{ inputs.n }}"}}}
            """,
            HEAD,
        ),
        {"n": 5},
    )
    assert ran.result.final_output == {"text": 5, "number": 1}
    assert [one.path for one in ran.result.step_results] == ["pick/sub/a", "pick/sub", "pick"]
    assert set(ran.journals) == {"r", "r.sub"}


@pytest.mark.parametrize("stage", ["good", "bad"])
async def test_an_option_may_be_a_validation(workshop: Workshop, stage: str) -> None:
    ran = await workshop.run(
        flow(f"""
        - name: pick
          type: branch
          options: [{{step: {{name: check, type: validate, stages: [{stage}], must_pass: false}}}}]
        """)
    )
    assert ran.result.success
    assert ran.step("pick").output["success"] is (stage == "good")
    assert ran.step("pick/check").output == ran.step("pick").output


async def test_an_option_may_be_a_checkpoint(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("- {name: pick, type: branch, options: [{step: {name: mark, type: checkpoint}}]}")
    )
    (saved,) = ran.told(CheckpointSaved)
    assert (saved.checkpoint_id, saved.step_path) == ("mark", "pick/mark")
    assert (workshop.folder / "checkpoints" / "r" / "mark.json").exists()
