"""The page about notebooks: its tables are those of the program."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from detent.flows.notebook.commands.group import group
from detent.flows.notebook.commands.run import run
from detent.flows.notebook.roles.role import ROLES
from detent.flows.notebook.settings import NotebookSettings

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "notebook.md").read_text("utf-8")


def test_every_setting_is_on_the_page_with_its_default():
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", PAGE.partition("## Settings")[2], re.MULTILINE)
    listed = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(listed) == set(NotebookSettings.model_fields)
    for name, field in NotebookSettings.model_fields.items():
        if isinstance(field.default, int | float | str) and not isinstance(field.default, bool):
            assert (
                f"{field.default:g}" if not isinstance(field.default, str) else field.default in listed[name]
            )


def test_every_command_and_every_option_of_its_own_is_on_the_page():
    commands = get_command(group).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"`notebook {name}" not in PAGE] == []
    assert [name for name in commands if f"notebook {name}" not in (DOCS / "cli.md").read_text("utf-8")] == []
    own = {"problem", "problem_file", "file", "target", "keep", "split", "out", "trace", "title", "profile"}
    own |= {"no_report", "no_verify", "mode", "autonomy", "max_transitions", "until", "transitions"}
    assert own <= set(run.__signature__.parameters)  # type: ignore[attr-defined]
    assert [name for name in own if f"--{name.replace('_', '-')}" not in PAGE] == []


def test_every_role_is_on_the_page():
    assert [name for name in ROLES if f"`notebook/{name}`" not in PAGE] == []
