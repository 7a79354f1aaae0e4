"""Notes and changes of tags that steps write to the journal, with their values checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from detent.kernel import checks
from detent.kernel.budget import Spend
from detent.kernel.entries import Noted, Tagged
from detent.kernel.plain import to_plain


def noted(topic: Any, spend: Any, body: Mapping[str, Any]) -> Noted:
    """A note, with its values checked."""
    if type(spend) is not Spend:
        right = 'a Spend; what a note says is given by name, as in ctx.note("weighed", kg=4)'
        raise checks.refuse("The spend of a note", spend, right)
    return Noted(checks.name("The topic of a note", topic), to_plain(body), spend)


def tagged(add: Iterable[Any], remove: Any) -> Tagged:
    """A change of tags, with its values checked."""
    return Tagged(checks.names("tags", add), checks.names("remove", remove))
