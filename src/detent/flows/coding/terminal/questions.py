"""What a request asks a person: the question with everything needed to decide, and the answer.

What is shown is exactly what the answer is for. Nothing but the words below is ever taken for a yes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from detent.cli.output import paint
from detent.engine.confirmation import LONGEST_SHOWN
from detent.flows.coding.reply_text import own_text
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.task_completion import judge_reply
from detent.flows.coding.tools.spec import SUPPLIED
from detent.insight.formatting import count
from detent.kernel.control_characters import shown
from detent.kernel.entries import CONFIRM
from detent.kernel.plain import encode

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.kernel.entries import Held
    from detent.kernel.run import Run

MOST_DIFF_LINES = 40
MOST_REASON_LINES = 6
LONGEST_LINE = 2000
"""Characters of a diff's line that are shown; of a command all are."""
OF_DOUBT = {
    "happened": "it was done, and is not done again",
    "again": "it was not done, or may be done twice",
    "skip": "the request goes on as if it had not been asked for",
}
"""What the answers to a question about an effect in doubt do."""

Kind = Literal["confirm", "ask", "doubt", "choice"]
Verdict = Literal["yes", "always", "no"]


@dataclass(frozen=True, slots=True)
class Question:
    """One open question of a request, or of a run below it."""

    run: Run
    hold: Held
    root: Run
    """The request that it belongs to."""

    @property
    def token(self) -> str:
        """What an answer must name."""
        return self.run.token(self.hold.name)

    @property
    def kind(self) -> Kind:
        """What is asked for: a word on a call, an answer in own words, what became of an effect."""
        if self.hold.name.startswith("effect:"):
            return "doubt"
        if self.hold.why == CONFIRM or self.hold.name.startswith(f"{CONFIRM}-"):
            return "confirm"
        return "choice" if self.hold.why != "ask" and self.hold.choices else "ask"

    @property
    def choices(self) -> list[str]:
        """Answers to choose from; for a question of the assistant any other will do."""
        return [str(choice) for choice in self.hold.choices or self.hold.about.get("choices") or ()]

    @property
    def call(self) -> tuple[str, dict[str, Any]] | None:
        """The tool and the assistant's arguments, where all of them are known."""
        tool, args = self.hold.about.get("tool"), self.hold.about.get("args")
        if not isinstance(tool, str) or not isinstance(args, Mapping) or "$hash" in args or "$blob" in args:
            return None
        return tool, {name: value for name, value in args.items() if name not in SUPPLIED}


class Answer(NamedTuple):
    """A person's word on a call."""

    verdict: Verdict
    reason: str = ""
    """Why not, for the assistant."""

    @property
    def plain(self) -> Any:
        """As an engine takes it."""
        if self.verdict != "no":
            return "yes"
        return {"no": self.reason} if self.reason else "no"


_ANSWERS: Mapping[str, Verdict] = {
    "y": "yes", "yes": "yes", "a": "always", "always": "always", "n": "no", "no": "no",
}  # fmt: skip
_NO = re.compile(r"(?:n|no)(?:\s*[,:;.–—-]\s*|\s+)(?P<reason>\S.*)", re.IGNORECASE | re.DOTALL)


def read_answer(text: str) -> Answer | None:
    """What a person has typed; None for anything that is no answer, which is asked again."""
    text = text.strip()
    verdict = _ANSWERS.get(text.lower()) if text.isascii() else None
    if verdict is not None:
        return Answer(verdict)
    refusal = _NO.fullmatch(text)
    return None if refusal is None else Answer("no", refusal["reason"].strip())


async def open_questions(engine: Engine, run: Run, root: Run | None = None) -> list[Question]:
    """The questions a person can answer, of a request and of the runs below it that it waits for."""
    found: list[Question] = []
    root = root or run
    for hold in run.holds.values():
        if hold.why == "children":
            for child in hold.about.get("runs", ()):
                found += await open_questions(engine, await engine.get(str(child)), root)
        elif hold.why not in ("timer", "breaker"):
            found.append(Question(run, hold, root))
    return found


# -- what is shown ------------------------------------------------------------------------------------------


