"""What agents did is undone: by what the receipts say of it, also where their step never came to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from detent.dispatch.autonomy import StepMode
from detent.dispatch.executor import ExecutorResult
from detent.kernel.status import Status
from tests.flows.workflow.actions.agents import SENSIBLE, Asked, Behaviour, Workers
from tests.flows.workflow.dispatch.project import Project, Ran

TRUSTED = ("consultant", "approver")
CRASH = {"*": [{"error": "crash", "repeat": True}]}


async def by_agents(
    project: Project, name: str, level: str, acting: Mapping[str, Behaviour], **inputs: Any
) -> Ran:
    """Run a workflow whose steps of these names are performed by agents."""
    steps = {step: {"mode": "agent", "autonomy": level, "max_retries": 0} for step in acting}
    project.settings(steps=steps)
    return await project.run(name, inputs, executor=Workers(CRASH, acting))


def falling_silent(behaviour: Behaviour) -> Behaviour:
    """Does what another does, and fails as soon as something is done."""

    def behave(asked: Asked) -> Any:
        reply = behaviour(asked)
        if asked.results and (asked.missing is not None or isinstance(reply, Mapping)):
            raise RuntimeError("the model is gone")
        return reply

    return behave


MEND = """
name: mending
steps:
  - {name: work, type: python, action: apply_fixes, kwargs: {stages: [lint]}}
  - {name: fail, type: python, action: break_down}
"""
MOVE = """
name: moving
steps:
  - {name: work, type: python, action: move_file, kwargs: {source: a.txt, target: b.txt}}
"""

# -- steps that came to their end ---------------------------------------------------------------------------

WRITE = """
name: writing
steps:
  - {name: work, type: python, action: write_file, kwargs: {path: a.txt, text: new}}
  - {name: fail, type: python, action: break_down}
"""


@pytest.mark.parametrize("level", TRUSTED)
async def test_a_file_that_an_agent_wrote_elsewhere_is_taken_away_again(project, level):
    """Its output names the file that was written, not the one that was asked for."""
    project.workflow(WRITE)
    (project.folder / "a.txt").write_text("old")

    def elsewhere(asked: Asked) -> Any:
        return [("files.write", {"path": "b.txt", "text": "new"})]

    ran = await by_agents(project, "writing", level, {"work": elsewhere})
    assert ran.run.status is Status.FAILED
    assert ran.dispatch("work").mode_used is StepMode.AGENT
    assert ran.result.rollback_errors == ()
    assert not (project.folder / "b.txt").exists()
    assert (project.folder / "a.txt").read_text() == "old"


@pytest.mark.parametrize("level", TRUSTED)
async def test_whatever_an_agent_did_beside_what_its_output_names_is_undone_too(project, level):
    """It wrote two files where code writes one, and the output has room for one."""
    project.workflow(WRITE)
    (project.folder / "a.txt").write_text("old")

    def both(asked: Asked) -> Any:
        return [("files.write", {"path": path, "text": "new"}) for path in ("a.txt", "b.txt", "c.txt")]

    ran = await by_agents(project, "writing", level, {"work": both})
    assert ran.output("work")["path"] == "c.txt"
    assert [tool for tool, _ in ran.effects] == ["files.write"] * 3 + ["files.restore"] * 3
    assert ran.result.rollback_errors == ()
    assert (project.folder / "a.txt").read_text() == "old"
    assert not (project.folder / "b.txt").exists()
    assert not (project.folder / "c.txt").exists()


@pytest.mark.parametrize("level", TRUSTED)
async def test_files_that_an_output_lists_are_undone_together(project, level):
    project.workflow(MEND)

    def mends(asked: Asked) -> Any:
        if asked.results:
            return {"changed_files": [], "applied": []}
        return [("files.write", {"path": path, "text": "new"}) for path in ("a.txt", "b.txt")]

    ran = await by_agents(project, "mending", level, {"work": mends})
    assert ran.output("work") == {"changed_files": ["a.txt", "b.txt"], "applied": []}
    assert [tool for tool, _ in ran.effects] == ["files.write", "files.write", "files.restore"]
    assert not list(project.folder.glob("*.txt"))


@pytest.mark.parametrize("level", ["collaborator", *TRUSTED])
async def test_what_its_output_names_is_undone_once(project, level):
    project.workflow(MOVE + "  - {name: fail, type: python, action: break_down}\n")
    (project.folder / "a.txt").write_text("words")
    ran = await by_agents(project, "moving", level, {"work": SENSIBLE["move_file"]})
    assert ran.dispatch("work").mode_used is StepMode.AGENT
    assert [tool for tool, _ in ran.effects] == ["files.write", "files.delete", "files.restore"]
    assert (project.folder / "a.txt").read_text() == "words"
    assert not (project.folder / "b.txt").exists()


# -- steps that did not -------------------------------------------------------------------------------------

REPLACE = """
name: replacing
steps:
  - {name: work, type: python, action: replace_text, kwargs: {path: a.txt, find: old, replace: new}}
