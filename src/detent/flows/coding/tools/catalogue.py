"""The tools of the coding flow that have code, made for the settings of a project.

`task`, `ask` and `todo` have a description only: the step that runs the calls performs them.
"""

from __future__ import annotations

from detent.engine.tools import Tool
from detent.flows.coding.tools.spec import SPECS, ToolSettings, ToolSpec, problems

__all__ = ["SPECS", "ToolSettings", "ToolSpec", "coding_tools", "problems"]


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