def question_lines(question: Question) -> Iterator[str]:
    """The question: what, why, and the exact change, command or call."""
    hold = question.hold
    where = "" if question.run is question.root else " (a task of the request asks)"
    asked = shown(hold.question or f"It waits for {hold.why}: {hold.name}").splitlines() or [""]
    yield paint(f"? {asked[0]}", "yellow", bold=True) + where
    yield from (paint(f"  {line}", "yellow") for line in asked[1:])
    if question.kind == "confirm":
        yield from _why(question)
        yield from _exactly(question)
    elif question.kind == "doubt":
        yield from _doubt(question)
    else:
        yield from (f"  {number}. {shown(choice)}" for number, choice in enumerate(question.choices, 1))


def commands_of(workspace: Any, question: Question) -> Iterator[str]:
    """The commands that answer a question."""
    from detent.cli.run_status import next_commands

    yield from (f"  {command}" for command in next_commands(workspace, question.run))


def _doubt(question: Question) -> Iterator[str]:
    """An effect of which it is not known whether it happened, and what the answers do."""
    from detent.cli.run_status import effect_lines

    if question.call is not None and question.call[0] == "bash":
        yield from _command(question, question.call[1])
        if error := question.hold.about.get("error"):
            yield f"  {paint('because', dim=True)} {shown(str(error))}"
    else:
        yield from (f"  {line}" for line in effect_lines(question.hold))
    for choice in question.hold.choices:
        if choice in OF_DOUBT:
            yield f"  {paint(choice, bold=True)}: {OF_DOUBT[choice]}"


def _why(question: Question) -> Iterator[str]:
    """Why: the rule's reason, and the assistant's own words as what they are."""
    if isinstance(reason := question.hold.about.get("why"), str):
        yield f"  {paint('why:', dim=True)} {shown(reason)}"
    content = RequestData(question.run.data).last_reply.get("content")
    text = own_text(judge_reply(content).shown) if isinstance(content, str) else ""
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines[:MOST_REASON_LINES]):
        label = paint("the assistant says:", dim=True) if number == 0 else " " * len("the assistant says:")
        yield f"  {label} {shown(line[:LONGEST_LINE])}"
    if len(lines) > MOST_REASON_LINES:
        yield f"  {' ' * len('the assistant says:')} …"


def _exactly(question: Question) -> Iterator[str]:
    about, call = question.hold.about, question.call
    preview = about.get("shown")
    if call is not None and call[0] == "bash":
        yield from _command(question, call[1])
    elif isinstance(preview, str):
        yield from _diff(preview)
        if len(preview) >= LONGEST_SHOWN:
            yield paint("  This is not all of it: it is cut here. Look at it before you agree.", "red")
    elif call is not None:
        yield f"  {paint(shown(call[0]), bold=True)}"
        for name, value in call[1].items():
            first, *rest = shown(value if isinstance(value, str) else encode(value)).splitlines() or [""]
            yield f"    {shown(name)}: {first}"
            yield from (f"    {' ' * len(name)}| {line}" for line in rest)
    else:
        yield paint("  Its arguments are too long to be shown here.", "red")


def _command(question: Question, args: Mapping[str, Any]) -> Iterator[str]:
    """The exact command, with its folder and variables."""
    first, *rest = shown(str(args.get("command", ""))).split("\n")
    yield f"  {paint('$', dim=True)} {paint(first, bold=True)}"
    yield from (f"  {paint('|', dim=True)} {paint(line, bold=True)}" for line in rest)
    folder, cwd = RequestData(question.run.data).workspace, str(args.get("cwd", "."))
    yield f"  {paint('in', dim=True)} {shown(folder if cwd in ('.', '') else f'{folder} : {cwd}')}"
    env = args.get("env")
    for name, value in env.items() if isinstance(env, Mapping) else ():
        yield f"  {paint('with', dim=True)} {shown(f'{name}={value}')}"


def _diff(text: str) -> Iterator[str]:
    """A diff, at most 40 lines of it, with what is left out in figures."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    for line in lines[:MOST_DIFF_LINES]:
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        told = shown(line.removesuffix("\r"))
        told = (
            told if len(told) <= LONGEST_LINE else f"{told[:LONGEST_LINE]} … {count(len(told), 'character')}"
        )
        yield f"  {paint(told, colour)}" if colour else f"  {told}"
    if len(lines) > MOST_DIFF_LINES:
        left = lines[MOST_DIFF_LINES:]
        added, removed = _starting(left, "+"), _starting(left, "-")
        yield paint(f"  … {count(len(left), 'line')} more (+{added} -{removed})", "yellow")


def _starting(lines: Sequence[str], sign: str) -> int:
    return sum(line.startswith(sign) for line in lines)
