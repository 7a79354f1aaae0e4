"""W-67: what is written about the mailbox is kept true by tests."""

from pathlib import Path

from detent.apps.warranty.flow import shipped
from detent.flows.playbook.drawing import draw_playbook
from detent.flows.playbook.playbook import read_playbook
from detent.runtime.plugs import Drawing

ROOT = Path(__file__).parents[3]


def test_the_drawing_is_that_of_the_step_files():
    playbook, problems = read_playbook(shipped())
    assert not problems
    drawn = draw_playbook(playbook, Drawing(page=True))
    assert (shipped() / "WORKFLOW.md").read_text(encoding="utf-8") == drawn


def test_the_pages_are_there_and_name_what_they_should():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "detent run warranty" in readme
    routing = (ROOT / "docs/playbooks.md").read_text(encoding="utf-8")
    assert "How step routing works" in routing
    page = "".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("warranty.md", "warranty-operating.md")
    )
    for command in ("init", "attention", "retry", "stats", "rollback"):
        assert f"warranty {command}" in page or f"`{command}" in page, command
