"""The rules in requests: each call is judged once, for one place, and made there or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.flows.coding.options import RequestOptions
from detent.flows.coding.result import CodingResult
from tests.flows.coding.desk import DONE, Desk, ScriptedModel, results, says


def write(path: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "write_file", {"filepath": path, "content": "new\n", **more}


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


def relink(link: Path, target: str) -> None:
    """Let a link lead elsewhere."""
    link.unlink()
    link.symlink_to(target)


async def yes_to_all(desk: Desk, result: CodingResult, answer: Any = "yes") -> CodingResult:
    """Answer every question of a request in the same way."""
    for _ in range(10):
        if result.outcome != "waiting":
            break
        run = await desk.engine.get(result.run_id)
        (hold,) = run.holds.values()
        await desk.engine.release(run.id, answer, hold=run.token(hold.name))
        await desk.engine.finish(run.id)
        result = await desk.result(run.id)
    return result


def two_folders(root: Path) -> Path:
    """A link `d` to the folder `src`, beside `tests`."""
    for name in ("src", "tests"):
        (root / name).mkdir()
        (root / name / "app.py").write_text("x = 1\n")
    (root / "d").symlink_to("src")
    return root / "d"


class TestWithoutAnybody:
    async def test_each_call_of_a_reply_is_refused_by_itself(self, tmp_path):
        """What an earlier call of the same tool was allowed says nothing of the next one."""
        calls = [bash("echo allowed"), bash("echo asked > two"), write("src/a"), write("b")]
        options = RequestOptions(allow=("bash:echo *", "write_file:src/**"), on_confirm="deny")
        model = ScriptedModel([says("", *calls), DONE])
        async with Desk(tmp_path, model) as desk:
            result = await desk.ask("go", options)
            turns = await desk.turns(result.run_id)
        assert [error for _, _, error in results(turns)] == [None, "denied", None, "denied"]
        assert (result.outcome, sorted(path.name for path in tmp_path.iterdir())) == ("completed", ["src"])


class TestPlaces:
    async def test_a_yes_is_for_the_place_that_was_shown(self, tmp_path):
        link = two_folders(tmp_path)
        rules = RequestOptions(deny=("write_file:tests/**",))
        async with Desk(tmp_path, ScriptedModel([says("", write("d/new.py")), DONE])) as desk:
            result = await desk.ask("go", rules)
            relink(link, "tests")
            result = await yes_to_all(desk, result)
            turns = await desk.turns(result.run_id)
        assert results(turns) == [("write_file", False, "stale")]
        assert result.done
        assert not (tmp_path / "tests" / "new.py").exists()
        assert not (tmp_path / "src" / "new.py").exists()

    async def test_a_link_that_leads_out_is_a_refusal_and_never_an_open_permission(self, tmp_path):
        link = two_folders(tmp_path)
        relink(link, "..")
        model = ScriptedModel([says("", write("d/new.py"), ("read_file", {"filepath": "d/x"})), DONE])
        async with Desk(tmp_path, model) as desk:
            result = await desk.ask("go", RequestOptions())
            turns = await desk.turns(result.run_id)
        assert results(turns) == [
            ("write_file", False, "outside_workspace"), ("read_file", False, "outside_workspace"),
        ]  # fmt: skip

    async def test_rules_hold_for_what_a_person_puts_in_the_place_of_a_path(self, tmp_path):
        two_folders(tmp_path)
        settings = {"protect": ["tests/**"]}
        calls = [write("src/new.py"), write("src/other.py")]
        async with Desk(tmp_path, ScriptedModel([says("", *calls), DONE]), settings) as desk:
            result = await desk.ask("go", RequestOptions())
            for path in ("tests/new.py", "src/better.py"):
                run = await desk.engine.get(result.run_id)
                (hold,) = run.holds.values()
                answer = {"edit": {"filepath": path}}
                await desk.engine.release(run.id, answer, hold=run.token(hold.name))
                await desk.engine.finish(run.id)
            turns = await desk.turns(result.run_id)
        assert results(turns) == [("write_file", False, "protected"), ("write_file", True, None)]
        assert not (tmp_path / "tests" / "new.py").exists()
        assert (tmp_path / "src" / "better.py").exists()

    async def test_a_yes_to_reading_a_secret_is_for_that_file(self, tmp_path):
        (tmp_path / ".env.a").write_text("A=1\n")
        (tmp_path / ".env.b").write_text("B=2\n")
        (tmp_path / ".env").symlink_to(".env.a")
        model = ScriptedModel([says("", ("read_file", {"filepath": ".env"})), DONE])
        async with Desk(tmp_path, model) as desk:
            result = await desk.ask("go", RequestOptions())
            relink(tmp_path / ".env", ".env.b")
            result = await yes_to_all(desk, result)
            turns = await desk.turns(result.run_id)
        assert results(turns) == [("read_file", False, "stale")]

    async def test_a_denied_path_is_not_told_by_an_update_that_fails(self, tmp_path):
        (tmp_path / "private").mkdir()
        (tmp_path / "private" / "key.txt").write_text("user = bob\npassword = hunter2\n")
        edit = {"filepath": "private/key.txt", "target": "password = x", "patch": ""}
        model = ScriptedModel([says("", ("update_file", edit)), DONE])
        async with Desk(tmp_path, model) as desk:
            result = await desk.ask("go", RequestOptions(yes=True, deny=("read_file:private/**",)))
            turns = await desk.turns(result.run_id)
        assert results(turns) == [("update_file", False, "denied")]
        assert "hunter2" not in str(turns)


class TestNames:
    @pytest.mark.parametrize("options", [RequestOptions(yes=True), RequestOptions(on_confirm="deny")])
    async def test_a_name_that_no_file_can_have_is_a_result_of_its_call(self, tmp_path, options):
        (tmp_path / "a").mkdir()
        long = "x" * 300
        calls = [
            ("read_file", {"filepath": long}), ("list_dir", {"directory": f"a/{long}"}),
            ("glob", {"pattern": "*", "directory": long}), ("grep", {"pattern": "x", "directory": long}),
            ("glob", {"pattern": f"../{long}/*", "directory": "a"}), write(f"{long}/b"),
            ("update_file", {"filepath": long, "target": "a", "patch": "b"}),
            ("bash", {"command": "echo run > ran", "cwd": long}), ("list_dir", {}),
        ]  # fmt: skip
        async with Desk(tmp_path, ScriptedModel([says("", *calls), DONE])) as desk:
            result = await desk.ask("go", options)
            turns = await desk.turns(result.run_id)
        assert result.done
        errors = [error for _, _, error in results(turns)]
        assert errors[:7] == ["invalid_arguments"] * 7
        assert errors[7:] == ["invalid_arguments" if options.yes else "denied", None]
        assert not (tmp_path / "ran").exists()


class TestPasses:
    """The step is called again after each effect, in a world that has changed since."""

    async def test_a_command_that_turns_a_link_leaves_the_edit_before_it_as_it_was(self, tmp_path):
        link = two_folders(tmp_path)
        edit = ("update_file", {"filepath": "d/app.py", "target": "x = 1", "patch": "x = 11"})
        calls = [edit, bash("ln -sfn tests d"), bash("echo restarted")]
        model = ScriptedModel([says("", ("read_file", {"filepath": "d/app.py"})), says("", *calls), DONE])
        async with Desk(tmp_path, model) as desk:
            result = await yes_to_all(desk, await desk.ask("go", RequestOptions()))
            turns = await desk.turns(result.run_id)
        assert result.done, result.reason
        assert [ok for _, ok, _ in results(turns)] == [True] * 4
        assert (tmp_path / "src" / "app.py").read_text() == "x = 11\n"
        assert link.readlink() == Path("tests")

    async def test_what_was_denied_stays_denied_and_what_was_allowed_stays_done(self, tmp_path):
        link = two_folders(tmp_path)
        relink(link, "tests")
        calls = [
            write("d/a.py"), ("read_file", {"filepath": "d/app.py"}), write("src/b.py"),
            bash("ln -sfn src d; ln -sfn ../tests src/away"), write("d/c.py"),
            bash("rm -r src; ln -s tests src"), bash("echo end"),
        ]  # fmt: skip
        rules = RequestOptions(
            allow=("write_file:src/**",), deny=("write_file:tests/**", "read_file:tests/**")
        )
        async with Desk(tmp_path, ScriptedModel([says("", *calls), DONE])) as desk:
            result = await yes_to_all(desk, await desk.ask("go", rules))
            turns = await desk.turns(result.run_id)
        assert result.done, result.reason
        assert [error for _, _, error in results(turns)] == [
            "denied", "denied", None, None, None, None, None,
        ]  # fmt: skip
