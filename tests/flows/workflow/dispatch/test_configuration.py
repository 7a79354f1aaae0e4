"""What configures Detent is never an agent's to write, at any level: however the path is spelt, whatever the
tool, and also where an agent's answer reaches a step of code."""

from __future__ import annotations

import os
import subprocess

import pytest

from detent.adapters.project import project_tools
from detent.dispatch.autonomy import FallbackReason
from detent.engine.tools import EffectCall, ToolError
from detent.kernel.status import Status
from detent.runtime.trust import Trust

LEVELS = ("collaborator", "consultant", "approver")
WRITE = """
name: tidy
steps:
  - {name: write, type: python, action: write_file, kwargs: {path: notes.txt, text: code}}
"""
CALLING = """
name: caller
steps:
  - {name: below, type: subworkflow, workflow: ../../lib/below.yaml}
  - {name: kind, type: python, action: log_message, kwargs: {message: hi},
     config: {prompt_file: ../../prompts/kind.md}}
"""
BELOW = """
version: "1.0"
name: below
steps:
  - {name: later, type: subworkflow, workflow: ./not_yet.yaml}
"""
HELPER = "ROOMS = 3\n"

GUARDED = [
    "detent.yaml",
    "./detent.yaml",
    "rooms/../detent.yaml",
    ".detent/../detent.yaml",
    "DETENT.YAML",
    "Detent.Yaml",
    "detent.yaml.",
    "detent\u200b.yaml",
    "ｄetent.yaml",
    "config.yaml",
    "acts.py",
    "helper.py",
    "__pycache__/acts.cpython-311.pyc",
    "rooms/__pycache__/x.pyc",
    ".detent/workflows/tidy.yaml",
    ".detent/workflows/new.yaml",
    ".DETENT/workflows/new.yaml",
    ".detent/detent.db",
    "playbooks/desk/steps/01-new.md",
    "Playbooks/desk/playbook.yaml",
    "instructions/steps/01-new.md",
    "evals/case.yaml",
    "evals",
    "linked/tidy.yaml",
    "link.yaml",
    "hard.yaml",
    "optional_extra.py",
    "optional_extra/__init__.py",
    "optional_extra.abi3.so",
    "helper/__init__.py",
    "helper.so",
    "rooms/fast.pyd",
    "lib/below.yaml",
    "lib/not_yet.yaml",
    "prompts/kind.md",
]
FREE = ["notes.txt", "rooms/detent.yaml", "src/app.py", "my-config.yaml", "rooms/list.csv", "detent.yaml.bak"]


@pytest.fixture
def hotel(project):
    """A project whose plugin imports a module of its own, with links to what configures it."""
    acts = (project.folder / "acts.py").read_text()
    lines = "import helper\ntry:\n    import optional_extra\nexcept ImportError:\n    pass\n"
    (project.folder / "acts.py").write_text(f"{acts}\n{lines}")
    (project.folder / "helper.py").write_text(HELPER)
    project.workflow(WRITE)
    project.workflow(CALLING)
    (project.folder / "lib").mkdir()
    (project.folder / "lib/below.yaml").write_text(BELOW)
    (project.folder / "rooms").mkdir()
    (project.folder / "linked").symlink_to(project.folder / ".detent/workflows")
    (project.folder / "link.yaml").symlink_to("detent.yaml")
    return project


def configured(hotel, level):
    config = {"mode": "agent", "autonomy": level, "max_retries": 0}
    file = hotel.settings(steps={"write": config}, plugins=["acts.py"])
    if not (hotel.folder / "hard.yaml").exists():
        os.link(file, hotel.folder / "hard.yaml")
    return file.read_bytes()


def wanting(tool, **args):
    return {"write": [{"output": {"calls": [{"tool": tool, "args": args}]}, "repeat": True}]}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", ["detent.yaml", "helper.py", ".detent/workflows/tidy.yaml"])
