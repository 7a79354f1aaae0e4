"""A person's word on one effect before it is performed: yes, no, or other arguments.

The question shows the exact arguments, and the answer holds for these alone: its name is made from the
effect's key and from what was shown, so that it is asked again when that no longer holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine.calls import TimeLimit, call
from detent.engine.offloaded import blob_of, kept_beside
from detent.engine.outcome import Effect
from detent.engine.placeholders import written
from detent.engine.tools import Tool
from detent.kernel.effect_key import action_of, effect_key
from detent.kernel.entries import CONFIRM, EDITED, Body, EffectSkipped, Held, Proposed
from detent.kernel.entries import DENIED as DENIED
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import brief, decode, digest, encode, writable

if TYPE_CHECKING:
    from detent.engine.work import Work

YES, NO, EDIT = "yes", "no", "edit"
ANSWERS = f'"{YES}", "{NO}", {{"{NO}": "<why>"}} or {{"{EDIT}": {{<arguments to change>}}}}'
LONGEST_SHOWN = 20_000
"""Characters of the arguments, and of a preview, that are shown."""


async def decide(
    driver: Work, tool: Tool, item: Mapping[str, Any], args: Mapping[str, Any], pending: Sequence[Body]
) -> bool | EffectSkipped | None:
    """What a person has decided on an effect: True to perform it, or how it is left out.

    None when the run waits for the answer, or performs another effect in its place; that is committed then,
    together with `pending`. What a person has denied already is not previewed again.

    Raises:
        ToolError: the preview says that it cannot be done, so that there is nothing to ask.
    """
    run, key = driver.run, item["key"]
    answered = [other for other in run.answers if key_of(other) == key]
    denied = next((other for other in answered if _is_no(run.answers[other])), None)
    if denied is not None:  # a no holds, whatever would be shown by now
        shown, name = None, denied
    else:
        shown = await _preview(tool, args)
        name = f"{CONFIRM}:{key}:{digest(shown, 8)}"
    earlier = [other for other in answered if other != name]
    if name not in run.answers:
        question = (
            f"{item['confirm']} (What is shown has changed since the answer.)" if earlier else item["confirm"]
        )
        about: dict[str, Any] = {
            "tool": tool.name, "args": brief(dict(args), tool.private, LONGEST_SHOWN)
        }  # fmt: skip
        if shown is not None and not tool.private:
            about["shown"] = shown
        await driver.commit(*pending, Held(name, CONFIRM, question, about=about))
        return None
    answer, by = run.answers[name], str(run.answered_by[name][0])
    if answer == YES:
        return True
    if isinstance(answer, Mapping) and EDIT in answer:
        edited = answer[EDIT]
        if set(edited) == {"$blob", "size"}:
            raw = await driver.log.blob(edited["$blob"])
            if raw is None:
                raise ConfigurationError(f"What '{tool.name}' was changed to was purged meanwhile.")
            edited = decode(raw)
        edited = tool.normal({**args, **edited})
        if edited == tool.normal(args):  # nothing was changed
            return True
        await driver.commit(*pending, *_edited(driver, tool, item, edited, by))
        return None
    reason = answer.get(NO) if isinstance(answer, Mapping) else None
    return EffectSkipped(key, tool.name, by, f"{DENIED}: {reason}" if reason else DENIED)


def _edited(
    driver: Work, tool: Tool, item: Mapping[str, Any], args: Mapping[str, Any], by: str
) -> list[Body]:
    """The effect that a person has put in the place of another, proposed by the person's word."""
    run, proposal = driver.run, driver.run.proposal
    step = run.state if proposal is None else proposal.step
    effect = Effect(tool.name, args)
    action = effect.identity(step)
    key = effect_key(action, run.visit, sum(action_of(settled) == action for settled in run.settled))
    plain = written(dict(effect.args))
    if tool.private:
        blob = blob_of(encode(plain))
        driver.keep(blob)
        plain = kept_beside(blob.body)
    skipped = EffectSkipped(item["key"], tool.name, by, EDITED, key)
    instead = {"key": key, "tool": tool.name, "args": plain}
    return [skipped, Proposed(step, {}, [instead], by=by, round=run.round + 1, final=False, side=True)]


def _is_no(answer: Any) -> bool:
    return answer == NO or (isinstance(answer, Mapping) and NO in answer)


def key_of(hold: str) -> str:
    """The key of the effect that a confirmation of this name is about."""
    return hold.removeprefix(f"{CONFIRM}:").rpartition(":")[0]


def check_answer(tool: Tool, args: Mapping[str, Any], answer: Any) -> None:
    """Raise `ConfigurationError` unless an answer is one that a confirmation takes.

    `args` are the arguments that were shown; an edit may change some of them and keeps the others.
    """
    if answer in (YES, NO):
        return
    if isinstance(answer, Mapping) and set(answer) == {NO} and isinstance(answer[NO], str):
        return
    if isinstance(answer, Mapping) and set(answer) == {EDIT} and isinstance(answer[EDIT], Mapping):
        if problems := _misfits(tool, args, answer[EDIT]):
            raise ConfigurationError(f"'{tool.name}' cannot be changed like this: {'; '.join(problems)}.")
        return
    raise ConfigurationError(f"A confirmation takes {ANSWERS}.")


def _misfits(tool: Tool, args: Mapping[str, Any], edit: Mapping[str, Any]) -> list[str]:
    """Problems that an edit brings into the arguments, each with the argument's name."""
    known = list(tool.schema.get("properties") or args)
    closed = tool.schema.get("additionalProperties") is False
    if unknown := [name for name in edit if closed and name not in known]:
        names = ", ".join(known) or "none"
        return [f"it has no argument '{name}'.{nearest(name, known)} Arguments: {names}" for name in unknown]
    before = tool.misfits(args)  # code may pass what an agent may not
    after = tool.misfits({**args, **edit})
    return [problem.removeprefix("/") for problem in after if problem not in before]


def kept_answer(driver: Work, tool: Tool, answer: Any) -> Any:
    """An answer as the journal keeps it: arguments of a private tool are kept outside."""
    if not (tool.private and isinstance(answer, Mapping) and EDIT in answer):
        return answer
    blob = blob_of(encode(answer[EDIT]))
    driver.keep(blob)
    return {EDIT: kept_beside(blob.body)}


async def _preview(tool: Tool, args: Mapping[str, Any]) -> str | None:
    """What a person is shown beside the arguments."""
    if tool.preview is None:
        return None
    async with TimeLimit(tool.timeout):
        return writable(str(await call(tool.preview, tool.off_loop, **args)))[:LONGEST_SHOWN]
