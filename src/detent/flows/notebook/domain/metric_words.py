"""The words in which people name metrics, comparisons and numbers, as tokens of a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from detent.flows.notebook.domain.problem import Comparison, MetricName

TokenKind = Literal["metric", "other_metric", "compare", "number", "not", "word", "mark", "stop"]
Side = Literal["<", "<=", ">", ">=", "good", "at good", "bad"]
"""A comparison; `good` and `bad` are the sides of the metric it is about."""

LOWER_IS_BETTER: frozenset[MetricName] = frozenset(("rmse", "mse", "mae", "mape", "log_loss"))
SHARES: frozenset[MetricName] = frozenset(
    ("mape", "r2", "accuracy", "balanced_accuracy", "f1", "auc", "precision", "recall")
)
"""Metrics of which people write percent."""
REGRESSION_METRICS: frozenset[MetricName] = frozenset(("rmse", "mse", "mae", "mape", "r2"))


def words(text: str) -> frozenset[str]:
    """A set of words that is written as a text."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Amount:
    """A number as it was written."""

    value: float
    percent: bool = False
    scaled: bool = False
    """It ends in k, m, thousand or million."""
    currency: bool = False
    whole: bool = False
    """Digits alone."""
    doubtful: bool = False
    """Written like `25.000`, which many read as 25 thousand."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a sentence."""

    kind: TokenKind
    text: str
    start: int
    end: int
    metric: MetricName | None = None
    side: Side | None = None
    symbol: bool = False
    """A comparison written as a sign."""
    amount: Amount | None = None

    @property
    def word(self) -> str:
        """The text in lower case."""
        return self.text.lower()


OTHER_METRICS = (
    r"rmsle|root[- ]mean[- ]squared?[- ]log(?:arithmic)?[- ]errors?|msle|smape|wmape|wape|mase|medae"
    r"|median absolute (?:percentage )?errors?|mcc|matthews(?: correlation(?: coefficient)?)?|cohen'?s kappa"
    r"|kappa|specificity|sensitivity|gini(?: coefficient)?|pr[-_ ]?auc|auc[-_ ]?pr|auprc|average precision"
    r"|error rate|misclassification rate|brier(?: score)?|adj(?:usted|\.)? r(?:2|²|\^2|[- ]?squared)"
    r"|explained variance|top-\d+ accuracy|pinball loss|max(?:imum)? error|pearson(?: correlation)?"
)
METRICS: tuple[tuple[MetricName, str], ...] = (
    ("rmse", r"rmse|root[- ]mean[- ]squared?[- ](?:errors?|deviations?)|root[- ]mean[- ]squares?|rms error"),
    ("mse", r"mse|mean[- ]squared?[- ]errors?"),
    ("mape", r"mape|mean[- ]absolute[- ]percent(?:age)?[- ]errors?"),
    ("mae", r"mae|(?:mean|average)[- ]absolute[- ]errors?"),
    ("r2", r"r2[-_ ]scores?|r2|r\^2|r\*\*2|r²|r[-_ ]?squared?|coefficients? of determination"),
    ("balanced_accuracy", r"balanced[-_ ]accurac(?:y|ies)|accuracy \(balanced\)"),
    ("accuracy", r"accurac(?:y|ies)"),
    ("f1", r"f[-_]?1(?:[-_ ]?(?:scores?|measure))?|f[-_ ](?:score|measure)"),
    (
        "auc",
        r"(?:roc[-_ /]?)?auc[-_ ]scores?|roc[-_ /]?auc|auc[-_ /]?roc|auroc|auc"
        r"|areas? under (?:the )?(?:roc |receiver operating characteristic )?curve",
    ),
    ("precision", r"precision(?! (?:agriculture|farming|medicine|engineering|instrument|mechanic))"),
    ("recall", r"recall(?! that\b)"),
    ("log_loss", r"log[-_ ]?loss|logarithmic loss|cross[- ]entropy(?: loss)?"),
)

COMPARISONS: tuple[tuple[Side, str], ...] = (
    # Longer phrases stand before the shorter ones they begin with.
    ("<=", r"(?:less|lower|smaller|fewer) (?:than )?or equal(?: to)?|(?:below|under) or equal(?: to)?"),
    ("<=", r"at or (?:below|under)"),
    (">=", r"at or (?:above|over)"),
    ("<=", r"equal(?: to)? or (?:less|lower|smaller) than"),
    (">=", r"(?:more|greater|higher|larger) (?:than )?or equal(?: to)?|(?:above|over) or equal(?: to)?"),
    (">=", r"equal(?: to)? or (?:more|greater|higher|larger) than"),
    ("<=", r"(?:no|not any) (?:more|greater|higher|larger|bigger) than|at most|at the most|up to|within"),
    (">=", r"(?:no|not any) (?:less|lower|smaller|fewer) than|at least|at the least|upwards of"),
    ("at good", r"no worse than|at least as good as"),
    ("<", r"(?:less|lower|smaller|fewer) than|below|under|beneath|south of"),
    (">", r"(?:more|greater|higher|larger|bigger) than|above|over|north of|exceed(?:s|ed|ing)?"),
    ("good", r"better than"),
    ("bad", r"worse than"),
    ("<=", r"(?:a )?max(?:imum|imal|\.)?(?: of)?|capped at"),
    (">=", r"(?:a )?min(?:imum|imal|\.)?(?: of)?"),
)  # fmt: skip
SYMBOLS: dict[str, Comparison] = {
    "<": "<", ">": ">", "<=": "<=", ">=": ">=", "=<": "<=", "=>": ">=", "≤": "<=", "≥": ">=", "⩽": "<=",
    "⩾": ">=", "≦": "<=", "≧": ">=",
}  # fmt: skip
TURNED: dict[Side, Side] = {
    "<": ">=", "<=": ">", ">": "<=", ">=": "<", "bad": "at good", "good": "bad", "at good": "bad",
}  # fmt: skip
"""What a comparison says after a `not`."""
AFTER_OR: dict[str, Side] = {
    "less": "<=", "lower": "<=", "fewer": "<=", "smaller": "<=", "below": "<=", "under": "<=", "more": ">=",
    "higher": ">=", "greater": ">=", "larger": ">=", "above": ">=", "over": ">=", "up": ">=",
    "better": "at good", "so": "at good", "worse": "bad",
}  # fmt: skip

