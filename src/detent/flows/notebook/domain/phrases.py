"""Phrases of a problem: what is to be predicted, what from, and for whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from detent.flows.notebook.domain.column_names import Mention, find_mentions, name_words

VERBS = (
    r"predict(?:s|ed|ing|ions?|ors?)?|predictive|estimat(?:e|es|ed|ing|ions?|ors?)"
    r"|classif(?:y|ies|ied|ying|ications?|iers?)|model(?:s|l?ing|l?ed)?|explain(?:s|ed|ing)?"
    r"|infer(?:s|red|ring)?|guess(?:es|ing)?|determin(?:e|es|ing)|detect(?:s|ing|ion|or)?|forecast(?:s|ing)?"
    r"|regress(?:ion|or|ing)?|find out|figure out|work out|foretell|tell|understand(?:ing)?|analy[sz]e"
    r"|learn(?:s|ing)?"
)
VERB = re.compile(rf"\b(?:{VERBS})\b", re.IGNORECASE)
NAMED_TARGET = re.compile(
    r"\b(?:target|dependent|response|outcome|label|output)(?:\s+(?:column|variable|field))?"
    r"\s*(?:is|=|:|named|called|should be|will be|being)\s*(?:named |called |the column |the )?\W{0,2}$",
    re.IGNORECASE,
)
IS_TARGET = re.compile(
    r"\W{0,2}\s*(?:is|as|being|\(|,)\s*(?:the |our |my |a )?"
    r"(?:target|label|outcome|response|dependent variable|output)\b",
    re.IGNORECASE,
)
FEATURES = re.compile(
    r"\b(?:from|using|use|given|(?:based|depending|depends?|relying)\s+(?:up)?on|on the basis of"
    r"|as a function of|by means of|features?\s*(?:are|:)|predictors?\s*(?:are|:)|inputs?\s*(?:are|:))(?=\W)",
    re.IGNORECASE,
)
BREAK = re.compile(r",\s*|\n\s*")
LONGEST_PHRASE = 2000
"""Characters that a phrase may have; more of them only take time."""
STOP = re.compile(r"[.!?;](?=\s|$)|\n\s*\n")
HEAD_END = re.compile(
    r"\b(?:of|for|in|on|at|per|with|by|across|between|among|within|over|under|during|to|into|when|where|because|so"
    r"|as|while|until|than)\b|[,:;]|[.!?](?=\s|$)|\n\s*\n",
    re.IGNORECASE,
)
QUESTION = re.compile(r"\s*(?:whether|which|who|if|how|what|why|when|whose)\b", re.IGNORECASE)
LEADING = re.compile(r"\s+(?:of|for|the value of|about)\b", re.IGNORECASE)
NEW_CLAUSE = re.compile(
    r"\b(?:what|which|how|whether|we|i|please|want|need|must|should|is there|can you)\b", re.IGNORECASE
)
CONNECTED = re.compile(
    r"[,/&+\s]*(?:\b(?:and|or|plus|as well as|versus|vs)\b\s*)?[\s'\"`(\[]*"
    r"(?:the|its|their|column|columns)?[\s'\"`(\[]*",
    re.IGNORECASE,
)
CONNECTOR = re.compile(r"[,/&+]|\b(?:and|or|plus|versus|vs)\b", re.IGNORECASE)
DETERMINER = re.compile(r"\b(?:the|a|an|our|its|their|my)\b", re.IGNORECASE)

NEW_BEFORE = re.compile(
    r"\b(?:new|unseen|other|unknown|future|further|additional|different|another|held-out|unfamiliar|untested)"
    r"\s+(?:\w+\s+)?$",
    re.IGNORECASE,
)
DATA_NOUN = (
    r"(?:the|this|that|our|my|these|those)?\s*(?:\w+\s+)?"
    r"(?:tables?|data\w*|samples?|files?|training\w*|list|set|study|records)"
)
NEW_AFTER = re.compile(
    r"[^\w.;]*(?:(?:that|which|who|whom)\s+)?(?:(?:we|i|it|they|you|the (?:model|table|data)|nobody)\s+)?"
    r"(?:(?:are|is|were|was|have|has|had|do|does|did|will be)\s+)?(?:still\s+)?"
    rf"(?:(?:not|never|n['’]t|\w+n['’]t)\s+(?:yet\s+)?(?:been\s+|be\s+|appear(?:ing)?\s+|occur(?:ring)?\s+)?"
    r"(?:(?:part of|contained in|included in|among|listed in|covered by|present in|in|from|seen in)"
    rf"\s+{DATA_NOUN}"
    r"|(?:seen|measured|observed|sampled|visited|known|surveyed|recorded|met|yet \w+)\b)"
    rf"|(?:outside(?: of)?|absent from|missing from|beyond)\s+{DATA_NOUN}|unseen\b|yet to (?:be|come)\b)",
    re.IGNORECASE,
)
NAMELESS = frozenset(("id", "ids", "name", "names", "no", "nr", "num", "number", "code", "key", "identifier"))


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the problem's text."""

    start: int
    end: int

    def holds(self, mention: Mention) -> bool:
        """Whether a mention stands in it."""
        return self.start <= mention.start and mention.end <= self.end


