"""Writing a commit message from what changed: the type from the paths, the scope from where they meet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from detent.dispatch.proposal import Proposal, Verdict
from detent.engine.step_failures import StepFailed
from detent.flows.workflow.domain.commit_words import body_of, kind_of, scope_of, summary_of
from detent.flows.workflow.domain.diffs import changes_of
from detent.flows.workflow.registry import action
from detent.kernel.errors import nearest

LONGEST_SUBJECT = 72
STYLES = ("conventional", "plain")
TYPES = (
    "build", "chore", "ci", "docs", "feat", "fix", "perf", "refactor", "revert", "style", "test",
)  # fmt: skip

_CONVENTIONAL = re.compile(rf"(?:{'|'.join(TYPES)})(?:\([^()\s][^()]*\))?!?: \S.*")


class Message(TypedDict):
    message: str
    """Subject, and after an empty line the body where there is one."""
    subject: str
    body: str


def keeps_the_form(inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
    """Whether a message somebody else wrote can stand: its form, and that it speaks of this change only."""
    said = proposal.plain
    subject, body, message = said["subject"], said["body"], said["message"]
    wrong = []
    if not subject.strip() or "\n" in subject or subject != subject.strip():
        wrong.append("/subject: must be one line of text")
    if len(subject) > LONGEST_SUBJECT:
        wrong.append(f"/subject: must have at most {LONGEST_SUBJECT} characters")
    if inputs.get("style", "conventional") == "conventional" and not _CONVENTIONAL.fullmatch(subject):
        wrong.append("/subject: must be written type(scope): what it does")
    if message.strip() != f"{subject}\n\n{body}".strip():
        wrong.append("/message: must be the subject, an empty line and the body")
    known = {one.path for one in changes_of(inputs.get("files") or (), inputs.get("diff") or "")}
    named = {line[2:].split(" (")[0] for line in body.splitlines() if line.startswith("- ") and "/" in line}
    if any(_is_path(one) and one not in known for one in named):
        wrong.append("/body: must speak of files that are part of the change")
    return Verdict(not wrong, wrong)


def _is_path(text: str) -> bool:
    return re.fullmatch(r"[\w.@+-]+(?:/[\w.@+-]+)+", text) is not None


@action(
    "compose_commit_message",
    intent="Write a commit message that says what the staged changes do, subject within 72 characters.",
    output_schema=Message,
    validator=keeps_the_form,
)
async def compose_commit_message(files: list[Any], diff: str, style: str = "conventional") -> Message:
    """A message in the conventional or in a plain style; the body has a line per file with its counts."""
    if style not in STYLES:
        raise StepFailed(f"There is no style '{style}'.{nearest(style, STYLES)} Styles: {', '.join(STYLES)}.")
    changes = changes_of(files, diff)
    if not changes:
        raise StepFailed("There are no changes to write a message about.")
    prefix = ""
    if style == "conventional":
        scope = scope_of(changes)
        prefix = f"{kind_of(changes)}{f'({scope})' if scope else ''}: "
    what = summary_of(changes, LONGEST_SUBJECT - len(prefix))
    subject = prefix + (what if prefix else what[:1].upper() + what[1:])
    body = body_of(changes)
    return {"message": f"{subject}\n\n{body}" if body else subject, "subject": subject, "body": body}
