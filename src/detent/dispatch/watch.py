"""The watch over a step whose answers are used unchecked: audits, rechecks, and what each kind has earned.

It is one small mark per step, read before each visit at consultant and approver. Which visits are audited is
drawn with a secret of the store, so that no agent can tell, and the same after a resume.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import EvidenceRules, Power, Verdict
from detent.dispatch.standing import DAY, Observation, Standing, next_level

if TYPE_CHECKING:
    from detent.engine.ports import Store

WATCHES = "watch/"
"""Prefix of the marks; the step's qualified name follows."""
DRAW_KEY = "watch-key"
"""Mark that holds the secret by which audits are drawn."""


class KindWatch(NamedTuple):
    """What holds for one kind of inputs; the empty kind is that of a step without kinds."""

    recheck: int = 0
    """Clean judged visits still needed before answers are used unchecked again."""
    since: float = 0.0
    """When the recheck began."""
    earned: str = ""
    """The level that its own evidence has justified."""
    agent: str = ""
    """Fingerprint of the agent that has earned it."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The watch over one step."""

    kinds: Mapping[str, KindWatch] = field(default_factory=dict)
    day: int = 0
    """The day of the latest audit."""
    audited: int = 0
    """Audits on that day."""

    def of(self, kind: str) -> KindWatch:
        """What holds for a kind."""
        return self.kinds.get(kind, KindWatch())

    def has_earned(self, kind: str, level: AutonomyLevel, agent: str) -> bool:
        """Whether this agent's own evidence about a kind has justified a level."""
        held = self.of(kind)
        return held.agent == agent and bool(held.earned) and AutonomyLevel(held.earned) >= level

    def short_of_audits(self, now: float, rules: EvidenceRules) -> bool:
        """Whether fewer visits were audited today than every day should see."""
        return (self.audited if self.day == int(now // DAY) else 0) < rules.audit_per_day

    def after(
        self,
        seen: Observation,
        standing: Standing,
        rules: EvidenceRules,
        power: Power | None,
        *,
        share: float,
        agent: str = "",
        audit: bool = False,
    ) -> Watch:
        """The watch after a judged visit; `share` is the share of visits that is judged."""
        if not seen.verdict.judges:
            return self
        held = before = self.of(seen.kind)
        if seen.level >= AutonomyLevel.CONSULTANT:
            if seen.verdict is Verdict.DIFFERED and share < 1 and rules.recheck:
                held = held._replace(recheck=rules.recheck, since=held.since if held.recheck else seen.at)
            elif held.recheck:
                held = held._replace(recheck=held.recheck - 1)
        if seen.kind:
            held = self._earned(held, seen, standing, rules, power, agent)
        watch = self if held == before else replace(self, kinds={**self.kinds, seen.kind: held})
        if audit:
            day = int(seen.at // DAY)
            watch = replace(watch, day=day, audited=(watch.audited if watch.day == day else 0) + 1)
        return watch

    @staticmethod
    def _earned(
        held: KindWatch,
        seen: Observation,
        standing: Standing,
        rules: EvidenceRules,
        power: Power | None,
        agent: str,
    ) -> KindWatch:
        """Give a kind the level that its own evidence justifies."""
        if held.agent != agent:
            held = held._replace(earned="", agent=agent)
        level = AutonomyLevel(held.earned) if held.earned else AutonomyLevel.COLLABORATOR
        if level is AutonomyLevel.CONSULTANT and standing.level is not AutonomyLevel.CONSULTANT:
            return held
        # Judged one by one before use, the evidence is of the kind that carries the first level.
        as_gathered = standing._replace(level=level)
        above, _ = next_level(rules, level, as_gathered, power, kind=standing.kind_of(seen.kind))
        return held if above is None else held._replace(earned=above.value)

    def without(self, kind: str) -> Watch:
        """The watch after a kind has lost the level it had earned."""
        return replace(self, kinds={**self.kinds, kind: self.of(kind)._replace(earned="", recheck=0)})

    def to_plain(self) -> dict[str, Any]:
        """As the mark keeps it."""
        kinds = {kind: list(held) for kind, held in self.kinds.items()}
        return {"kinds": kinds, "day": self.day, "audited": self.audited}

    @classmethod
    def from_plain(cls, plain: Any) -> Watch:
        """Read a mark; None becomes an empty watch."""
        if not isinstance(plain, Mapping):
            return cls()
        kinds = {str(kind): KindWatch(*held) for kind, held in plain.get("kinds", {}).items()}
        return cls(kinds, int(plain.get("day", 0)), int(plain.get("audited", 0)))


async def draw_key(store: Store) -> bytes:
    """The secret of a store by which audits are drawn, made when first needed."""
    while True:
        key, version = await store.mark(DRAW_KEY)
        if key:
            return bytes.fromhex(key)
        await store.set_mark(DRAW_KEY, secrets.token_hex(32), version)


def drawn(key: bytes, place: str) -> float:
    """A number from 0 to below 1 for a visit, which nobody without the key can tell."""
    return int.from_bytes(keyed(key, place)[:6], "big") / (1 << 48)


def keyed(key: bytes, text: str) -> bytes:
    """A digest that tells nothing about a short text to those without the key."""
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
