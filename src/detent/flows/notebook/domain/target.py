"""Finds the column that a problem wants predicted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detent.flows.notebook.domain.column_kinds import column_facts
from detent.flows.notebook.domain.column_names import (
    GENERIC_WORDS,
    OTHER_WORDS,
    TEXT_WORD,
    Mention,
    find_mentions,
    name_words,
    stem,
)
from detent.flows.notebook.domain.metric_words import REGRESSION_METRICS, tokens_of, words
from detent.flows.notebook.domain.phrases import (
    ObjectPhrase,
    Span,
    are_connected,
    columns_beside_new,
    feature_spans,
    named_as_target,
    noun_before_model,
    object_phrases,
)
from detent.flows.notebook.domain.problem import MetricName, ProblemError, Task
from detent.flows.notebook.domain.task import suits
from detent.kernel.errors import nearest

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("target", "label", "y", "class", "outcome")
"""Names of a target, the likelier first."""
PREDICTING = ("predict", "estimat", "classif", "forecast")
"""Beginnings of the verbs whose object is the target."""
VAGUE = words(
    "well better accurately precisely reliably carefully quickly everything anything something target label "
    "outcome output response last one class it here now"
)
"""Words behind such a verb that name no column."""
VAGUE_STEMS = {stem(word) for word in VAGUE}
TOLD = 12
"""Candidates that a message names."""


class TargetUnclear(ProblemError):
    """Several columns are as likely meant; a person has to say which."""

    def __init__(self, candidates: Sequence[str], unknown: str | None = None) -> None:
        self.candidates = tuple(candidates)
        names = ", ".join(map(repr, candidates[:TOLD])) + (" and others" if len(candidates) > TOLD else "")
        super().__init__(
            f"The problem may mean {names}. Say which with --target." if unknown is None
            else f"The table has no column for '{unknown}'. Say which of {names} is meant with --target."
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """The column to predict, and how it was found."""

    column: str
    why: str
    warning: str | None = None


def find_target(
    problem: str,
    table: pd.DataFrame,
    *,
    option: str | None = None,
    metrics: Collection[MetricName] = (),
) -> TargetChoice:
    """The column that a problem wants predicted; `metrics` are those it names.

    Raises:
        ProblemError: `option` is no column of the table.
        TargetUnclear: several columns are as likely meant, or something is named that no column is.
    """
    columns = [str(column) for column in table.columns]
    if option is not None:
        return _from_option(option, columns)
    search = _Search(problem, table, columns, metrics)
    choice = search.by_words()
    if choice is not None:
        return choice
    unknown = search.unknown()
    for label in LABELS:
        for column in columns:
            if column.lower() == label:
                warning = None if unknown is None else (
                    f"No column is named after '{unknown}'; '{column}' is taken for the target."
                )  # fmt: skip
                return TargetChoice(column, f"a column is named '{column}'", warning)
    if unknown is not None:
        raise TargetUnclear(search.predictable(), unknown)
    warning = f"The problem names no column; the last one, '{columns[-1]}', is taken for the target."
    return TargetChoice(columns[-1], "it is the last column", warning)


def _from_option(option: str, columns: Sequence[str]) -> TargetChoice:
    if option in columns:
        return TargetChoice(option, "it was given as --target")
    alike = [column for column in columns if column.lower() == option.strip().lower()]
    if len(alike) == 1:
        return TargetChoice(alike[0], "it was given as --target")
    raise ProblemError(f"The table has no column '{option}' for a target.{nearest(option, columns)}")


class _Search:
    """One search for the target in a sentence."""

    def __init__(
        self, problem: str, table: pd.DataFrame, columns: Sequence[str], metrics: Collection[MetricName]
    ) -> None:
        self.problem = problem
        self.table = table
        self.columns = columns
        self.task = _task_of(metrics)
        mentions = find_mentions(problem, columns)
        self.features = feature_spans(problem, mentions)
        self.mentions = [
            mention for mention in mentions if not any(span.holds(mention) for span in self.features)
        ]
        # A column that is mentioned among the features is never the target, unless it is named apart.
        listed = {mention.column for mention in mentions} - {mention.column for mention in self.mentions}
        self.aside = listed | set(columns_beside_new(problem, columns))
        self.phrases = object_phrases(problem)

    def by_words(self) -> TargetChoice | None:
        """The column by the problem's words, the plainest way of naming it first."""
        named = [mention for mention in self.mentions if named_as_target(self.problem, mention)]
        if named:
            return TargetChoice(self._one(named), "the problem calls it the target")
        for phrase in self.phrases:
            column = self._in_phrase(phrase)
            if column is not None:
                return TargetChoice(column, f"it is named after '{phrase.verb}'")
        free = [mention for mention in self.mentions if mention.column not in self.aside]
        sure = [mention for mention in free if mention.is_sure]
        if sure:
            return TargetChoice(self._one(sure), "it is the column that the problem names")
        column = self._by_shared_words(
            [span for phrase in self.phrases for span in (phrase.head, phrase.rest)]
        )
        column = column or self._by_shared_words(noun_before_model(self.problem))
        if column is not None:
            return TargetChoice(column, "its name shares words with what is to be predicted")
        if free:
            return TargetChoice(self._one(free), "it is the column that the problem names")
        column = self._by_shared_words([Span(0, len(self.problem))])
        if column is not None:
            return TargetChoice(column, "its name shares words with the problem")
        return None

    def unknown(self) -> str | None:
        """What the problem wants predicted, where it says so in words that are no column's."""
        for phrase in self.phrases:
            if phrase.verb.startswith(PREDICTING) and self._words(phrase.head) - VAGUE_STEMS:
                return " ".join(self.problem[phrase.head.start : phrase.head.end].split())
        return None

    def predictable(self) -> list[str]:
        """The columns that may be meant."""
        return self._fitting(self.columns) or list(self.columns)

    def _in_phrase(self, phrase: ObjectPhrase) -> str | None:
        """The column that is named in what a verb is about."""
        head = [mention for mention in self.mentions if phrase.head.holds(mention)]
        if phrase.is_question and len(head) > 1:
            # `whether a customer will churn`: of those that can be predicted, the last.
            fitting = self._fitting([mention.column for mention in head])
            if fitting:
                return fitting[-1]
        if head:
            return self._first_of(head)
        words = self._words(phrase.head)
        rest = [mention for mention in self.mentions if phrase.rest.holds(mention)]
        if not rest:
            return None
        gap = self.problem[phrase.rest.start : rest[0].start].strip().lower()
        # `predict the value of SalePrice`; of `the price per district` the head says it all.
        says_more = bool(words) and bool(self._shares(words))
        if not says_more and (not words or gap.split()[:1] in (["of"], ["in"], ["on"])):
            return self._first_of(rest)
        return None

    def _first_of(self, mentions: Sequence[Mention]) -> str:
        """The first column mentioned, unless another is joined to it by `and`."""
        joined = [mentions[0]]
        for mention in mentions[1:]:
            if not are_connected(self.problem, joined[-1], mention):
                break
            joined.append(mention)
        behind = [mention for mention in self.mentions if mention.start >= joined[-1].end]
        for mention in behind:
            if mention in joined or not are_connected(self.problem, joined[-1], mention):
                break
            joined.append(mention)
        same = [mention for mention in self.mentions if (mention.start, mention.end) == (
            mentions[0].start, mentions[0].end)]  # fmt: skip
        return self._one([*same, *joined])

    def _one(self, mentions: Iterable[Mention]) -> str:
        """The one column among mentions; where several are, the one that fits, if it is one."""
        mentions = list(mentions)
        exact = [mention for mention in mentions if mention.exact]
        columns = list(dict.fromkeys(mention.column for mention in mentions))
        if len(columns) > 1 and exact:
            same_place = {(mention.start, mention.end) for mention in mentions}
            if len(same_place) == 1:
                columns = list(dict.fromkeys(mention.column for mention in exact))
        if len(columns) > 1:
            columns = self._fitting(columns) or columns
        if len(columns) > 1:
            raise TargetUnclear(columns)
        return columns[0]

    # -- shared words ---------------------------------------------------------------------------------------

    def _words(self, span: Span) -> set[str]:
        """The stems of a span's words that say something, features left out."""
        text = self.problem[span.start : span.end]
        for feature in self.features:
            if feature.start < span.end and span.start < feature.end:
                begin, end = max(feature.start, span.start), min(feature.end, span.end)
                text = text[: begin - span.start] + " " * (end - begin) + text[end - span.start :]
        for token in tokens_of(text):
            if token.kind in ("metric", "number"):  # the `2` of `R2` is no part of a name
                text = text[: token.start] + " " * (token.end - token.start) + text[token.end :]
        found = (part for word in TEXT_WORD.findall(text) for part in (word, *name_words(word)))
        return {stem(word) for word in found if word.lower() not in GENERIC_WORDS}

    def _shares(self, words: set[str]) -> list[tuple[float, str]]:
        """The columns that share words with some, each with which part of its name is shared.

        A word that only means what a name says, as `sells` does `price`, counts half.
        """
        meant = {stem(name) for word in words for name in OTHER_WORDS.get(word, ())} - words
        scores = []
        for column in self.columns:
            parts = [stem(word) for word in name_words(column)]
            shared = sum(part in words for part in parts) + sum(part in meant for part in parts) / 2
            if shared and column not in self.aside:
                scores.append((shared / len(parts), column))
        return scores

    def _by_shared_words(self, spans: Sequence[Span]) -> str | None:
        """The column that shares most of its name's words with the first span that shares any."""
        for span in spans:
            scores = self._shares(self._words(span))
            fitting = set(self._fitting([column for _, column in scores]))
            scores = [(score, column) for score, column in scores if column in fitting]
            if not scores:
                continue
            best = max(score for score, _ in scores)
            columns = [column for score, column in scores if score == best]
            if len(columns) > 1 and (said := self._said_of_it(span, columns)):
                columns = said
            if len(columns) > 1:
                raise TargetUnclear(columns)
            return columns[0]
        return None

    def _said_of_it(self, span: Span, columns: Sequence[str]) -> list[str]:
        """Of `what the house sells for`, the columns that `sells` stands for: not what else a house has."""
        if not any(phrase.is_question and phrase.head == span for phrase in self.phrases):
            return []
        last = TEXT_WORD.findall(self.problem[span.start : span.end])[-1:]
        means = {stem(name) for word in last for name in OTHER_WORDS.get(stem(word), ())}
        return [column for column in columns if means & {stem(word) for word in name_words(column)}]

    def _fitting(self, columns: Iterable[str]) -> list[str]:
        """Those columns that can be predicted, by the named metrics if there are any."""
        fitting = []
        for column in columns:
            facts = column_facts(self.table[column])
            if facts.kind in ("id", "constant"):
                continue
            if self.task is None or suits(self.table[column], self.task):
                fitting.append(column)
        return fitting


def _task_of(metrics: Collection[MetricName]) -> Task | None:
    """The task that all named metrics belong to."""
    kinds = {metric in REGRESSION_METRICS for metric in metrics}
    if len(kinds) != 1:
        return None
    return "regression" if kinds.pop() else "classification"
