"""The program itself: its help, its version, what it costs to start, and the doctor."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from detent.cli.main import program

COMMANDS = [
    "run", "resume", "serve", "new", "flows", "check", "diagram", "steps", "playbook", "runs", "show", "why",
    "metrics", "compare", "replay", "export", "eval", "autonomy", "stats", "shadow", "release", "resolve",
    "reopen", "cancel", "fork", "purge", "doctor", "store", "models", "step", "warranty",
]  # fmt: skip


def test_help_lists_every_command_in_sections(detent):
    said = detent("--help")
    assert said.code == 0
    listed = [line.split()[0] for line in said.lines if line.startswith("  ") and line.split()]
    assert sorted(name for name in listed if name in COMMANDS) == sorted(COMMANDS)
    assert "..." not in said.out.split("COMMAND [ARGS]...")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(detent, command):
    said = detent(command, "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: detent {command} ")


@pytest.mark.parametrize(
    "group",
    [
        "warranty", "warranty registry", "warranty tickets", "warranty rollback", "playbook", "steps",
        "workflow", "autonomy", "stats", "shadow", "models",
    ],
)  # fmt: skip
def test_no_line_about_a_command_of_a_group_is_cut(detent, group):
    said = detent(*group.split(), "--help")
    assert [line for line in said.lines[1:] if line.endswith("...")] == []


def commands(group=None, lead=()):
    """Every command of the program that does something, with the words it is called by."""
    for name, command in (group or program()).commands.items():
        words = (*lead, name)
        if hasattr(command, "commands"):
            yield from commands(command, words)
        else:
            yield " ".join(words), command


LISTINGS = [
    "flows", "steps list", "workflow list", "workflow actions", "runs", "autonomy list", "models list",
    "warranty attention", "warranty registry show", "warranty tickets list",
]  # fmt: skip


def test_every_listing_takes_json_and_nothing_asks_for_it_in_another_way_alone():
    options = {name: {text for one in command.params for text in one.opts} for name, command in commands()}
    listings = {*LISTINGS, *(name for name in options if name.split()[-1] == "list")}
    assert [name for name in sorted(listings) if "--json" not in options[name]] == []
    formats = {
        name: one.help for name, command in commands() for one in command.params if "--format" in one.opts
    }
    asking = {name for name, text in formats.items() if "json" in text}
    assert sorted(asking - {name for name in options if "--json" in options[name]}) == []


def test_every_command_has_a_row_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text(encoding="utf-8")
    rows = [re.split(r"(?<!\\)\|", line)[1] for line in page.splitlines() if line.startswith("| `")]
    named = {text for row in rows for text in re.findall(r"`([^`]*)`", row)}
    missing = [
        name
        for name, _ in commands()
        if not any(text == name or text.startswith(f"{name} ") for text in named)
    ]
    assert missing == []


def test_asking_for_nothing_shows_the_help(detent):
    said = detent()
    assert said.code == 2
    assert "Start work:" in said.out


def test_the_version(detent):
    assert detent("--version").out == "detent 0.1.0\n"


def test_a_command_may_follow_two_dashes(detent):
    assert detent("--", "runs", "--help").out == detent("runs", "--help").out


def test_help_loads_nothing_heavy():
    script = (
        "import sys\nfrom detent.cli.main import run\nrun(['--help'])\n"
        "heavy = {'asyncio', 'pydantic', 'rich', 'sqlite3', 'structlog', 'yaml', 'detent.engine.engine',\n"
        "         'detent.kernel.entries', 'importlib.metadata'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_python_m_detent_is_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "detent", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "detent 0.1.0\n"


def test_the_doctor_finds_nothing_wrong(detent, folder, started):
    assert "none yet; `detent run` makes one" in detent("doctor").out
    started()
    said = detent("doctor", "--deep")
    assert said.code == 0, said.out
    assert said.lines[-1] == "ok: nothing is wrong."
    report = detent("doctor", "--json").json
    assert report["healthy"] is True
    assert report["store"]["statuses"] == {"succeeded": 1}
    assert report["not_looked_at"] == ["Journals and the store's files were not read through: --deep does."]
    assert {"local", "mcp", "models", "postgres", "providers", "telemetry"} <= set(report["extras"])


def test_the_doctor_tells_what_is_wrong_and_the_rest_all_the_same(detent, folder):
    (folder / "detent.yaml").write_text("plugins: [gone.py]\n")
    said = detent("doctor")
    assert said.code == 2
    assert "  There is no file gone.py." in said.lines
    assert any("typer" in line for line in said.lines)
    (folder / "detent.yaml").write_text("store: gone/x.db\n")
    assert detent("doctor", "--json").json["healthy"] is False


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_made_alone_is_the_same_as_among_all(detent, capsys, command):
    alone = detent(command, "--help").out
    program()(args=[command, "--help"], prog_name="detent", standalone_mode=False)
    assert capsys.readouterr().out == alone


def test_a_command_that_is_none_is_told_the_nearest_of_all(detent):
    said = detent("shwo")
    assert said.code == 2
    assert "show" in said.err
