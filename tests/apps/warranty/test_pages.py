"""W-67: what is written about the mailbox is kept true by tests."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detent.apps.warranty.flow import shipped
from detent.apps.warranty.settings import HEADINGS
from detent.authoring.heading import heading_keys
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
    routing = (ROOT / "docs/concepts/step-routing.md").read_text(encoding="utf-8")
    assert "How step routing works" in routing
    page = "".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("warranty.md", "warranty-operating.md")
    )
    for command in ("init", "attention", "retry", "stats", "rollback"):
        assert f"warranty {command}" in page or f"`{command}" in page, command


def test_every_setting_has_a_row():
    page = (ROOT / "docs/warranty-settings.md").read_text(encoding="utf-8")

    def missing(keys: Mapping[str, Any], path: str) -> list[str]:
        found = []
        for key, inner in keys.items():
            if inner:
                found += missing(inner, f"{path}.{key}")
            elif not re.search(rf"^\|[^|]*`[\w.]*\b{key}`", page, re.MULTILINE) and f"{key}:" not in page:
                found.append(f"{path}.{key}")
        return found

    known = {name: heading_keys(model) for name, model in HEADINGS.items()}
    assert missing(known, "") == []