async def test_an_agent_that_writes_configuration_is_not_followed_at_any_level(hotel, level, path):
    before = configured(hotel, level)
    evil = "plugins: [evil.py]\n"
    ran = await hotel.run("tidy", script=wanting("files.write", path=path, text=evil))
    assert ran.run.status is Status.SUCCEEDED
    assert (hotel.folder / "detent.yaml").read_bytes() == before
    assert evil not in (hotel.folder / path).read_text()
    assert (hotel.folder / "notes.txt").read_text() == "code"
    dispatch = ran.dispatch("write")
    assert dispatch.fallback_reason is FallbackReason.SCHEMA_VIOLATION
    assert "only a person may change it" in str(dispatch.to_plain())


@pytest.fixture
def tools(hotel):
    configured(hotel, "approver")
    found = {tool.name: tool for tool in hotel.open().tools}
    return found


@pytest.mark.parametrize("path", GUARDED)
def test_no_spelling_of_a_path_leads_an_agent_to_what_configures_detent(hotel, tools, path):
    call = EffectCall("r", "k", 1, by="agent")
    before = (hotel.folder / "detent.yaml").read_bytes()
    assert tools["files.write"].misfits({"path": path, "text": "x"}) == [
        "/path: configures or runs Detent itself; only a person may change it"
    ]
    assert tools["files.delete"].misfits({"path": path})
    assert tools["files.restore"].misfits({"paths": ["notes.txt", path]})
    assert tools["db.upsert"].misfits({"database": path, "table": "t", "key": "k", "batch": {}})
    for perform in (
        lambda: tools["files.write"].perform(call, path=path, text="x"),
        lambda: tools["files.delete"].perform(call, path=path, missing_ok=True),
        lambda: tools["files.restore"].perform(call, paths=[path]),
    ):
        with pytest.raises(ToolError, match=r"protected|invalid|folder"):
            perform()
    assert (hotel.folder / "detent.yaml").read_bytes() == before


@pytest.mark.parametrize("path", FREE)
def test_other_files_stay_an_agents_to_write(hotel, tools, path):
    call = EffectCall("r", "k", 1, by="agent")
    assert tools["files.write"].misfits({"path": path, "text": "x"}) == []
    assert tools["files.write"].perform(call, path=path, text="x")["bytes"] == 1


def test_code_of_the_project_writes_what_its_workflow_names(hotel, tools):
    tools["files.write"].perform(EffectCall("r", "k", 1), path="config.yaml", text="x")
    assert (hotel.folder / "config.yaml").read_text() == "x"


@pytest.mark.parametrize("action", ["write_file", "put_file"])
async def test_a_step_of_code_does_not_write_configuration_with_an_agents_words(hotel, action):
    """Whether the handler proposes the effect or has it performed at once."""
    hotel.workflow(
        f"""
name: two
steps:
  - {{name: write, type: python, action: give_text, kwargs: {{text: hello}}}}
  - {{name: put, type: python, action: {action},
     kwargs: {{path: config.yaml, text: "${{{{ steps.write.output.text }}}}"}}}}
"""
    )
    acts = (hotel.folder / "acts.py").read_text()
    (hotel.folder / "acts.py").write_text(
        f'{acts}\n\n@action("give_text", intent="Give one short text for the note of the day.")\n'
        'def give_text(text: str) -> dict:\n    return {"text": text}\n\n\n'
        '@action("put_file", intent="Put one short text into a file.", effects=["files.write"])\n'
        "async def put_file(ctx: StepContext, path: str, text: str) -> dict:\n"
        '    return await ctx.perform("files.write", path=path, text=text)\n'
    )
    configured(hotel, "approver")
    evil = {"write": [{"output": {"text": "plugins: [evil.py]"}, "repeat": True}]}
    ran = await hotel.run("two", script=evil)
    assert ran.run.status is Status.FAILED
    assert "only a person may change it" in str(ran.result)
    assert not (hotel.folder / "config.yaml").exists()


