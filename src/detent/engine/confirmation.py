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
from detent.kernel.entries import Body, EffectSkipped, Held, Proposed
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import brief, decode, digest, encode, writable

if TYPE_CHECKING:
    from detent.engine.work import Work

CONFIRM = "confirm"
"""Kind of the hold, and beginning of its name."""
YES, NO, EDIT = "yes", "no", "edit"
DENIED, EDITED = "denied", "edited"
LONGEST_SHOWN = 20_000
"""Characters of a preview that are shown."""


async def decide(
    driver: Work, tool: Tool, item: Mapping[str, Any], args: Mapping[str, Any], pending: Sequence[Body]
) -> bool | EffectSkipped | None:
    """What a person has decided on an effect: True to perform it, or how it is left out.

    None when the run waits for the answer, or performs another effect in its place; that is committed then,
    together with `pending`.
    """
    run, key = driver.run, item["key"]
    shown = await _preview(tool, args)
    name = f"{CONFIRM}:{key}:{digest(shown, 8)}"
    if name not in run.answers:
        about: dict[str, Any] = {"tool": tool.name, "args": brief(dict(args), tool.private)}
        if shown is not None and not tool.private:
            about["shown"] = shown
        await driver.commit(*pending, Held(name, CONFIRM, item["confirm"], about=about))
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
        await driver.commit(*pending, *_edited(driver, tool, item, edited, by))
        return None
    reason = answer.get(NO) if isinstance(answer, Mapping) else None
    return EffectSkipped(key, tool.name, by, f"{DENIED}: {reason}" if reason else DENIED)


def _edited(driver: Work, tool: Tool, item: Mapping[str, Any], args: Any, by: str) -> list[Body]:
    """The effect that a person has put in the place of another, proposed by the person's word."""
    run, proposal = driver.run, driver.run.proposal
    step = run.state if proposal is None else proposal.step
    effect = Effect(tool.name, tool.normal(args))
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


def check_answer(tool: Tool, answer: Any) -> None:
    """Raise `ConfigurationError` unless an answer is one that a confirmation takes."""
    if answer in (YES, NO):
        return
    if isinstance(answer, Mapping) and set(answer) == {NO} and isinstance(answer[NO], str):
        return
    if isinstance(answer, Mapping) and set(answer) == {EDIT} and isinstance(answer[EDIT], Mapping):
        if problems := tool.misfits(answer[EDIT]):
            raise ConfigurationError(f"'{tool.name}' does not take these arguments: {'; '.join(problems)}.")
        return
    raise ConfigurationError(
        f'A confirmation takes "{YES}", "{NO}", {{"{NO}": "<why>"}} or {{"{EDIT}": {{<arguments>}}}}.'
    )


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
