"""The spans of a sentence that have the form of a threshold, by the grammar of metrics and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from detent.flows.notebook.domain.metric_words import AFTER_OR, TURNED, Amount, Side, Token, words

Form = Literal["metric compare number", "compare number metric", "metric number", "number metric"]
FORMS: tuple[Form, ...] = (
    "metric compare number", "compare number metric", "metric number", "number metric",
)  # fmt: skip
"""The likelier one first."""
FILLER_WORDS = 4
FILLER_MARKS = frozenset(",():-–—\"'`*=~[]|_→")
LINK_MARKS = frozenset("():=~≈\"'`*_-–—|→")

BEFORE_NUMBER = words("about around approximately roughly the a an of to some or")
"""Words that may stand between a comparison and its number."""
LINKS = words(
    "of is are be at to about around approximately roughly should must shall has have target goal "
    "score value the a an was were had down equal equals reach reaches reaching hit hits "
    "need needs needed required requirement threshold"
)
"""Words that may stand between a metric and its number."""
BEFORE_METRIC = words(
    "in of for on the a an mean average test cv cross-validated validation hold-out holdout "
    "out-of-sample overall total macro weighted model dollars usd eur euros gbp or"
)
"""Words that may stand between a number and its metric."""
NOT_FILLER_FIRST = words("and or using from where given based plus with")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A threshold that a span of tokens may set."""

    first: int
    last: int
    metric_place: int
    form: Form
    side: Side
    amount: Amount
    filler: tuple[Token, ...] = ()
    after: str = ""
    """The word behind the number."""
    compared_by: str = ""
    turned: bool = False
    """A `not` before the metric has turned the comparison round."""

    @property
    def length(self) -> int:
        return self.last - self.first


def find_candidates(tokens: Sequence[Token]) -> list[Candidate]:
    """Every span that may be a threshold; spans may overlap."""
    return list(_Finder(tokens).candidates())


def choose_candidates(candidates: Sequence[Candidate], tokens: int) -> list[Candidate]:
    """The candidates that share no token and read the most; of equals, the likelier forms."""
    ending: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        ending.setdefault(candidate.last, []).append(candidate)
    best: list[tuple[tuple[int, int, int], list[Candidate]]] = [((0, 0, 0), [])]
    for last in range(tokens):
        score, chosen = best[-1]
        for candidate in ending.get(last, ()):
            (count, rank, length), before = best[candidate.first]
            other = (count + 1, rank - FORMS.index(candidate.form), length - candidate.length)
            if other > score:
                score, chosen = other, [*before, candidate]
        best.append((score, chosen))
    return best[-1][1]


def token_at(tokens: Sequence[Token], place: int) -> Token:
    """The token at a place; beyond the ends, a stop."""
    return tokens[place] if 0 <= place < len(tokens) else Token("stop", "", -1, -1)


def _without_asides(tokens: Sequence[Token]) -> list[Token]:
    """The words among some tokens, those in parentheses left out: `RMSE (on the test set) < 25000`."""
    depth = 0
    kept = []
    for token in tokens:
        if token.text in "()":
            depth += 1 if token.text == "(" else -1
        elif token.kind != "mark" and depth <= 0:
            kept.append(token)
    return kept


