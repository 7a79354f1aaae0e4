"""What run, show, why and the report say of ends, further steps, verdicts and agents that were replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

ENDING = '''
from pathlib import Path

from detent import Effect, Flow, Hold, Machine, Status, ToolError, tool


@tool("report.write")
def write(text: str) -> None:
    """Write the report."""
    if Path("full").exists():
        raise ToolError("disk_full", "no room for the report")
    Path("report.txt").write_text(text)


def work(ctx):
    return Hold("ok", question="Go on?", choices=["yes"]) if not ctx.answered("ok") else "done"


table = Machine("ending", start="work", moves={"work": ["done"]}, ends={"done": Status.SUCCEEDED})
def report(ending):
    yield Effect("report.write", {"text": ending.status.value})


flow = Flow(table, {"work": work}, tools=[write], at_end=report)
'''


class TestEffectsAtTheEnd:
    @pytest.fixture(autouse=True)
    def ending(self, folder: Path) -> None:
        (folder / "ending.py").write_text(ENDING)
        (folder / "detent.yaml").write_text("plugins: [ending.py]\n")

    def test_nobody_has_changed_anything(self, detent):
        detent("run", "ending", "--id", "r1")
        assert detent("cancel", "r1").code == 0
        show = detent("show", "r1").out
        assert "changed it to" not in show
        assert "to do before the run ends cancelled: report.write" in show
        assert "(end)" not in show
        assert "ended cancelled: cancelled" not in show

    def test_one_that_failed_is_no_doubt_and_is_tried_again(self, detent, folder, token):
        (folder / "full").touch()
        detent("run", "ending", "--id", "r1")
        said = detent("release", "r1", "yes", "--hold", token("r1"))
        assert "'report.write' failed at the end of the run. Try again?" in said.out
        assert "disk_full: no room for the report" in said.out
        assert "  detent resolve r1 again --hold" in said.out
        assert "happened" not in said.out
        show = detent("show", "r1").out
        assert show.count("error: disk_full: no room for the report") == 1
        assert "in doubt" not in show
        refused = detent("resolve", "r1", "happened", "--hold", token("r1"))
        assert refused.code == 2
        assert "'report.write' failed, so it did not happen. Say again or skip." in refused.err
        (folder / "full").unlink()
        again = detent("resolve", "r1", "again", "--hold", token("r1"), "--by", "ann")
        assert again.code == 0, again.err
        assert "in doubt" not in again.out
        assert (folder / "report.txt").read_text() == "succeeded"


FLOW = """
name: greet
version: "1.0"
steps:
  - {name: say, type: python, action: log_message, kwargs: {message: hello}}
"""


def test_workflow_run_says_who_performed_a_step(detent, folder):
    (folder / "greet.yaml").write_text(FLOW)
    (folder / "detent.yaml").write_text("steps: {say: {mode: agent}}\n")
    said = detent("workflow", "run", "greet.yaml")
    assert said.code == 0, said.err
    assert "· handler, not the agent: no model to ask" in said.out