GROUP_MARKS = ",' ’\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
NUMBER = rf"""
(?<![\w.])(?<!\d[,/:])
    (?P<currency>(?:US\$|[$€£¥₹]|USD|EUR|GBP|CHF)\s?)?
    (?:
        (?P<grouped>[1-9]\d{{0,2}}(?P<mark>[{GROUP_MARKS}])\d{{3}}(?:(?P=mark)\d{{3}})*(?!\d))
            (?P<grouped_rest>\.\d+|(?<!,\d{{3}}),\d+)?
      | (?P<dotted>[1-9]\d{{0,2}}(?:(?:\.\d{{3}}){{2,}}|(?:\.\d{{3}})+(?=,\d{{1,2}}(?!\d)))(?!\d))
            (?P<dotted_rest>,\d+)?
      | (?P<plain>\d+[.,]\d+|\d+|\.\d+)
    )
    (?P<power>e[+-]?\d+)?
    (?P<suffix>\s?%|\s?(?:percent|per\ cent|pct)\b|[km]\b|\s(?:thousand|million)\b)?
    (?![\w/]|[-:]\w|\.\d)
"""
NEGATIONS = r"not|never|cannot|can't|[a-z]+n['’]t|avoid|without|neither|nor"
STOP = r"[.!?](?=\s|$)|;|\n\s*\n|\n\s*(?=[-*•]\s|\d+[.)]\s)"


def _pattern() -> re.Pattern[str]:
    edges = r"(?<![\w.]){}(?!\w)"
    parts = [f"(?P<stop>{STOP})", f"(?P<other>{edges.format(f'(?:{OTHER_METRICS})')})"]
    parts += [f"(?P<metric_{name}>{edges.format(f'(?:{words})')})" for name, words in METRICS]
    signs = "|".join(sorted(map(re.escape, SYMBOLS), key=len, reverse=True))
    parts += [f"(?P<symbol>{signs})"]
    parts += [
        f"(?P<phrase_{number}>{edges.format(f'(?:{words})')})"
        for number, (_, words) in enumerate(COMPARISONS)
    ]
    spaced = [part.replace(" ", r"\s+") for part in parts]
    # The pattern of numbers is verbose; the others are not, so their blanks are written out above.
    spaced += [f"(?x:(?P<number>{NUMBER}))"]
    spaced += [
        f"(?P<not>{edges.format(f'(?:{NEGATIONS})')})",
        r"(?P<word>\w(?:[\w'’-]*\w)?)",
        r"(?P<mark_>\S)",
    ]
    return re.compile("|".join(spaced), re.IGNORECASE)


PATTERN = _pattern()


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, blanks left out."""
    return [_token(match) for match in PATTERN.finditer(_plain(text))]


def _plain(text: str) -> str:
    """The text with wide forms and kinds of dashes and quotes made usual, at the same places."""
    wide = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    return text.translate(
        wide | {0x3000: " ", 0x2212: "-", 0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}
    )


def _token(match: re.Match[str]) -> Token:
    text, start, end = match[0], match.start(), match.end()
    kind = match.lastgroup or ""
    if match["number"] is not None:
        return Token("number", text, start, end, amount=_amount(match))
    if kind == "symbol":
        return Token("compare", text, start, end, side=SYMBOLS[text], symbol=True)
    if kind.startswith("phrase_"):
        return Token("compare", text, start, end, side=COMPARISONS[int(kind.removeprefix("phrase_"))][0])
    for name, _ in METRICS:
        if kind == f"metric_{name}":
            return Token("metric", text, start, end, metric=name)
    match kind:
        case "other":
            return Token("other_metric", text, start, end)
        case "stop":
            return Token("stop", text, start, end)
        case "not":
            return Token("not", text, start, end)
        case "word":
            return Token("word", text, start, end)
    return Token("mark", text, start, end)


def _amount(match: re.Match[str]) -> Amount:
    suffix = (match["suffix"] or "").strip().lower()
    if match["grouped"]:
        digits = match["grouped"].replace(match["mark"], "") + (match["grouped_rest"] or "").replace(",", ".")
    elif match["dotted"]:
        digits = match["dotted"].replace(".", "") + (match["dotted_rest"] or "").replace(",", ".")
    else:
        digits = match["plain"].replace(",", ".")
    factor = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6}.get(suffix, 1.0)
    return Amount(
        value=float(digits + (match["power"] or "")) * factor,
        percent=suffix in ("%", "percent", "per cent", "pct"),
        scaled=factor != 1.0,
        currency=match["currency"] is not None,
        whole=(match["plain"] or "").isdigit() and not suffix and not match["power"],
        doubtful=re.fullmatch(r"[1-9]\d{0,2}\.000", match["plain"] or "") is not None,
    )
