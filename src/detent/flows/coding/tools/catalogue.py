"""The tools of the coding flow that have code, made for the settings of a project.

`task`, `ask` and `todo` have a description only: the step that runs the calls performs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detent.engine.tools import Tool, ToolError
from detent.flows.coding.tools.spec import SPECS, ToolSettings, ToolSpec, problems

__all__ = ["SPECS", "ToolSettings", "ToolSpec", "coding_tools", "problems", "refusal"]


def coding_tools(settings: ToolSettings) -> list[Tool]:
    """The seven tools with code. A tool module takes what it needs from `tools.spec`, never from here."""
    from detent.flows.coding.tools.bash import bash_tool
    from detent.flows.coding.tools.glob import glob_tool
    from detent.flows.coding.tools.grep import grep_tool
    from detent.flows.coding.tools.list_dir import list_dir_tool
    from detent.flows.coding.tools.read_file import read_file_tool
    from detent.flows.coding.tools.update_file import update_file_tool
    from detent.flows.coding.tools.write_file import write_file_tool

    makers = (
        read_file_tool, list_dir_tool, glob_tool, grep_tool, write_file_tool, update_file_tool, bash_tool,
    )  # fmt: skip
    return [make(settings) for make in makers]


def refusal(settings: ToolSettings, tool: str, args: Mapping[str, Any]) -> ToolError | None:
    """Why a change of a file, with all arguments, would certainly not be made now; None if it would be.

    Told before a person is asked about it. It reads the file, so it is for a thread.
    """
    from detent.flows.coding.tools.update_file import plan_update
    from detent.flows.coding.tools.write_file import plan_write

    plans: Mapping[str, Callable[..., object]] = {"write_file": plan_write, "update_file": plan_update}
    try:
        if tool in plans:
            plans[tool](settings, **args)
    except ToolError as error:
        return error
    return None
