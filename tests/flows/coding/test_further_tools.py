"""Tools beside the flow's own: of MCP servers, of skills, and the audit that one profile has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.engine.tools import Tool, ToolError
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.skills import Skills
from detent.kernel.errors import ConfigurationError
from tests.flows.coding.desk import DONE, YES, Desk, ScriptedModel, results, says

SKILL = "---\nname: release\ndescription: How a release is made.\n---\n\nTag first, then push.\n"


class TestServed:
    """Tools of servers: effects, until a person's setting says that they only look."""

    @staticmethod
    def desk(folder: Path, model: ScriptedModel) -> tuple[Desk, list[str]]:
        sent: list[str] = []

        def send(text: str) -> str:
            sent.append(text)
            return f"sent {text}"

        def look(name: str) -> dict[str, str]:
            return {"found": name}

        tools = [Tool("chat.send", send), Tool("chat.find", look, "query")]
        return Desk(folder, model, flow_options={"further": tools}), sent

    async def test_a_query_is_answered_and_an_effect_is_asked_about(self, tmp_path):
        find, send = ("chat.find", {"name": "ann"}), ("chat.send", {"text": "hello"})
        desk, sent = self.desk(tmp_path, ScriptedModel([says("", find, send), DONE]))
        async with desk:
            result = await desk.ask("greet ann", RequestOptions())
            assert (result.outcome, sent) == ("waiting", [])
            run = await desk.engine.get(result.run_id)
            (hold,) = run.holds.values()
            assert hold.about["args"] == {"text": "hello"}
            await desk.engine.release(result.run_id, "yes", hold=run.token(hold.name))
            await desk.engine.finish(result.run_id)
            turns = await desk.turns(result.run_id)
        assert sent == ["hello"]
        assert [turn["content"] for turn in turns if turn["role"] == "tool"] == [
            '{"found":"ann"}', "sent hello",
        ]  # fmt: skip

    async def test_allowed_by_name_it_is_not_asked_about_and_bad_arguments_are_results(self, tmp_path):
        calls = [("chat.send", {"txt": "hello"}), ("chat.send", {"text": "hello"})]
        desk, sent = self.desk(tmp_path, ScriptedModel([says("", *calls), DONE]))
        async with desk:
            result = await desk.ask("greet", RequestOptions(allow=("chat.send",)))
            turns = await desk.turns(result.run_id)
        assert results(turns) == [("chat.send", False, "invalid_arguments"), ("chat.send", True, None)]
        assert sent == ["hello"]

    async def test_what_one_has_done_is_an_effect_wherever_that_matters(self, tmp_path):
        """A check `when: changed` is run, and a summary does not say that nothing was changed."""
        (tmp_path / "a.py").touch()
        send, find = ("chat.send", {"text": "x"}), ("chat.find", {"name": "ann"})
        settings = {"done_when": {"command": "false", "when": "changed"}}
        for call, checked, told in ((send, True, "Also called: chat.send."), (find, False, "")):
            desk, _ = self.desk(tmp_path, ScriptedModel([says("", call), DONE, *[says("Well.")] * 3]))
            desk = Desk(tmp_path, desk.model, settings, flow_options=desk.flow_options)
            async with desk:
                result = await desk.ask("greet")
                assert result.done is not checked
                assert result.checked == ("none" if checked else "skipped")
                assert told in result.summary
                assert "Nothing was changed" not in result.summary

    async def test_a_tool_that_fails_as_denied_is_no_persons_no(self, tmp_path):
        def send(text: str) -> str:
            raise ToolError("denied", "the server wants a login")

        model = ScriptedModel([says("", ("chat.send", {"text": "x"})), DONE])
        async with Desk(tmp_path, model, flow_options={"further": [Tool("chat.send", send)]}) as desk:
            result = await desk.ask("greet")
            turns = await desk.turns(result.run_id)
        assert [turn["content"] for turn in turns if turn["role"] == "tool"] == ["the server wants a login"]

    async def test_a_reading_request_is_not_offered_effects(self, tmp_path):
        desk, sent = self.desk(tmp_path, ScriptedModel([says("", ("chat.send", {"text": "x"})), DONE]))
        async with desk:
            result = await desk.ask("greet", RequestOptions(yes=True, read_only=True))
            turns = await desk.turns(result.run_id)
        assert "chat.send" not in desk.model.tools[0]
        assert "chat.find" in desk.model.tools[0]
        assert (results(turns), sent) == ([("chat.send", False, "unknown_tool")], [])


class TestSkills:
    async def test_the_assistant_knows_of_a_skill_and_reads_it(self, tmp_path):
        (tmp_path / "skills" / "release").mkdir(parents=True)
        (tmp_path / "skills" / "release" / "SKILL.md").write_text(SKILL)
        skills = Skills.read([tmp_path / "skills"])
        model = ScriptedModel([says("", ("skill", {"name": "release"}), ("skill", {"name": "relase"})), DONE])
        options: dict[str, Any] = {"further": skills.tools(), "skills": skills.listing()}
        async with Desk(tmp_path, model, flow_options=options) as desk:
            result = await desk.ask("release it", YES)
            turns = await desk.turns(result.run_id)
        assert "release: How a release is made." in model.requests[0][0].content
        told = [turn["content"] for turn in turns if turn["role"] == "tool"]
        assert told[0] == "Tag first, then push."
        assert results(turns)[1] == ("skill", False, "invalid_arguments")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("Tag first.", "no front matter"),
            ("---\nname: x\n---\nTag.", "says no `description`"),
            ("---\nname: [\n---\nTag.", "SKILL.md"),
        ],
    )
    def test_what_is_wrong_with_one_is_said(self, tmp_path, text, why):
        (tmp_path / "SKILL.md").write_text(text)
        with pytest.raises(ConfigurationError, match=why):
            Skills.read([tmp_path])

    def test_two_of_one_name_are_refused(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "SKILL.md").write_text(SKILL)
        with pytest.raises(ConfigurationError, match="Two skills are named 'release'"):
            Skills.read([tmp_path])


async def test_a_migration_auditor_looks_through_sessions(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.json").write_text('{"session_id": "0a1b2c3d", "messages": [], "completed": true}')
    task = ("task", {"description": "audit", "prompt": "audit old", "profile": "migration-auditor"})
    audit = ("audit_sessions", {"directory": "old"})
    model = ScriptedModel([says("", audit), says("", task), says("", audit), DONE, DONE])
    async with Desk(tmp_path, model) as desk:
        result = await desk.ask("audit", YES)
        turns = await desk.turns(result.run_id)
    assert result.done
    assert results(turns) == [("audit_sessions", False, "unknown_tool"), ("task", True, None)]
    assert "a.json: legacy, response, completed" in model.requests[3][-1].content
