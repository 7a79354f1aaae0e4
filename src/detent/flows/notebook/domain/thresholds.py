"""Reads the thresholds that a user's sentence sets on scores."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from detent.flows.notebook.domain.metric_words import (
    LOWER_IS_BETTER,
    NEGATIONS,
    SHARES,
    TURNED,
    Side,
    tokens_of,
    words,
)
from detent.flows.notebook.domain.problem import Comparison, MetricName, ProblemError, Threshold
from detent.flows.notebook.domain.threshold_candidates import (
    BEFORE_NUMBER,
    Candidate,
    choose_candidates,
    find_candidates,
    token_at,
)

PRESENT = words(
    "current existing previous previously present old last earlier baseline benchmark former "
    "currently today's status-quo dummy naive"
)
PAST_VERBS = words("was were had got gave been achieved reached scored reported reaches")
NEGATION = re.compile(NEGATIONS)
REFUSING = words(
    "want wants need needs accept tolerate allow have having require expect get see let us me be any "
    "an a the with of for anything test"
)
"""Words that carry a `not` on to a metric: `do not accept an R² below 0.8`."""
WISHES = words(
    "want wants need needs should must require required goal target aim and but so now to until reach "
    "get achieve"
)

THINGS = words(
    "rows row records record samples sample observations observation instances examples features "
    "feature columns column variables variable predictors models model trees tree folds fold epochs "
    "iterations estimators neighbors parameters characters words pages files customers people users "
    "patients houses"
)
TIMES = words("seconds second secs sec s minutes minute mins min hours hour h ms milliseconds")
UNITS = words("decimals decimal digits digit places degrees mm cm m km metres meters kg") | TIMES
AFTER_SHARE = words(
    "or on for with and in at by to is should but while when as across over of from using per please "
    "points point overall plus or if since because that which we i the then under against without "
    "after is are must if score target goal minimum min max maximum would will than"
)
"""Words that may follow a share that is written as a whole number: not the name of something counted."""
SCORED = words(
    "is be must should of on the test set score scores has have to stay remain go get fall drop lie "
    "at all model's final mean average value needs hold-out holdout validation unseen data "
    "cross-validation cv that which it we want a an our not never cannot can will with for in out-of-sample"
)
"""Words of a filler that still speaks of the score."""
SCORES = words("error errors loss score scores performance deviation quality rate")
"""Words for a score that say not which."""
NUMERALS = words(
    "zero one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty "
    "sixty seventy eighty ninety hundred half"
)
NAME_A_METRIC = "name a metric, such as MAE < 5"
LEAST_PERCENTAGE = 10
"""From here up a number above 1 without a sign is a percentage where its metric is a share."""
SOFT = frozenset(("over", "above", "under", "within", "up to", "below", "more than", "less than"))
"""Comparisons that are also prepositions: `over 2019`."""


@dataclass(frozen=True, slots=True)
class MetricMention:
    """A metric that the sentence names, and whether a threshold is set on it."""

    metric: MetricName
    has_threshold: bool


def read_thresholds(
    problem: str, columns: Collection[str] = ()
) -> tuple[tuple[Threshold, ...], tuple[str, ...]]:
    """The thresholds a sentence sets, in its order, and what was named but not read.

    A metric's name that is also a name in `columns` is taken for the column.

    Raises:
        ProblemError: a threshold is against its metric's nature, such as an RMSE above something, or out of
            reach, such as an R² above 1.5.
    """
    reading = _Reading(problem, columns)
    if reading.beyond:
        raise ProblemError(" ".join(map(_beyond_reach, reading.beyond)))
    against = [threshold for threshold in reading.thresholds if not _is_natural(threshold)]
    if against:
        raise ProblemError(" ".join(map(_against_nature, against)))
    return reading.thresholds, reading.warnings


def metrics_named(problem: str, columns: Collection[str] = ()) -> tuple[MetricMention, ...]:
    """The metrics a sentence names, in its order, each once."""
    reading = _Reading(problem, columns)
    with_threshold = {threshold.metric for threshold in reading.thresholds}
    names = dict.fromkeys(
        token.metric for place, token in enumerate(reading.tokens) if place in reading.metric_places
    )
    return tuple(MetricMention(name, name in with_threshold) for name in names if name is not None)


def _is_natural(threshold: Threshold) -> bool:
    return threshold.comparison.startswith("<") == (threshold.metric in LOWER_IS_BETTER)


def _against_nature(threshold: Threshold) -> str:
    better, right = ("lower", "below") if threshold.metric in LOWER_IS_BETTER else ("higher", "above")
    return (
        f"'{threshold.text}' is read as {threshold}, but of {threshold.metric} {better} is better. "
        f"Write '{threshold.metric} {right} {threshold.value:.12g}'."
    )


def _beyond_reach(threshold: Threshold) -> str:
    return (
        f"'{threshold.text}': {threshold.metric.upper()} is 1 at most, and a number of less than "
        "10 is no percentage without its sign. Write a share, such as 0.9, or a percentage, such as 90%."
    )


class _Reading:
    """One reading of a sentence."""

    def __init__(self, problem: str, columns: Collection[str]) -> None:
        self.problem = problem
        self.tokens = tokens_of(problem)
        self.warnings_by_place: dict[int, str] = {}
        self.column_places = {place for place in self._metrics() if self._names_column(place, columns)}
        self.metric_places = {
            place for place in self._metrics() if place not in self.column_places
            and self.tokens[place].kind == "metric"
        }  # fmt: skip
        self.thresholds: tuple[Threshold, ...] = ()
        self.beyond: list[Threshold] = []
        """Thresholds that no score can reach as they are written."""
        self._read()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for _, text in sorted(self.warnings_by_place.items())))

    def _metrics(self) -> Iterator[int]:
        for place, token in enumerate(self.tokens):
            if token.kind in ("metric", "other_metric"):
                yield place

    def _names_column(self, place: int, columns: Collection[str]) -> bool:
        """Whether the name of a metric stands for a column here."""
        token = self.tokens[place]
        before = self.tokens[place - 1] if place else None
        after = self.tokens[place + 1] if place + 1 < len(self.tokens) else None
        if before is not None and before.text in "`'\"" and after is not None and after.text == before.text:
            return True
        if token.text in columns:
            return True
        words = ("column", "columns", "variable", "field", "feature", "named", "called")
        return (before is not None and before.word in words) or (
            after is not None and after.word in words[:5] and not (before is not None and before.word == "by")
        )

    def _read(self) -> None:
        tried = [self._turned(candidate) for candidate in find_candidates(self.tokens)]
        usable = [candidate for candidate in tried if self._refusal(candidate) is None]
        chosen = choose_candidates(usable, len(self.tokens))
        thresholds = []
        for candidate in chosen:
            token = self.tokens[candidate.metric_place]
            if token.metric is None:
                self._warn(candidate, f"'{token.text}' is a metric that is not measured here")
            elif candidate.metric_place in self.column_places:
                self._warn(candidate, f"'{token.text}' is taken for the column of this name")
            elif _is_beyond(candidate, token.metric):
                self.beyond.append(self._threshold(candidate, token.metric))
            else:
                thresholds.append(self._threshold(candidate, token.metric))
                if _is_bare_percentage(candidate, token.metric):
                    self._warn(candidate, f"the number is read as {candidate.amount.value:g} %")
                elif candidate.amount.doubtful:
                    value = f"{candidate.amount.value:g}"
                    self._warn(candidate, f"the number is read as {value}, not as thousands")
        self.thresholds = tuple(dict.fromkeys(thresholds))
        self._warn_of_the_rest(tried, {candidate.metric_place for candidate in chosen})
        told = [candidate for candidate in tried if candidate.metric_place in self.warnings_by_place]
        self._warn_of_unnamed([*chosen, *told])

    def _warn(self, candidate: Candidate, why: str) -> None:
        self.warnings_by_place.setdefault(candidate.metric_place, f"{self._quoted(candidate)}: {why}.")

    def _warn_of_the_rest(self, tried: Sequence[Candidate], done: set[int]) -> None:
        """Name every metric on which nothing was read."""
        read = {threshold.metric for threshold in self.thresholds}
        for place in self._metrics():
            token = self.tokens[place]
            if place in done or place in self.column_places:
                continue
            refused = [candidate for candidate in tried if candidate.metric_place == place]
            reasons = [(candidate, self._refusal(candidate)) for candidate in refused]
            reasons = [(candidate, reason) for candidate, reason in reasons if reason is not None]
            if reasons:
                candidate, reason = reasons[0]
                self._warn(candidate, f"not read as a threshold, because {reason}")
            elif token.metric is None:
                self.warnings_by_place[place] = f"'{token.text}' is a metric that is not measured here."
            elif (bound := self._unread_bound(place)) is not None:
                self.warnings_by_place[place] = f"The bound in '{bound}' could not be read; write a number."
            elif token.metric not in read:
                self.warnings_by_place[place] = f"'{token.text}' is named without a threshold."

    def _unread_bound(self, place: int) -> str | None:
        """A metric with a comparison behind it and no number: `MAE < four`."""
        for at in range(place + 1, min(place + 4, len(self.tokens) - 1)):
            token, after = self.tokens[at], self.tokens[at + 1]
            if token.kind == "compare" and (
                token.symbol or after.word in NUMERALS or after.text[0].isdigit()
            ):
                end = after.end
                while end < len(self.problem) and not self.problem[end].isspace():
                    end += 1
                return " ".join(self.problem[self.tokens[place].start : end].rstrip(".,;:").split())
            if token.kind not in ("word", "not"):
                return None
        return None

    def _warn_of_unnamed(self, done: Sequence[Candidate]) -> None:
        """Name bounds that no metric is named for: `an error below 5%`, `within 5 minutes`."""
        covered = {place for candidate in done for place in range(candidate.first, candidate.last + 1)}
        for place, token in enumerate(self.tokens):
            at = place + 1
            while token_at(self.tokens, at).word in BEFORE_NUMBER:
                at += 1
            number, after = token_at(self.tokens, at), token_at(self.tokens, at + 1)
            if token.kind != "compare" or number.kind != "number" or covered & {place, at}:
                continue
            first = place
            for back in range(place - 1, max(-1, place - 4), -1):
                if self.tokens[back].kind not in ("word", "not"):
                    break
                if back == place - 1 or self.tokens[back].word in SCORES:
                    first = back
            if after.word in THINGS and self.tokens[first].word not in SCORES:
                continue
            last = after if after.kind == "word" else number
            text = " ".join(self.problem[self.tokens[first].start : last.end].split())
            self.warnings_by_place[place] = f"No threshold was read from '{text}'; {NAME_A_METRIC}."

    def _quoted(self, candidate: Candidate) -> str:
        return f"'{self._text(candidate)}'"

    def _text(self, candidate: Candidate) -> str:
        text = self.problem[self.tokens[candidate.first].start : self.tokens[candidate.last].end]
        return " ".join(text.split())

    def _threshold(self, candidate: Candidate, metric: MetricName) -> Threshold:
        value = candidate.amount.value
        if candidate.amount.percent or _is_bare_percentage(candidate, metric):
            # By the decimal point: 0.9 must not come out as 0.9000000000000001.
            value = float(f"{value / 100:.12g}")
        return Threshold(metric, _comparison(candidate.side, metric), value, self._text(candidate))

    def _turned(self, candidate: Candidate) -> Candidate:
        """The candidate as it is meant if something is refused: `we do not want an RMSE above 25000`."""
        metric = self.tokens[candidate.metric_place].metric
        if metric is None or self._natural(candidate, metric) or not self._is_refused(candidate):
            return candidate
        return replace(candidate, side=TURNED[candidate.side], turned=True)

    def _is_refused(self, candidate: Candidate) -> bool:
        for word in reversed(self._clause_before(candidate.first)):
            if NEGATION.fullmatch(word):
                return True
            if word not in REFUSING:
                return False
        return False

    # -- what is no threshold -------------------------------------------------------------------------------

    def _refusal(self, candidate: Candidate) -> str | None:
        """Why the words set no threshold, though they have the form of one."""
        metric = self.tokens[candidate.metric_place].metric
        if metric is None:
            return None
        return (
            self._value_refusal(candidate, metric)
            or self._count_refusal(candidate, metric)
            or self._context_refusal(candidate, metric)
        )

    def _value_refusal(self, candidate: Candidate, metric: MetricName) -> str | None:
        amount, name = candidate.amount, self.tokens[candidate.metric_place].text
        number = token_at(self.tokens, candidate.last)
        if self._is_negative(candidate):
            return "its number is negative"
        if metric not in SHARES:
            return f"{name} is no share, so a percentage says nothing of it" if amount.percent else None
        if amount.scaled or amount.currency:
            return f"{name} is a share"
        if candidate.form == "number metric" and _is_beyond(candidate, metric):
            return f"{name} is a share, and {amount.value:g} is none"
        if metric != "mape" and amount.value > 100:
            return f"{name} is a share, and {number.text if number.amount else amount.value} is none"
        return None

    def _is_negative(self, candidate: Candidate) -> bool:
        for place in range(candidate.first, candidate.last + 1):
            token = self.tokens[place]
            if token.amount is candidate.amount:
                before = token_at(self.tokens, place - 1)
                return (
                    before.text == "-"
                    and before.end == token.start
                    and token_at(self.tokens, place - 2).kind == "compare"
                )
        return False

    def _count_refusal(self, candidate: Candidate, metric: MetricName) -> str | None:
        """Why the number belongs to something else: rows, minutes, a year."""
        amount, after = candidate.amount, candidate.after
        if candidate.form in ("metric compare number", "metric number"):
            comma = any(token.text == "," for token in candidate.filler)
            prepositions = {token.word for token in candidate.filler} & {
                "in",
                "within",
                "for",
                "using",
                "with",
            }
            if after in THINGS or (after in TIMES and (comma or prepositions or metric in SHARES)):
                return f"the number counts {after}"
            if metric in SHARES and after in UNITS:
                return f"the number counts {after}"
            if metric in SHARES and amount.value > 1 and not amount.percent:
                if after and after not in AFTER_SHARE:
                    return f"the number may count '{after}'"
                filler = [token.word for token in candidate.filler if token.kind == "word"]
                if any(word not in SCORED for word in filler):
                    return "the number may be about something else"
        year = amount.whole and 1900 <= amount.value <= 2100
        bare = candidate.form in ("metric number", "number metric")
        if year and (bare or (candidate.compared_by in SOFT and not self._natural(candidate, metric))):
            return f"{amount.value:g} may be a year"
        return None

    def _context_refusal(self, candidate: Candidate, metric: MetricName) -> str | None:
        """Why the words tell of something else than a goal."""
        if any(token.word in PAST_VERBS for token in candidate.filler):
            return "it tells how things are or were"
        if not candidate.turned and self._is_refused(candidate):
            return "a 'not' stands before it"
        before = self._clause_before(candidate.first)
        if any(word in PRESENT for word in before[-2:]):
            return "it tells how things are or were"
        since_wish = before[
            max((place for place, word in enumerate(before) if word in WISHES), default=-1) + 1 :
        ]
        if any(word in PRESENT for word in since_wish) or any(word in PAST_VERBS for word in since_wish[-3:]):
            return "it tells how things are or were"
        if candidate.form != "metric compare number" or self._natural(candidate, metric):
            return None
        topics = {"for", "of", "in", "on", "where", "when", "among"}
        filler = [token.word for token in candidate.filler if token.kind == "word"]
        if topics & set(filler) and any(word not in SCORED for word in filler):
            return "the number may be about something else"
        return None

    def _natural(self, candidate: Candidate, metric: MetricName) -> bool:
        return _comparison(candidate.side, metric).startswith("<") == (metric in LOWER_IS_BETTER)

    def _clause_before(self, place: int) -> list[str]:
        """The words before a place, back to the last comma, stop or number."""
        words: list[str] = []
        for token in reversed(self.tokens[:place]):
            if token.kind in ("stop", "number", "metric", "compare") or token.text in ",:":
                break
            words.append(token.word)
        return words[::-1]


def _is_bare_percentage(candidate: Candidate, metric: MetricName) -> bool:
    """Whether a number without a sign is a percentage: `accuracy > 90`, and any MAPE above 1."""
    amount = candidate.amount
    least = 1 if metric == "mape" else LEAST_PERCENTAGE
    return metric in SHARES and not amount.percent and amount.value > 1 and amount.value >= least


def _is_beyond(candidate: Candidate, metric: MetricName) -> bool:
    """Whether no score can reach the number: `R2 > 1.5` is neither a share nor a percentage."""
    amount = candidate.amount
    return (
        metric in SHARES and metric != "mape" and not amount.percent and 1 < amount.value < LEAST_PERCENTAGE
    )


def _comparison(side: Side, metric: MetricName) -> Comparison:
    lower = metric in LOWER_IS_BETTER
    match side:
        case "good":
            return "<" if lower else ">"
        case "at good":
            return "<=" if lower else ">="
        case "bad":
            return ">" if lower else "<"
    return side
