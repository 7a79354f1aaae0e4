"""A workspace on disk and the tools that work in it, called as the step calls them."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Any

from detent.engine.tools import EffectCall, Tool, ToolError
from detent.flows.coding.tools.catalogue import ToolSettings
from detent.flows.coding.tools.glob import glob_tool
from detent.flows.coding.tools.grep import grep_tool
from detent.flows.coding.tools.list_dir import list_dir_tool
from detent.flows.coding.tools.read_file import read_file_tool
from detent.flows.coding.tools.update_file import update_file_tool
from detent.flows.coding.tools.write_file import write_file_tool

MAKERS = (read_file_tool, list_dir_tool, glob_tool, grep_tool, write_file_tool, update_file_tool)
FILE_ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {}, "list_dir": {}, "glob": {"pattern": "*"}, "grep": {"pattern": "."},
    "write_file": {"content": "x\n", "overwrite": True}, "update_file": {"target": "a", "patch": "b"},
}  # fmt: skip
"""Of each tool on paths, the arguments besides the path that it needs."""
PATH = {"list_dir": "directory", "glob": "directory", "grep": "directory"}


class Bench:
    """A workspace with files, and the file tools."""

    def __init__(self, root: Path, settings: ToolSettings | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.tools: dict[str, Tool] = {
            tool.name: tool for tool in (make(settings or ToolSettings()) for make in MAKERS)
        }
        self._keys = itertools.count()

    def put(self, path: str, content: str | bytes = "", mode: int | None = None) -> Path:
        """Write a file without any tool."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(
            content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        )
        if mode is not None:
            place.chmod(mode)
        return place

    def run(self, tool: str, **args: Any) -> dict[str, Any]:
        """Call a tool; raises its `ToolError`."""
        found, args = self.tools[tool], {"workspace": str(self.root), **args}
        found.check(args)
        if found.kind == "query":
            return found.perform(**args)
        return asyncio.run(found.perform(EffectCall("r", f"k{next(self._keys)}", 1), **args))

    def text(self, tool: str, **args: Any) -> str:
        """The text that a call returns."""
        return str(self.run(tool, **args)["content"])

    def code(self, tool: str, **args: Any) -> str:
        """The code that a call is refused with; `ok` if it is not."""
        try:
            self.run(tool, **args)
        except ToolError as error:
            return error.code
        return "ok"

    def error(self, tool: str, **args: Any) -> ToolError:
        """The error of a call."""
        try:
            answer = self.run(tool, **args)
        except ToolError as error:
            return error
        raise AssertionError(f"{tool} was not refused: {answer}")

    def on_path(self, tool: str, path: str, **more: Any) -> str:
        """The code of a call of any tool on a path."""
        return self.code(tool, **{PATH.get(tool, "filepath"): path, **FILE_ARGUMENTS[tool], **more})

    def seen(self, path: str) -> str:
        """The SHA-256 of a file as a session has it that has read it."""
        return str(self.run("read_file", filepath=path)["sha256"])

    def snapshot(self) -> dict[str, bytes]:
        """Every file below the workspace's parent, with its content."""
        above = self.root.parent
        return {
            os.path.relpath(os.path.join(folder, name), above): Path(folder, name).read_bytes()
            for folder, _, names in os.walk(above)
            for name in names
            if Path(folder, name).is_file()
        }