@dataclass(frozen=True, slots=True)
class ObjectPhrase:
    """What stands behind `predict`, `estimate` and the like."""

    verb: str
    head: Span
    """Up to the first preposition: `the price` of `the price of a house`."""
    rest: Span
    """From there to the end of the clause, or to what it is predicted from."""
    is_question: bool
    """Begins with `whether`, `which` and the like: what is asked stands at its end."""


def object_phrases(problem: str) -> list[ObjectPhrase]:
    """What the problem's verbs are about, in order."""
    phrases = []
    for match in VERB.finditer(problem):
        begin = match.end()
        end = _first(problem, begin, (STOP, FEATURES))
        following = VERB.search(problem, begin, end)
        if following is not None and following.start() - begin > 2:
            end = following.start()
        is_question = QUESTION.match(problem, begin) is not None
        head_begin = begin
        if (leading := LEADING.match(problem, begin)) is not None:
            head_begin = leading.end()
        if (asking := QUESTION.match(problem, head_begin)) is not None:
            head_begin = asking.end()
        head_end = min(end, _first(problem, head_begin, (HEAD_END,)))
        phrases.append(
            ObjectPhrase(match[0].lower(), Span(head_begin, head_end), Span(head_end, end), is_question)
        )
    return phrases


def noun_before_model(problem: str) -> list[Span]:
    """The nouns before `model`, `prediction` and the like: `house price` of `a house price model`."""
    spans = []
    for match in VERB.finditer(problem):
        before = re.search(r"(?:[\w-]+[ \t]+){1,4}$", problem[max(0, match.start() - 80) : match.start()])
        if before is not None:
            spans.append(Span(match.start() - len(before[0]), match.start()))
    return spans


def feature_spans(problem: str, mentions: Sequence[Mention]) -> list[Span]:
    """The parts that name what is predicted from."""
    spans = []
    for match in FEATURES.finditer(problem):
        end = min(_first(problem, match.end(), (STOP, VERB)), _next_clause(problem, match.end()))
        inside = [mention for mention in mentions if match.end() <= mention.start < end]
        for left, right in pairwise(inside):
            gap = problem[left.end : right.start]
            if DETERMINER.search(gap) and not CONNECTOR.search(gap):
                end = right.start
                break
        spans.append(Span(match.start(), end))
    return spans


def named_as_target(problem: str, mention: Mention) -> bool:
    """Whether the problem says in so many words that a column is the target."""
    return (
        NAMED_TARGET.search(problem, max(0, mention.start - 60), mention.start) is not None
        or IS_TARGET.match(problem, mention.end) is not None
    )


def are_connected(problem: str, left: Mention, right: Mention) -> bool:
    """Whether nothing but `and` or a comma stands between two mentions."""
    return CONNECTED.fullmatch(problem, left.end, right.start) is not None


def columns_beside_new(problem: str, columns: Iterable[str]) -> tuple[str, ...]:
    """Columns whose name the problem puts beside new, unseen, other, or not in this table."""
    names: dict[str, str] = {}
    for column in columns:
        kept = [word for word in name_words(column) if word not in NAMELESS]
        names.setdefault(" ".join(kept) or column, column)
    found = {}
    for mention in find_mentions(problem, names):
        before = problem[max(0, mention.start - 40) : mention.start]
        if NEW_BEFORE.search(before) or NEW_AFTER.match(problem, mention.end):
            found[names[mention.column]] = True
    return tuple(found)


def _first(problem: str, begin: int, patterns: Iterable[re.Pattern[str]]) -> int:
    """Where the first of some patterns begins, or the end of the text that is looked at."""
    end = min(len(problem), begin + LONGEST_PHRASE)
    matches = (pattern.search(problem, begin, end) for pattern in patterns)
    return min((match.start() for match in matches if match is not None), default=end)


def _next_clause(problem: str, begin: int) -> int:
    """Where a new clause begins behind a comma: `given its length, what is the species?`"""
    end = min(len(problem), begin + LONGEST_PHRASE)
    for match in BREAK.finditer(problem, begin, end):
        if NEW_CLAUSE.match(problem, match.end()):
            return match.start()
    return end
