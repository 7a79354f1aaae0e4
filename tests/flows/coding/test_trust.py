"""A project whose configuration a command of the assistant has changed is not trusted any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.engine.tools import EffectCall
from detent.flows.coding.kind import Coding
from detent.flows.coding.wiring import coding_flow
from detent.runtime.settings import Settings, read_settings
from detent.runtime.trust import Trust


def settings_in(folder: Path) -> Settings:
    return read_settings(folder=folder, headings=lambda settings: Coding().headings())


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("tool", ["bash", "done_check"])
@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("echo '# more' >> detent.yaml", "detent.yaml"), ("rm detent.yaml; exit 3", "detent.yaml"),
        ("echo '# more' >> plug.py; kill $$", "plug.py"), ("echo x > skills/new.md", "new.md"),
        ("cat detent.yaml plug.py; echo x > a.py", None),
    ],
)  # fmt: skip
async def test_a_command_that_changes_what_configures_detent_ends_the_trust(
    tmp_path, monkeypatch, always, tool, command, changed
):
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    (folder / "skills").mkdir(parents=True)
    (folder / "skills" / "SKILL.md").write_text("---\nname: x\ndescription: y\n---\nz\n")
    (folder / "plug.py").write_text("")
    (folder / "detent.yaml").write_text("plugins: [plug.py]\ncoding: {sandbox: false, skills: [skills]}\n")
    settings = settings_in(folder)
    Trust.of(settings).grant(always=always)
    bash = coding_flow(settings).tools[tool]
    receipt = await bash.perform(EffectCall("r", "k", 1), workspace=str(folder), command=command)
    state = Trust.of(settings).state
    if changed is None:
        assert state == "trusted"
        assert "trust" not in receipt["content"]
        return
    assert state == "suspended"
    assert f"changed what configures Detent ({changed})" in receipt["content"]
    assert Trust.of(settings).record["suspended"].endswith(f"changed {changed}")
