"""Agents for the built-in actions that know only a prompt: what they see there, and what they answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.adapters.models.scripted import Call, ScriptedStepExecutor
from detent.dispatch.executor import Availability, ExecutorResult

Calls = Sequence[tuple[str, Mapping[str, Any]]]
Behaviour = Callable[["Asked"], "Calls | Mapping[str, Any]"]
"""Gives the calls of a reply, or an answer."""


@dataclass
class Asked:
    """What one prompt says."""

    inputs: dict[str, Any]
    results: list[tuple[str, Any, Any]]
    """Tool, arguments and result of each call so far."""
    missing: tuple[str, ...] | None
    """The fields it asks for once the tools are done; None before."""

    def result(self, tool: str) -> Any:
        """The last result of a tool; None if it was not called."""
        return next((result for name, _, result in reversed(self.results) if name == tool), None)

    def some(self, *names: str) -> dict[str, Any]:
        """Some of the inputs."""
        return {name: self.inputs[name] for name in names}


def read_prompt(prompt: str) -> Asked:
    """Read a prompt as an agent would that has seen neither Detent nor its tests."""
    decode = json.JSONDecoder().raw_decode
    inputs, _ = decode(prompt.partition("INPUTS\n")[2])
    results: list[tuple[str, Any, Any]] = []
    for block in re.split(r"(?:^|\n\n)RESULTS\n", prompt)[1:]:
        rest = block
        while (line := re.match(r"([\w.]+) (?=\{)", rest)) is not None:
            args, end = decode(rest[line.end() :])
            rest = rest[line.end() + end :].lstrip("\n")
            try:
                result, end = decode(rest)
            except ValueError:  # an error is told as text
                result, end = rest.split("\n")[0], len(rest.split("\n")[0])
            results.append((line[1], args, result))
            rest = rest[end:].removeprefix("\n")
    missing = None
    if "\n\nMISSING\n" in prompt:
        schema, _ = decode(prompt.rpartition("JSON Schema:\n")[2])
        missing = tuple(schema["required"])
    return Asked(inputs, results, missing)


@dataclass
class PromptedAgent:
    """An executor without native calls, which answers each prompt for itself and remembers nothing."""

    behaviour: Behaviour
    prompts: list[str] = field(default_factory=list)

    async def execute(self, *, prompt: Any, **_: Any) -> ExecutorResult:
        """Answer one prompt."""
        self.prompts.append(str(prompt))
        reply = self.behaviour(read_prompt(str(prompt)))
        if isinstance(reply, Mapping):
            return ExecutorResult(json.dumps(reply))
        calls = [{"tool": tool, "args": dict(args)} for tool, args in reply]
        return ExecutorResult(json.dumps({"calls": calls}))

    def available(self) -> Availability:
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        return True


class Workers(ScriptedStepExecutor):
    """Scripted replies for some steps, and behaviours for those that act."""

    def __init__(self, script: Any, acting: Mapping[str, Behaviour]) -> None:
        super().__init__(script)
        self.acting = acting

    async def execute(
        self, *, step_name: str, agent_name: str, prompt: Any, **options: Any
    ) -> ExecutorResult:
        """Answer one prompt."""
        behaviour = self.acting.get(step_name)
        if behaviour is None:
            return await super().execute(step_name=step_name, agent_name=agent_name, prompt=prompt, **options)
        self.calls.append(Call(step_name, agent_name, prompt))
        return await PromptedAgent(behaviour).execute(prompt=prompt)


# -- agents that do what the action is for ------------------------------------------------------------------


def once(tool: str, *names: str) -> Behaviour:
    """Call one tool with these of the inputs, and leave everything else out."""
    return lambda asked: [(tool, asked.some(*names))]


def copies(asked: Asked) -> Calls:
    return [("files.write", {"path": asked.inputs["target"], "source": asked.inputs["source"]})]


def moves(asked: Asked) -> Calls:
    written = asked.result("files.write")
    if written is None:
        return copies(asked)
    return [("files.delete", {"path": asked.inputs["source"], "sha256": written["sha256"]})]


def replaces(asked: Asked) -> Calls | Mapping[str, Any]:
    there = asked.result("files.read")
    if there is None:
        return [("files.read", asked.some("path"))]
    find = asked.inputs["find"] if asked.inputs["regex"] else re.escape(asked.inputs["find"])
    text, count = re.subn(find, asked.inputs["replace"], there["text"])
    if asked.missing is not None:
        return {"replacements": count}
    return [("files.write", {**asked.some("path"), "text": text, "sha256": there["sha256"]})]


def downloads(asked: Asked) -> Calls:
    fetched = asked.result("http.fetch")
    if fetched is None:
        return [("http.fetch", {**asked.some("url"), "spool": True})]
    return [("files.write", {**asked.some("path"), "spool": fetched["spool"]})]


def stages(asked: Asked) -> Calls | Mapping[str, Any]:
    """Looks whether there is anything to stage."""
    status = asked.result("git.status")
    if status is None:
        return [("git.status", {})]
    if status["clean"]:
        return {"has_changes": False, "files": [], "diff": ""}
    return [("git.stage", asked.some("paths"))]


def checks(asked: Asked) -> Calls | Mapping[str, Any]:
    """Runs one check after the other, and stops at the first that fails."""
    results = [result for tool, _, result in asked.results if tool == "validation.run"]
    stages = asked.inputs["stages"][len(results) :]
    failed = any(result["status"] == "failed" for result in results)
    if stages and not failed:
        return [("validation.run", {"stage": stages[0]})]
    return {"success": not failed, "stage_results": results}


def fixes(asked: Asked) -> Calls | Mapping[str, Any]:
    """Runs the fixes of all checks in one reply."""
    if asked.result("validation.fix") is None:
        return [("validation.fix", {"stage": stage}) for stage in asked.inputs["stages"]]
    return {"changed_files": [], "applied": []}


SENSIBLE: Mapping[str, Behaviour] = {
    "write_file": once("files.write", "path", "text"),
    "copy_file": copies,
    "move_file": moves,
    "delete_file": once("files.delete", "path"),
    "restore_file": lambda asked: [("files.restore", {"paths": [asked.inputs["path"]]})],
    "replace_text": replaces,
    "http_download": downloads,
    "run_command": once("shell.run", "argv"),
    "run_validation": checks,
    "apply_fixes": fixes,
    "git_check_and_stage": stages,
    "git_stage": once("git.stage", "paths"),
    "git_unstage": once("git.unstage", "paths"),
    "git_commit": once("git.commit", "message"),
    "git_uncommit": once("git.reset", "sha"),
    "git_push": once("git.push"),
    "git_branch": once("git.branch", "name"),
    "upsert_rows": once("db.upsert", "database", "table", "key", "batch"),
    "restore_rows": once("db.restore", "database", "table", "key", "batch"),
    "notify": once("notify.send", "message", "title"),
}
"""By action, what a model would send that reads the prompt with care."""
