"""Looking at a project that is not trusted runs nothing of it and opens no store outside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.untrusted import PLUGIN, foreign, stranger

__all__ = ["foreign", "stranger"]


LOOKING = [
    ("flows",),
    ("check",),
    ("check", "greet"),
    ("doctor",),
    ("runs",),
    ("runs", "--json"),
    ("steps", "list"),
    ("steps", "show", "greet/say"),
    ("diagram", "greet"),
    ("show", "some-run"),
    ("why", "some-run"),
    ("metrics",),
    ("workflow", "list"),
    ("workflow", "show", "greet"),
    ("workflow", "validate"),
    ("workflow", "validate", "greet"),
    ("workflow", "viz", "greet"),
    ("workflow", "actions"),
    ("workflow", "schema"),
    ("playbook", "check", "desk"),
    ("playbook", "diagram", "desk"),
    ("autonomy", "report"),
    ("autonomy", "list"),
    ("warranty", "stats"),
    ("warranty", "attention"),
    ("warranty", "tickets", "list"),
    ("warranty", "tickets", "show", "TKT-1"),
    ("warranty", "registry", "show", "SN48213"),
    ("warranty", "rollback", "status"),
    ("warranty", "ab", "some-experiment"),
    ("trust", "--show"),
    ("--help",),
    ("workflow", "--help"),
]


RUNNING = [
    ("run", "greet"),
    ("workflow", "run", "greet"),
    ("workflow", "run", "commit-and-push"),
    ("run", "playbook", "desk"),
    ("resume", "--all"),
    ("serve",),
    ("eval",),
    ("playbook", "step", "desk", "01-begin"),
    ("shadow", "replay", "some-run"),
    ("run", "warranty", "--once"),
    ("warranty", "retry", "some-mail"),
    ("warranty", "rollback", "trip"),
    ("warranty", "purge"),
    ("warranty", "registry", "import", "devices.csv"),
]


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_looking_at_a_strangers_project_executes_nothing_of_it(stranger, detent, command):
    said = detent(*command)
    assert not (stranger / "MARKER").exists()
    assert "Unexpected" not in said.err


def test_looking_says_in_one_line_what_was_left_out(stranger, detent):
    said = detent("workflow", "list")
    assert said.code == 0
    assert "greet" in said.out
    assert said.err == (
        "This project is not trusted, so its plugins (shop_plugin.py) and programs (mcp.docs) are left out. "
        "To look and trust: detent trust\n"
    )


@pytest.mark.parametrize("command", RUNNING, ids=" ".join)
def test_running_in_a_strangers_project_is_refused_with_the_command_to_use(stranger, detent, command):
    said = detent(*command)
    assert said.code == 2
    assert "is not trusted: nothing of it runs before you have looked at it." in said.err
    assert "detent trust" in said.err
    assert not (stranger / "MARKER").exists()


def a_store_elsewhere(stranger: Path, detent) -> Path:
    """A store of the user's own, outside the project, that others may read."""
    store = stranger.parent / f"{stranger.name}-mine" / "mine.db"
    store.parent.mkdir()
    assert detent("run", "flow.py", "--store", str(store), "--config", str(blank(stranger))).code == 0
    store.chmod(0o644)
    return store


def blank(folder: Path) -> Path:
    """Settings that say nothing, in a folder where nothing else lies."""
    file = folder.parent / f"{folder.name}-blank" / "detent.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    return file