"""


@pytest.mark.parametrize("place", ["in the file", "in a loop"])
@pytest.mark.parametrize("level", TRUSTED)
async def test_what_an_agent_did_before_it_failed_is_undone(project, level, place):
    """It did what the code would not have done, so the step fails, and the effect is taken back."""
    text = REPLACE
    if place == "in a loop":
        step = text.partition("  - ")[2].strip()
        text = f'name: replacing\nsteps:\n  - {{name: each, type: loop, for_each: "[1]", steps: [{step}]}}\n'
    project.workflow(text)
    (project.folder / "a.txt").write_text("old words")

    def writes_something_else(asked: Asked) -> Any:
        return [("files.write", {"path": "a.txt", "text": "something else"})]

    ran = await by_agents(project, "replacing", level, {"work": falling_silent(writes_something_else)})
    assert ran.run.status is Status.FAILED
    assert [tool for tool, _ in ran.effects] == ["files.write", "files.restore"]
    assert ran.result.rollback_errors == ()
    assert (project.folder / "a.txt").read_text() == "old words"


@pytest.mark.parametrize("level", TRUSTED)
async def test_two_effects_that_an_agent_swapped_are_undone(project, level):
    """The file is removed, and then there is nothing to copy."""
    project.workflow(MOVE)
    (project.folder / "a.txt").write_text("words")

    def swapped(asked: Asked) -> Any:
        source = asked.inputs["source"]
        return [("files.delete", {"path": source}), ("files.write", {"path": "b.txt", "source": source})]

    ran = await by_agents(project, "moving", level, {"work": swapped})
    assert ran.run.status is Status.FAILED
    assert (project.folder / "a.txt").read_text() == "words"
    assert not (project.folder / "b.txt").exists()


@pytest.mark.parametrize("level", ["collaborator", *TRUSTED])
async def test_after_half_of_a_move_the_handler_does_the_other(project, level):
    """What the agent did is what code would do: nothing is repeated, and nothing need be undone."""
    project.workflow(MOVE)
    (project.folder / "a.txt").write_text("words")

    def stops(asked: Asked) -> Any:
        if asked.results:
            raise RuntimeError("the model is gone")
        return SENSIBLE["move_file"](asked)

    ran = await by_agents(project, "moving", level, {"work": stops})
    if level == "collaborator":
        assert ran.run.status is Status.SUCCEEDED, ran.result.error
        assert ran.effects == [("files.write", "performed"), ("files.delete", "performed")]
        assert (project.folder / "b.txt").read_text() == "words"
        assert not (project.folder / "a.txt").exists()
        return
    # Code was not run before the effect, and cannot look at the world of then any more: all is undone.
    assert ran.run.status is Status.FAILED
    assert (project.folder / "a.txt").read_text() == "words"
    assert not (project.folder / "b.txt").exists()


async def test_a_run_cancelled_between_two_rounds_is_undone(project):
    project.workflow(MOVE)
    (project.folder / "a.txt").write_text("words")
    project.settings(steps={"work": {"mode": "agent", "autonomy": "approver", "max_retries": 0}})
    asked_again = asyncio.Event()

    class Waiting(Workers):
        async def execute(self, *, prompt: Any, **options: Any) -> ExecutorResult:
            if "\n\nRESULTS\n" in str(prompt):
                asked_again.set()
                await asyncio.Event().wait()
            return await super().execute(prompt=prompt, **options)

    async def cancel() -> None:
        await asked_again.wait()
        assert (project.folder / "b.txt").exists()
        await project.engines[-1].cancel("r", undo=True)

    cancelling = asyncio.ensure_future(cancel())
    ran = await project.run("moving", executor=Waiting(CRASH, {"work": SENSIBLE["move_file"]}), run_id="r")
    await cancelling
    assert ran.run.status is Status.CANCELLED
    assert not (project.folder / "b.txt").exists()
