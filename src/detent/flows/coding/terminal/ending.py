"""How a request is told of at its end, here and by `detent resume`, `release` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.flows.coding.grammar import FORMS
from detent.flows.coding.result import CodingResult, result_of
from detent.flows.coding.summary import REASONS
from detent.flows.coding.terminal.plain_text import one_line, text_lines
from detent.insight.formatting import count, money
from detent.runtime.plugs import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.kernel.run import Run

CHECKED = {"passed": "checked", "skipped": "check skipped", "none": "unchecked"}
LONGEST_SUMMARY = 500
"""Characters of a summary in the closing line."""


def exit_code(result: CodingResult) -> int:
    """0 for a request that is complete or waits, 130 for one that was interrupted, 1 for all others."""
    if result.outcome == "interrupted":
        return 130
    return 0 if result.outcome in ("completed", "waiting") else 1


def closing_lines(result: CodingResult) -> Iterator[str]:
    """The last lines: how it ended, what was done, what it took; of one that is not done, ways on."""
    from detent.cli.output import paint

    if result.outcome == "completed":
        summary = one_line(result.summary) or ", ".join(map(one_line, result.files_changed[:5]))
        forms = "; ".join(FORMS)
        if forms in summary:  # a line each is read, all in one is not
            yield from (f"  {form}" for form in FORMS)
            summary = summary.replace(forms, "the above")
        if len(summary) > LONGEST_SUMMARY:
            summary = f"{summary[:LONGEST_SUMMARY]}…"
        done = paint(f"done ({CHECKED.get(result.checked, result.checked)})", "green")
        yield from _with_figures(f"{done}{f': {summary}' if summary else ''}", result)
        if result.tests_edited:
            tests = ", ".join(map(one_line, result.tests_edited))
            yield paint(f"  The check passed, but what it runs was changed: {tests}", "yellow")
        return
    yield from _with_figures(_unfinished(result), result)
    said = [line for line in text_lines(result.summary) if line.strip()]
    if said and said[0].startswith("Not finished:"):
        said = said[1:]
    yield from (f"  {line}" for line in said)


def _with_figures(words: str, result: CodingResult) -> Iterator[str]:
    """The closing words and the figures, on one line if there is room."""
    from detent.cli.output import columns, width

    figures, room = _figures(result), columns()
    if room is None or width(f"{words}  {figures}") <= room:
        yield f"{words}  {figures}"
    else:
        yield from (words, f"  {figures}")


def _unfinished(result: CodingResult) -> str:
    from detent.cli.output import paint

    why = one_line(result.reason or "")
    match result.outcome:
        case "incomplete":
            return f"{paint('not finished', 'red')}: {REASONS.get(why, why)}"
        case "budget_exhausted":
            return f"{paint('not finished', 'magenta')}: {_used_up(why)}"
        case "interrupted":
            return paint("interrupted", "yellow")
        case "waiting":
            return f"{paint('waiting', 'yellow')} for an answer"
    return f"{paint(result.outcome, 'red')}{f': {why}' if why else ''}"


def _used_up(why: str) -> str:
    """A used-up budget; `why` is such as "tokens budget used up"."""
    limit = why.removesuffix(" budget used up")
    return f"the budget is used up{f' ({limit})' if limit else ''}"


def _figures(result: CodingResult) -> str:
    from detent.cli.output import paint

    usage = result.usage
    parts = [
        count(result.iterations, "turn"),
        count(result.tool_calls, "tool"),
        count(int(usage["input_tokens"]) + int(usage["output_tokens"]), "token"),
    ]
    if usage["cost_usd"]:
        parts.append(money(float(usage["cost_usd"])))
    if result.over_budget and result.outcome != "budget_exhausted":
        parts.append(f"over its budget of {result.over_budget}")
    return paint(" · ".join(parts), dim=True)


class CodingKind(Kind):
    """Shows a request line by line, and its end as the assistant's."""

    name = "coding"

    def lines(self, engine: Engine, flow: Flow) -> AbstractContextManager[Any] | None:
        """Show states, text and calls as they happen."""
        from detent.flows.coding.terminal.display import RequestDisplay
        from detent.flows.coding.terminal.transition_lines import TransitionLog

        display = RequestDisplay(flow.name)
        engine.add_observer(display)
        engine.add_observer(TransitionLog(flow.name))
        return display

    async def tell_ending(self, workspace: Any, engine: Engine, run: Run, told: str | None = None) -> bool:
        """Print how a request ended, or what it waits for and the commands that answer."""
        if run.parent is not None:
            return False
        await tell(workspace, engine, run)
        return True


async def tell(
    workspace: Any,
    engine: Engine,
    run: Run,
    *,
    whole: bool = False,
    asked: bool = False,
    go_on: str | None = None,
) -> None:
    """Print how a request ended, or what it waits for and how it goes on.

    `whole`: its text too, which was not shown while it was written. `asked`: its question was just shown.
    `go_on`: how one that was interrupted goes on, where no command is needed for it.
    """
    from detent.cli.output import say
    from detent.flows.coding.terminal.questions import commands_of, open_questions, question_lines

    result = await result_of(engine, run.id)
    text = added_text(result, run)
    if whole and result.done and not text:
        text = text_lines(result.text.strip("\n"))
    for line in text:
        say(line)
    for line in closing_lines(result):
        say(line)
    for question in await open_questions(engine, run):
        if not asked:
            for line in question_lines(question):
                say(line)
        for line in commands_of(workspace, question):
            say(line)
    if result.outcome in ("interrupted", "budget_exhausted") and not workspace.forgets:
        own = go_on if result.outcome == "interrupted" else None
        say(f"  {own or way_on(workspace, result)}")


def added_text(result: CodingResult, run: Run) -> list[str]:
    """What is shown of a request's text at its end: what plain requests have found.

    The text of a model was shown while it was being written.
    """
    from detent.flows.coding.request_data import RequestData

    by_handler = RequestData(run.data).last_reply.get("by") == "handler"
    if not by_handler or result.outcome not in ("completed", "incomplete"):
        return []
    if result.outcome == "incomplete" and result.text == result.summary:  # the closing lines say it
        return []
    lines = text_lines(result.text)
    summary = one_line(result.summary)
    if result.outcome == "completed" and lines and one_line(lines[0]) == summary:
        lines = lines[1:]
    while lines and not lines[0].strip():
        lines = lines[1:]
    return lines


def way_on(workspace: Any, result: CodingResult) -> str:
    """The command with which a request goes on that was stopped."""
    if result.outcome == "budget_exhausted":
        limit = next(
            (name for name in ("tokens", "usd", "steps", "seconds") if name in (result.reason or "")),
            "tokens",
        )
        return f"Go on with more: {workspace.command('reopen', result.run_id)} --budget-{limit} MORE"
    return f"Go on with: {workspace.command('resume', result.run_id)}"


DISPLAY = CodingKind()