def seen(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file of a folder: its rights, when it was written, and what is in it."""
    return {
        one.name: (one.stat().st_mode, one.stat().st_mtime_ns, one.read_bytes()) for one in folder.iterdir()
    }


OPENING = [
    ("runs",),
    ("runs", "--json"),
    ("show", "some-run"),
    ("why", "some-run"),
    ("metrics",),
    ("compare", "one", "other"),
    ("export", "some-run"),
    ("diagram", "some-run"),
    ("workflow", "viz", "greet", "--run", "some-run"),
    ("autonomy", "report"),
    ("autonomy", "list"),
    ("store", "check"),
    ("store", "backup", "copy.db"),
    ("doctor",),
    ("doctor", "--deep"),
]


@pytest.fixture
def elsewhere(stranger: Path, detent, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store outside the project that the project's settings name."""
    monkeypatch.setenv("DETENT_TRUST", "all")
    store = a_store_elsewhere(stranger, detent)
    monkeypatch.delenv("DETENT_TRUST")
    with (stranger / "detent.yaml").open("a") as out:
        out.write(f"store: sqlite:{store}\n")
    return store


@pytest.mark.parametrize("command", OPENING, ids=" ".join)
def test_looking_changes_no_store_outside_a_strangers_project(stranger, elsewhere, detent, command):
    before = seen(elsewhere.parent)
    said = detent(*command)
    assert seen(elsewhere.parent) == before
    assert said.code == 2
    assert (
        f"The store {elsewhere} is outside the project in {stranger}, which is not trusted, so it is not "
        f"opened. Name the store yourself (--store), or trust the project: detent trust"
    ) in " ".join((said.out + said.err).split())
    assert "nothing of it runs" not in said.out + said.err


def test_a_store_outside_a_strangers_project_is_opened_when_the_user_names_it(stranger, elsewhere, detent):
    assert detent("runs", "--store", str(elsewhere)).code == 0
    assert detent("store", "check", "--store", str(elsewhere)).code == 0


def test_a_strangers_link_in_place_of_the_usual_store_is_not_opened(stranger, elsewhere, detent):
    settings = (stranger / "detent.yaml").read_text()
    (stranger / "detent.yaml").write_text(settings.replace(f"store: sqlite:{elsewhere}\n", ""))
    (stranger / ".detent/detent.db").symlink_to(elsewhere)
    before = seen(elsewhere.parent)
    for command in (("runs",), ("store", "check"), ("doctor", "--deep")):
        assert detent(*command).code == 2
    assert seen(elsewhere.parent) == before


def test_a_store_outside_a_project_that_has_changed_is_not_opened(stranger, elsewhere, detent):
    detent("trust", "--yes")
    assert detent("runs").code == 0
    (stranger / "helpers.py").write_text("")
    said = detent("runs")
    assert said.code == 2
    assert f"is outside the project in {stranger}, which has changed since it was trusted, so it" in said.err


def test_a_store_that_is_not_there_is_not_looked_for_outside_a_strangers_project(stranger, detent):
    (stranger / "detent.yaml").write_text("store: sqlite:/nowhere/at/all.db\n")
    for command in (("store", "check"), ("runs",)):
        assert "is outside the project in" in detent(*command).err


PARTS = """
version: "1.0"
name: parts
description: Names whatever a plugin can bring.
steps:
  - {name: shout, type: python, action: shout, args: [hello], kwargs: {loud: true}, rollback: whisper,
     requires: [megaphone, command:git], config: {mode: agent, allowed_tools: [horn.blow]}}
  - {name: ask, type: agent, agent: herald, context: town}
  - {name: write, type: generate, generator: poem, context: {about: spring}}
  - {name: look, type: validate, stages: [house, test]}
"""


@pytest.fixture
def parts(stranger: Path) -> Path:
    """A stranger's workflow that names what only the plugin has, and settings about them."""
    (stranger / ".detent/workflows/parts.yaml").write_text(PARTS)
    settings = (stranger / "detent.yaml").read_text()
    (stranger / "detent.yaml").write_text(
        settings.replace("mcp:", "  shop-flow/pack: {mode: agent}\n  pack: {mode: agent}\nmcp:")
        + "agents: {herald: {provider: theirs}}\n"
    )
    return stranger


@pytest.mark.parametrize(
    "command",
    [
        ("steps", "list"),
        ("steps", "show", "workflow/parts/shout"),
        ("steps", "show", "parts/shout"),
        ("workflow", "validate", "parts"),
        ("workflow", "validate", "--all"),
        ("workflow", "show", "parts"),
        ("workflow", "viz", "parts"),
        ("check", "parts"),
        ("diagram", "parts"),
    ],
    ids=" ".join,
)
def test_what_a_plugin_would_bring_is_no_mistake_where_the_plugin_is_left_out(parts, detent, command):
    said = detent(*command)
    assert said.code == 0
    assert "its plugins (shop_plugin.py)" in said.err
    for wrong in ("there is no", "There is no", "Did you mean", "E0", "would be sent"):
        assert wrong not in said.out + said.err
    assert not (parts / "MARKER").exists()


def test_steps_of_a_strangers_workflow_are_listed_with_what_is_left_out(parts, detent):
    rows = {row["step"]: row for row in detent("steps", "list", "--json").json}
    for name in ("shout", "ask", "write"):
        assert rows[f"workflow/parts/{name}"]["intent"] == "(its plugin is left out)"
    assert rows["workflow/greet/say"]["intent"]


def test_mistakes_that_no_plugin_could_mend_are_still_reported(parts, detent):
    text = (parts / ".detent/workflows/parts.yaml").read_text()
    (parts / ".detent/workflows/parts.yaml").write_text(
        text.replace("[hello]", '["${{ inputs.nobody }}"]').replace("command:git", "'command:'")
    )
    with (parts / "detent.yaml").open("a") as out:
        out.write("budget: {steps: 3}\n")
    said = detent("workflow", "validate", "parts")
    assert said.code == 2
    assert "E007 there is no input 'nobody'." in said.out
    assert "E014 prerequisite 'command' needs an argument" in said.out


def test_a_name_that_is_not_found_may_be_in_a_plugin_that_is_left_out(parts, detent):
    for command in (("steps", "show", "pack"), ("check", "shop-flow"), ("diagram", "shop-flow")):
        said = detent(*command)
        assert said.code == 2
        assert "It may be in a plugin that is left out: shop_plugin.py." in said.out + said.err


def test_the_doctor_does_not_call_runs_stuck_whose_plugin_is_left_out(stranger, detent):
    (stranger / "shop_plugin.py").write_text(PLUGIN + SHOP_FLOW)
    detent("trust", "--yes")
    assert detent("run", "shop-flow", "--json").json["status"] == "waiting"
    detent("trust", "--revoke")
    said = detent("doctor", "--json")
    assert not any("unable to go on" in need["what"] for need in said.json["needs"])
    assert any("not trusted" in one for one in said.json["not_looked_at"])


SHOP_FLOW = """
from detent import Flow, Hold, Machine, Outcome, Status


def wait(ctx):
    return Hold("approval")


shop = Flow(
    Machine("shop-flow", start="wait", moves={"wait": ["done"]}, ends={"done": Status.SUCCEEDED}),
    {"wait": wait},
)
"""
