"""Regular expressions over texts from outside, in a process of their own that is stopped when one runs away.

For some patterns and texts Python's matcher takes practically for ever and blocks the whole process
meanwhile, so it must not run in ours.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from detent.adapters.project.programs import TimedOut, run_program
from detent.engine.tools import Tool, ToolError

LIMIT = 5.0
"""Seconds a search may take."""
MOST_MATCHES = 10_000
LONGEST_PATTERN = 2000
LARGEST_ANSWER = 32 * 1024 * 1024

_WORKER = """
import json, re, sys
said = json.load(sys.stdin)
try:
    rule = re.compile(said["pattern"])
except (re.error, OverflowError, RecursionError) as error:
    json.dump({"error": "pattern", "at": getattr(error, "pos", None)}, sys.stdout)
    sys.exit()
try:
    if said["do"] == "find":
        found = []
        for one in rule.finditer(said["text"]):
            if len(found) >= said["most"]:
                break
            found.append(one.group(said["group"]))
        answer = {"found": found}
    elif said["do"] == "test":
        answer = {"fits": [rule.search(one) is not None for one in said["texts"]]}
    else:
        text, count = rule.subn(said["replace"], said["text"], said["count"])
        answer = {"text": text, "count": count}
except IndexError:
    answer = {"error": "group"}
except re.error:
    answer = {"error": "replace"}
json.dump(answer, sys.stdout)
"""

_WRONG = {
    "group": "the pattern has no such group",
    "replace": "the replacement refers to a group the pattern does not have",
}


async def find(text: str, pattern: str, group: int | str = 0, limit: int = MOST_MATCHES) -> dict[str, Any]:
    """The parts of a text that match a regular expression, in order, as `found`."""
    most = max(0, min(limit, MOST_MATCHES))
    return await _search({"do": "find", "text": text, "pattern": pattern, "group": group, "most": most})


async def test(texts: list[str], pattern: str) -> dict[str, Any]:
    """Whether a regular expression matches some part of each text, as `fits`."""
    return await _search({"do": "test", "texts": texts, "pattern": pattern})


async def substitute(text: str, pattern: str, replace: str, count: int = 0) -> dict[str, Any]:
    """A text with the matches of a regular expression replaced, and their number, as `text` and `count`."""
    request = {"do": "substitute", "text": text, "pattern": pattern, "replace": replace, "count": count}
    return await _search(request)


async def _search(request: dict[str, Any]) -> dict[str, Any]:
    if len(request["pattern"]) > LONGEST_PATTERN:
        raise ToolError("invalid", f"a pattern has at most {LONGEST_PATTERN} characters.")
    argv = [sys.executable, "-I", "-S", "-c", _WORKER]
    env = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    try:
        ran = await run_program(
            argv, cwd=Path(tempfile.gettempdir()), env=env, timeout=LIMIT, stdin=json.dumps(request).encode(),
            head=LARGEST_ANSWER,
        )  # fmt: skip
    except TimedOut:
        raise ToolError(
            "runaway", f"the pattern did not come to an end within {LIMIT:g} seconds on this text; "
            f"write one without repetitions inside repetitions.",
        ) from None  # fmt: skip
    if ran.code != 0 or ran.out_cut:
        raise ToolError("not_searched", f"the search ended with code {ran.code} and {len(ran.out)} bytes.")
    answer: dict[str, Any] = json.loads(ran.out)
    if answer.get("error") == "pattern":
        position = "" if answer["at"] is None else f" (at character {answer['at'] + 1})"
        raise ToolError("invalid", f"the pattern is no regular expression{position}.")
    if "error" in answer:
        raise ToolError("invalid", f"{_WRONG[answer['error']]}.")
    return answer


def pattern_tools() -> list[Tool]:
    """The tools for regular expressions."""
    return [
        Tool("text.find", find, "query", description="Parts of a text that fit a regular expression."),
        Tool("text.test", test, "query", description="Of each text, whether a regular expression fits."),
        Tool("text.substitute", substitute, "query",
             description="A text with what fits a regular expression replaced, and how often."),
    ]  # fmt: skip
