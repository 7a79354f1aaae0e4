"""Formatting for people: durations, money, plain values in one short line."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from detent.kernel.budget import Spend
from detent.kernel.placeholders import LITERAL, STAND_IN, TEXT
from detent.kernel.plain import encode


def span(seconds: float) -> str:
    """A duration in at most two units: `12 ms`, `4.20 s`, `2 m 05 s`, `3 h 12 m`, `2 d 04 h`."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if not math.isfinite(seconds):
        return "?"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def money(dollars: float) -> str:
    """An amount in dollars, with as many decimals as small amounts need."""
    return f"${dollars:,.2f}" if dollars >= 1 or dollars == 0 else f"${dollars:.4f}"


def cost(spend: Spend) -> str:
    """Tokens and money in words; empty when nothing was spent."""
    parts = []
    if spend.tokens:
        parts.append(count(spend.tokens, "token"))
    if spend.cost_usd:
        parts.append(money(spend.cost_usd))
    return ", ".join(parts)


def count(number: int, noun: str) -> str:
    """`1 token`, `2 tokens`, `3 entries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def value(plain: Any, limit: int = 60) -> str:
    """A plain value on one line, shortened if long; text unquoted, an offloaded value by its size."""
    if isinstance(plain, Mapping) and "$blob" in plain:
        return f"<{count(plain.get('size', 0), 'byte')} outside the journal>"
    shown = receipts_named(plain)
    return short(shown if isinstance(shown, str) else encode(shown), limit)


def receipts_named(plain: Any) -> Any:
    """A value with names in place of what receipts are still to give: `<order of the receipt>`."""
    if isinstance(plain, Mapping):
        if set(plain) == {STAND_IN}:
            path = str(plain[STAND_IN]).partition(".")[2]
            return f"<{path} of the receipt>" if path else "<the receipt>"
        if set(plain) == {TEXT}:
            return "".join(str(receipts_named(part)) for part in plain[TEXT])
        if set(plain) == {LITERAL}:
            return {key: receipts_named(part) for key, part in plain[LITERAL].items()}
        return {key: receipts_named(part) for key, part in plain.items()}
    return [receipts_named(part) for part in plain] if isinstance(plain, list) else plain


def short(text: str, limit: int) -> str:
    """A text on one line of at most `limit` characters, cut at a word, control characters left out."""
    line = " ".join(text.split())
    line = "".join(character if character.isprintable() else "�" for character in line)
    if len(line) <= limit:
        return line
    head = line[: limit - 1]
    if line[limit - 1] != " " and (at := head.rfind(" ")) >= limit * 2 // 3:
        head = head[:at]
    return head.rstrip() + "…"


def total(numbers: Iterable[float]) -> float:
    """A sum that stays finite, for JSON has no infinity."""
    return min(sum(numbers, 0.0), sys.float_info.max)


def columns(rows: Iterable[tuple[str, ...]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows as lines with aligned columns; those in `right` are aligned to the right."""
    table = list(rows)
    if not table:
        return []
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return [
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
