"""Figures in a text that nothing supports: numbers that stand in no output, variable, source or problem."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

_GROUPS = r"\d{1,3}(?:[,'’ \u00a0\u202f]\d{3})+(?!\d)"
_SCALE = r"(?:\s?(?P<scale>%|percent\b|thousand\b|million\b|billion\b|bn\b)|(?P<unit>[kKM])\b)?"
_NUMBER = re.compile(
    rf"(?<![\w.])(?:(?P<whole>{_GROUPS}|\d+)(?P<fraction>\.\d+)?|(?P<bare>\.\d+))"
    rf"(?P<exponent>[eE][-+−]?\d+)?{_SCALE}(?!\w)"
)
_ANY_NUMBER = re.compile(rf"(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+){_SCALE}")
_GROUPED = re.compile(rf"(?<![\d.]){_GROUPS}(?:\.\d+)?")
_COMMA_DECIMAL = re.compile(r"(?<![\d.,])\d+,\d+(?![\d,])")
_ENUMERATION = re.compile(r"^\s*(?:#{1,6}\s*\d+(?:\.\d+)*[.)]?|\d{1,2}[.)])(?=\s)", re.MULTILINE)
_LINK = re.compile(r"\]\([^)\s]*\)|https?://\S+")
_SHARES = frozenset({"%", "percent"})
_POWERS = {"k": 3, "K": 3, "thousand": 3, "million": 6, "M": 6, "bn": 9, "billion": 9}
LONGEST_EVIDENCE = 5_000_000
"""Characters of evidence that are read; a notebook's outputs are capped far below."""


class Figure(NamedTuple):
    """A number in a text, at the precision at which it is written."""

    text: str
    values: tuple[tuple[Decimal, Decimal], ...]
    """What it may stand for, each with half of its last place: `85.7%` is 85.7 or 0.857."""


def unsupported_figures(
    text: str,
    outputs: Iterable[str],
    variables: Mapping[str, Any] | None = None,
    sources: Iterable[str] = (),
    problem: str = "",
) -> tuple[str, ...]:
    """The figures of a text that stand, at their precision, in no output, variable, source or the problem.

    A figure is a number of three or more digits, or with decimals. Numbers of headings and lists are none.
    """
    figures = list(_figures(text))
    if not figures:
        return ()
    evidence = sorted(
        {
            number
            for part in (problem, *outputs, *sources, *_texts(variables or {}))
            for number in _numbers(part[:LONGEST_EVIDENCE])
        }
    )
    return tuple(dict.fromkeys(figure.text for figure in figures if not _is_supported(figure, evidence)))


def _figures(text: str) -> Iterator[Figure]:
    readable = _LINK.sub(" ", _ENUMERATION.sub(" ", text))
    for match in _NUMBER.finditer(readable):
        whole = re.sub(r"\D", "", match["whole"] or "")
        fraction = match["fraction"] or match["bare"] or ""
        exponent = (match["exponent"] or "").replace("−", "-")
        scale = match["scale"] or match["unit"] or ""
        if len(whole) < 3 and not fraction and not exponent and scale not in _POWERS:
            continue
        number = _decimal(f"{whole or 0}{fraction}{exponent}")
        if number is None:
            continue
        half = Decimal(5).scaleb(int(exponent[1:] or 0) - max(1, len(fraction)))
        power = _POWERS.get(scale, 0)
        values = [(number.scaleb(power), half.scaleb(power))]
        if scale in _SHARES:
            values.append((number.scaleb(-2), half.scaleb(-2)))
        yield Figure(match[0].strip(), tuple(values))


def _is_supported(figure: Figure, evidence: list[Decimal]) -> bool:
    """Whether some number rounds to the figure."""
    for value, half in figure.values:
        at = bisect_left(evidence, value - half)
        if at < len(evidence) and evidence[at] <= value + half:
            return True
    return False


def _numbers(text: str) -> Iterator[Decimal]:
    """All numbers in a text without their sign, those with separators both joined and apart."""
    for match in _ANY_NUMBER.finditer(text):
        number = _decimal(match["number"])
        if number is not None:
            yield number
            yield number.scaleb(_POWERS.get(match["scale"] or match["unit"] or "", 0))
    for pattern, written in ((_GROUPED, r"[^\d.]"), (_COMMA_DECIMAL, "")):
        for match in pattern.finditer(text):
            joined = re.sub(written, "", match[0]) if written else match[0].replace(",", ".")
            number = _decimal(joined)
            if number is not None:
                yield number


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if abs(number.adjusted()) < 400 else None


def _texts(value: Any) -> Iterator[str]:
    """All texts and numbers in a value, as texts."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)
