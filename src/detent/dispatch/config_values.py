"""Converts each value of a step's configuration to its type, or says what would have been right."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

from detent.dispatch.autonomy import AutonomyLevel, ProsePolicy, StepMode, TextReview
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.policy import RetryPolicy

MAX_TOKENS = 200_000
SUFFIX_BYTES = 16 * 1024
BUDGET_LIMITS = ("tokens", "cost_usd", "seconds")
"""Limits that a step's own budget may have."""
RETRY_PARTS = ("max_attempts", "wait_min", "wait_max")

Trouble: TypeAlias = tuple[str, str]
"""A field and its problem."""


class Refused(Exception):
    """A value that cannot be used, with its problems; their names are parts of the field."""

    def __init__(self, text: str = "", troubles: Iterable[Trouble] = ()) -> None:
        self.troubles = [("", text), *troubles] if text else list(troubles)
        super().__init__(text)


def _choice(kind: type[Enum]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        names = [member.value for member in kind]
        try:
            return kind(value)
        except ValueError:
            hint = nearest(value, names) if isinstance(value, str) else ""
            raise Refused(f"is {_quoted(value)}; it takes {listed(names)}.{hint}") from None

    return read


def listed(names: Sequence[str]) -> str:
    """Names with `or` before the last."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _quoted(value: Any) -> str:
    """A wrong value in a message: a short one as it is, others by their kind."""
    if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 40):
        return repr(value)
    kinds: dict[type, str] = {str: "a long text", dict: "a mapping", list: "a list", tuple: "a list"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _within(low: float, high: float, expected: str) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if not _is_number(value) or not low <= value <= high:
            raise Refused(f"is {_quoted(value)}; it takes {expected}.")
        return float(value)

    return read


def _whole(low: int, high: float, expected: str) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise Refused(f"is {_quoted(value)}; it takes {expected}.")
        return int(value)

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Refused(f"is {_quoted(value)}; it takes a name.")
    return value


def _seconds(value: Any) -> float:
    if not _is_number(value) or value <= 0:
        raise Refused(f"is {_quoted(value)}; it takes a number of seconds above 0.")
    return float(value)


def _duration(value: Any) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", value.strip()) if isinstance(value, str) else None
    if match is not None:
        value = float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]
    if not _is_number(value) or value <= 0:
        raise Refused(f"is {_quoted(value)}; it takes a time such as 30m, 4h or 2d, or seconds above 0.")
    return float(value)


def _suffix(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"is {_quoted(value)}; it takes a text.")
    if (size := len(value.encode("utf-8", "surrogatepass"))) > SUFFIX_BYTES:
        raise Refused(
            f"has {size} bytes; it may have {SUFFIX_BYTES} at most. Put longer texts into a prompt_file."
        )
    return value


def _path(value: Any) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip():
        raise Refused(f"is {_quoted(value)}; it takes the path of a text file.")
    return Path(value)


def _tools(value: Any) -> tuple[str, ...]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        raise Refused(f"is {_quoted(value)}; it takes a list of tool names, [] for none.")
    if not all(isinstance(name, str) and name for name in value):
        raise Refused("has an item that is no tool name; it takes a list of names, [] for none.")
    return tuple(value)


def _share(value: Any) -> float:
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    return _within(0.0, 1.0, "true, false or a share from 0 to 1")(value)


def _budget(value: Any) -> Budget:
    if isinstance(value, Budget):
        if value.steps is not None or not value.enforce:
            raise Refused(f"of a step takes {listed(BUDGET_LIMITS)} only.")
        return value
    if not isinstance(value, Mapping) or not value:
        raise Refused(f"is {_quoted(value)}; it takes {listed(BUDGET_LIMITS)}.")
    troubles: list[Trouble] = []
    limits: dict[str, Any] = {}
    for key, limit in value.items():
        whole = key == "tokens"
        if key not in BUDGET_LIMITS:
            hint = nearest(str(key), BUDGET_LIMITS)
            troubles.append((str(key), f"is no limit of a step; it takes {listed(BUDGET_LIMITS)}.{hint}"))
        elif limit is None:
            continue
        elif not _is_number(limit) or limit <= 0 or (whole and not isinstance(limit, int)):
            expected = "a whole number" if whole else "a number"
            troubles.append((key, f"is {_quoted(limit)}; it takes {expected} above 0."))
        else:
            limits[key] = limit
    if troubles:
        raise Refused(troubles=troubles)
    return Budget(**limits)


def _retry(value: Any) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if not isinstance(value, Mapping):
        raise Refused(f"is {_quoted(value)}; it takes {listed(RETRY_PARTS)}.")
    troubles: list[Trouble] = []
    for key, part in value.items():
        if key not in RETRY_PARTS:
            hint = nearest(str(key), RETRY_PARTS)
            troubles.append((str(key), f"is not known; it takes {listed(RETRY_PARTS)}.{hint}"))
        elif not _is_number(part) or (key == "max_attempts" and not isinstance(part, int)):
            expected = "a whole number" if key == "max_attempts" else "a number of seconds"
            troubles.append((key, f"is {_quoted(part)}; it takes {expected}."))
    if troubles:
        raise Refused(troubles=troubles)
    try:
        return RetryPolicy(**value)
    except ConfigurationError as error:
        raise Refused(f"cannot be used: {error}") from None


READERS: Mapping[str, Callable[[Any], Any]] = {
    "mode": _choice(StepMode),
    "autonomy": _choice(AutonomyLevel),
    "provider": _text,
    "model_id": _text,
    "temperature": _within(0.0, 1.0, "a number from 0.0 to 1.0"),
    "max_tokens": _whole(1, MAX_TOKENS, f"a whole number from 1 to {MAX_TOKENS}"),
    "timeout": _seconds,
    "max_retries": _whole(0, math.inf, "a whole number of 0 or more"),
    "retry_policy": _retry,
    "allowed_tools": _tools,
    "prompt_suffix": _suffix,
    "prompt_file": _path,
    "budget": _budget,
    "shadow": _share,
    "review": _choice(TextReview),
    "review_within": _duration,
    "prose": _choice(ProsePolicy),
}
"""By field: converts a plain value to the field's type; raises `Refused` when it cannot."""