class _Finder:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens

    def candidates(self) -> Iterator[Candidate]:
        for place, token in enumerate(self.tokens):
            if token.kind not in ("metric", "other_metric"):
                continue
            for candidate in (
                self._compared_after(place),
                self._number_after(place),
                self._number_before(place),
                self._sign_before(place),
            ):
                if candidate is not None:
                    yield candidate

    def _compared_after(self, place: int) -> Candidate | None:
        """`RMSE must stay below 25000`."""
        filler: list[Token] = []
        at = place + 1
        while at < len(self.tokens) and self.tokens[at].kind != "compare":
            token = self.tokens[at]
            if token.kind not in ("word", "not", "mark"):
                return None
            if token.kind == "mark" and token.text not in FILLER_MARKS:
                return None
            filler.append(token)
            at += 1
        worded = _without_asides(filler)
        if at >= len(self.tokens) or len(worded) > FILLER_WORDS:
            return None
        if worded and worded[0].word in NOT_FILLER_FIRST and filler[0] is worded[0]:
            return None
        number = self._number_behind(at)
        if number is None:
            return None
        side = self.tokens[at].side
        assert side is not None
        if sum(token.kind == "not" for token in filler) % 2:
            side = TURNED[side]
        return self._candidate(place, place, number, "metric compare number", side, filler, at)

    def _number_behind(self, compare: int) -> int | None:
        """Where the number of a comparison stands."""
        at = compare + 1
        while at < len(self.tokens) and at <= compare + 3:
            token = self.tokens[at]
            if token.kind == "number":
                return at
            if not (token.word in BEFORE_NUMBER or token.text in "(:≈~±"):
                return None
            at += 1
        return None

    def _number_after(self, place: int) -> Candidate | None:
        """`RMSE of $25,000 or less`, `accuracy: 90%`."""
        at = place + 1
        filler: list[Token] = []
        while at < len(self.tokens) and len(filler) <= FILLER_WORDS:
            token = self.tokens[at]
            if token.kind == "number":
                return self._candidate(place, place, at, "metric number", "at good", filler, None)
            if not (token.word in LINKS or (token.kind == "mark" and token.text in LINK_MARKS)):
                return None
            filler.append(token)
            at += 1
        return None

    def _number_before(self, place: int) -> Candidate | None:
        """`at least 0.85 R²`, `with 90% accuracy`."""
        at = place - 1
        side: Side = "at good"
        while at >= 0 and place - at <= 4 and self.tokens[at].kind != "number":
            token = self.tokens[at]
            if token.word in AFTER_OR and at > 0 and self.tokens[at - 1].word == "or":
                side = AFTER_OR[token.word]
            elif not (token.word in BEFORE_METRIC or token.text in "+$€£"):
                return None
            at -= 1
        if at < 0 or self.tokens[at].kind != "number":
            return None
        compare = at - 1
        while compare >= 0 and at - compare <= 3 and self.tokens[compare].word in BEFORE_NUMBER:
            compare -= 1
        if compare >= 0 and self.tokens[compare].kind == "compare":
            return self._compared_before(place, at, compare)
        links = {token.word for token in self.tokens[at + 1 : place]}
        if links & {"in", "of", "for", "on"}:
            return None
        return self._candidate(place, at, at, "number metric", side, [], None)

    def _compared_before(self, place: int, number: int, compare: int) -> Candidate | None:
        side = self.tokens[compare].side
        assert side is not None
        first = compare
        for back in range(compare - 1, max(-1, compare - 4), -1):
            token = self.tokens[back]
            if token.kind == "not":
                side, first = TURNED[side], back
                break
            if token.kind != "word":
                break
        return self._candidate(place, first, number, "compare number metric", side, [], compare)

    def _sign_before(self, place: int) -> Candidate | None:
        """`0.85 <= R²`."""
        if place < 2 or not self.tokens[place - 1].symbol or self.tokens[place - 2].kind != "number":
            return None
        side = self.tokens[place - 1].side
        assert side is not None
        mirrored: Side = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[side]  # type: ignore[assignment]
        return self._candidate(place, place - 2, place - 2, "compare number metric", mirrored, [], place - 1)

    def _candidate(
        self, place: int, first: int, number: int, form: Form, side: Side, filler: list[Token], by: int | None
    ) -> Candidate | None:
        amount = self.tokens[number].amount
        assert amount is not None
        last = max(place, number)
        after = self._at(number + 1)
        if form == "metric number" and after.word == "or" and self._at(number + 2).word in AFTER_OR:
            side, last, after = AFTER_OR[self._at(number + 2).word], number + 2, self._at(number + 3)
        return Candidate(
            first=first,
            last=last,
            metric_place=place,
            form=form,
            side=side,
            amount=amount,
            filler=tuple(filler),
            after=after.word if after.kind in ("word", "compare") else "",
            compared_by=self.tokens[by].word if by is not None else "",
        )

    def _at(self, place: int) -> Token:
        return token_at(self.tokens, place)
