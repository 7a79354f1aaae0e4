"""The pages about playbooks show files that run, and explain every key and code."""

from __future__ import annotations

import re
from pathlib import Path

from detent.authoring.model import keys_of
from detent.flows.playbook.folder import Manifest
from detent.flows.playbook.reading import KEYS
from tests.flows.playbook.bench import PARCELS

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "playbooks.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "playbook-files.md").read_text(encoding="utf-8")


def test_every_file_shown_is_the_sample_that_the_tests_run():
    shown = re.findall(r"^`([\w./-]+)`\n```\w+\n(.*?)\n```$", GUIDE, re.DOTALL | re.MULTILINE)
    assert {name for name, _ in shown} >= {f"steps/{path.name}" for path in PARCELS.glob("steps/*.md")}
    for name, text in shown:
        assert text == (PARCELS / name).read_text(encoding="utf-8").rstrip("\n"), name


def test_every_key_and_every_code_is_explained():
    for key in (*KEYS, *keys_of(Manifest)):
        assert f"`{key}`" in REFERENCE or key == "trigger", key
    for number in range(1, 23):
        assert f"| P{number:02} |" in REFERENCE