async def test_a_step_of_code_writes_configuration_that_stands_in_its_workflow(hotel):
    hotel.workflow(
        """
name: literal
steps:
  - {name: put, type: python, action: write_file, kwargs: {path: config.yaml, text: "concurrency: 3"}}
"""
    )
    configured(hotel, "approver")
    ran = await hotel.run("literal")
    assert ran.run.status is Status.SUCCEEDED
    assert (hotel.folder / "config.yaml").read_text() == "concurrency: 3"


async def test_an_agent_does_not_switch_to_a_branch_with_other_configuration(hotel, tools):
    folder = hotel.folder
    for args in (
        ["init", "-q", "-b", "main"], ["config", "user.name", "Ada"], ["config", "user.email", "a@b.example"],
        ["add", "detent.yaml"], ["commit", "-qm", "first"], ["switch", "-qc", "other"],
    ):  # fmt: skip
        subprocess.run(["git", *args], cwd=folder, check=True)
    before = (folder / "detent.yaml").read_bytes()
    (folder / "detent.yaml").write_text("plugins: [evil.py]\n")
    subprocess.run(["git", "commit", "-qam", "evil"], cwd=folder, check=True)
    subprocess.run(["git", "switch", "-q", "main"], cwd=folder, check=True)
    with pytest.raises(ToolError, match="only a person"):
        await tools["git.branch"].perform(EffectCall("r", "k", 1, by="agent"), name="other")
    assert (folder / "detent.yaml").read_bytes() == before
    await tools["git.branch"].perform(EffectCall("r", "k", 1), name="other")
    assert (folder / "detent.yaml").read_text() == "plugins: [evil.py]\n"


@pytest.mark.parametrize("by", ["agent", "handler"])
@pytest.mark.parametrize(
    "file", ["helper.py", "helper.abi3.so", "helper/__init__.py", "lib/below.yaml", "lib/not_yet.yaml"]
)
async def test_a_program_an_agent_wanted_that_changes_configuration_ends_the_trust(
    hotel, monkeypatch, by, file
):
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(hotel.folder.parent / "config-of-ada"))
    configured(hotel, "approver")
    workflows = hotel.open()
    trust = Trust.of(workflows.settings)
    trust.grant(always=True)
    run = next(tool for tool in workflows.tools if tool.name == "shell.run").perform
    program = f"mkdir -p $(dirname {file}); echo '# more' >> {file}"
    await run(EffectCall("r", "k", 1, by=by), argv=["sh", "-c", program])
    after = Trust.of(workflows.settings)
    assert after.ok == (by == "handler")
    if by == "agent":
        assert f"changed {os.path.basename(file)}" in str(after.record["suspended"])


def test_tools_made_without_settings_guard_nothing(tmp_path):
    (write,) = (one for one in project_tools(tmp_path, tmp_path / ".detent") if one.name == "files.write")
    assert write.misfits({"path": "detent.yaml", "text": "x"}) == []


@pytest.mark.parametrize("level", LEVELS)
async def test_an_agent_starts_no_program_while_it_is_asked(hotel, level):
    hotel.workflow(
        """
name: look
steps:
  - {name: write, type: python, action: run_command, kwargs: {argv: ["true"], read_only: true}}
"""
    )
    before = configured(hotel, level)
    program = ["sh", "-c", "echo '#evil' >> detent.yaml; touch started"]
    answer = {"exit_code": 0, "stdout": "", "stderr": "", "duration_ms": 1.0}
    reply = {
        "calls": [{"tool": "shell.read", "args": {"argv": program}}],
        "output": answer,
        "repeat": True,
    }
    ran = await hotel.run("look", script={"write": [reply]})
    assert ran.run.status is Status.SUCCEEDED
    assert (hotel.folder / "detent.yaml").read_bytes() == before
    assert not (hotel.folder / "started").exists()
    assert ran.dispatch("write").fallback_reason is FallbackReason.SCHEMA_VIOLATION
