"""Plants drafts in the review queue, and takes the verdicts on them."""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch.agent_side import agent_side
from detent.dispatch.draft import Draft, DraftVerdict, Review, with_texts
from detent.dispatch.draft_plants import PLANTS, DraftPlants, PlantedDraft, Source
from detent.dispatch.plan import facts_of
from detent.dispatch.planted_drafts import PlantedClaim, planted_claims
from detent.dispatch.sentence_marks import sentences
from detent.dispatch.watch import drawn, keyed
from detent.engine import logger
from detent.engine.calls import call
from detent.engine.trial_context import TrialContext
from detent.kernel.errors import Fenced, StoreUnavailable
from detent.kernel.plain import decode, encode
from detent.kernel.run_config import REPLAYED

if TYPE_CHECKING:
    from detent.dispatch.draft_review import DraftReview
    from detent.dispatch.evidence_log import EvidenceLog
    from detent.dispatch.gate import Side
    from detent.dispatch.plan import Plan
    from detent.engine.context import StepContext
    from detent.engine.ports import Store
    from detent.engine.work import Work

ID_BYTES = 5
LIKE = 0.75
"""Share of an added claim's words by which an edited sentence still makes it."""
_WORD = re.compile(r"\w+(?:['’./-]\w+)*")


def draft_id(key: bytes, run: str, token: str) -> str:
    """The name of a draft in the queue; without the key nobody can tell it from that of a planted one."""
    return keyed(key, f"draft\n{run}\n{token}")[:ID_BYTES].hex()


def plants_mark(step: str, check: str) -> str:
    """Key of the mark that holds the planted drafts of a step under a check."""
    return f"{PLANTS}{step}/{check}"


class DraftPlanting:
    """Plants drafts of one step, from a visit of it."""

    def __init__(self, plan: Plan, ctx: StepContext, driver: Work, evidence: EvidenceLog) -> None:
        self.plan = plan
        self.ctx = ctx
        self.driver = driver
        self.store = driver.engine.store
        self.evidence = evidence
        self.rules = evidence.rules
        self.key = b""

    async def follow(self, review: DraftReview, decision: Review | None, side: Side) -> None:
        """Plant beside a draft that begins to wait; make wrong drafts of one that a person approved."""
        tape = self.driver.engine.tape
        recorded = self.driver.run.config.get(REPLAYED) or (tape is not None and tape.plays)
        if recorded or not (self.rules.plant or self.rules.plant_first):
            return
        try:
            self.key = await self.evidence.draw_key(self.store)
            if decision is None:
                place = f"{self.driver.flow.name}/{self.driver.run.state}"
                await self.arrived(review.shown.hold, place)
            elif decision.verdict is DraftVerdict.APPROVED:
                await self.approved(review.draft, side)
        except (Fenced, StoreUnavailable):
            raise
        except Exception as error:  # no customer waits because a reviewer cannot be measured
            facts = facts_of(self.plan, self.driver.run)
            logger.error("review.planting_failed", **facts, error=type(error).__name__)

    async def arrived(self, hold: str, place: str) -> None:
        """A draft has begun to wait: plant others beside it, if any are drawn."""
        now, at = self.ctx.now(), f"{self.ctx.run_id}\n{hold}"
        chances = [drawn(self.key, f"plant\n{number}\n{at}") for number in range(3)]
        ids = [secrets.token_hex(ID_BYTES) for _ in range(2)]
        within = self.plan.config.review_within
        await self._change(
            lambda plants: plants.after_arrival(hold, now, self.rules, chances, ids, place, within)
        )

    async def approved(self, draft: Draft, side: Side) -> None:
        """A person has found a draft right: wrong ones can be made from it."""
        refused: dict[str, int] = {}
        made: dict[str, tuple[str, PlantedClaim]] = {}
        claims = [
            (place, claim)
            for place, text in draft.written.items()
            for claim in planted_claims(text, draft.own.get(place, ""), draft.facts, draft.language)
        ]
        seed = keyed(self.key, f"claims\n{self.ctx.run_id}\n{draft.hold}").hex()
        random.Random(seed).shuffle(claims)
        for place, claim in claims:
            if claim.sort.value in made:
                continue
            if await self._is_refused(side, {**draft.written, place: claim.text}):
                refused[claim.sort.value] = refused.get(claim.sort.value, 0) + 1
            else:
                made[claim.sort.value] = (place, claim)
        texts = [
            {"place": place, "text": claim.text, "sort": sort, "before": claim.before, "after": claim.after}
            for sort, (place, claim) in made.items()
        ]
        kept = self.ctx.keep(encode({"draft": draft.to_plain(), "planted": texts}))
        source = Source(self.ctx.run_id, str(kept["$blob"]), tuple(made))
        await self._change(lambda plants: plants.with_source(source, refused))

    async def _is_refused(self, side: Side, texts: Mapping[str, str]) -> bool:
        """Whether the hard contract refuses a text."""
        step = self.plan.step
        contract = agent_side(step).text_contract
        outcome = with_texts(self.plan, side, texts).outcome
        return contract is not None and bool(await call(contract, None, TrialContext(self.ctx), outcome))

    async def _change(self, change: Callable[[DraftPlants], DraftPlants]) -> None:
        await change_plants(self.store, plants_mark(self.plan.qualified, self.plan.check_fingerprint), change)


async def change_plants(store: Store, key: str, change: Callable[[DraftPlants], DraftPlants]) -> DraftPlants:
    """Change the planted drafts of a step, which others may change too; gives them as they were before."""
    while True:
        mark, version = await store.mark(key)
        before = DraftPlants.from_plain(mark)
        after = change(before)
        if after == before or await store.set_mark(key, after.to_plain(), version):
            return before


class ReadPlant(NamedTuple):
    """A planted draft with its text."""

    draft: Draft
    """As it is shown: the wrong text in the place of the right one."""
    sort: str
    before: str
    after: str

    @property
    def what(self) -> str:
        """What was planted, in words."""
        return f"'{self.after}' in place of '{self.before}'" if self.before else f"'{self.after}' was added"

    def is_caught_by(self, answer: Mapping[str, Any]) -> bool:
        """Whether a person's verdict shows that they noticed: they did not use it, or took the claim out."""
        review = Review.of(self.draft, answer)
        if review.verdict in (DraftVerdict.HANDLER, DraftVerdict.UNJUDGED):
            return True
        return not any(
            self._holds(sentence) for text in review.texts.values() for sentence in sentences(text)
        )

    def _holds(self, sentence: str) -> bool:
        """Whether a sentence makes the planted claim, also with another word or sign in it."""
        planted, before, words = (
            _WORD.findall(text.casefold()) for text in (self.after, self.before, sentence)
        )
        if f" {' '.join(planted)} " in f" {' '.join(words)} ":
            return True
        if before:
            new = set(planted) - set(before)
            return bool(new) and new <= set(words)
        return len(set(planted) & set(words)) >= LIKE * len(set(planted))


async def read_plant(store: Store, plant: PlantedDraft) -> ReadPlant | None:
    """A planted draft with its text; None where the run it was made from was purged."""
    raw = await store.blob(plant.kept)
    if raw is None:
        return None
    kept = decode(raw)
    draft, claim = Draft.from_plain(kept["draft"]), kept["planted"][plant.number]
    written = {**draft.written, claim["place"]: claim["text"]}
    shown = replace(draft, written=written, problems=(), edition=0)
    return ReadPlant(shown, claim["sort"], claim["before"], claim["after"])
