"""What project code gives back, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detent.engine.user_errors import located
from detent.kernel.errors import InvalidValue
from detent.kernel.plain import to_plain


def plain_answer(value: Any, function: Callable[..., Any]) -> Any:
    """A function's return value as plain values.

    Raises:
        InvalidValue: it cannot be kept; the error names the function's location.
    """
    try:
        return to_plain(value)
    except InvalidValue as error:
        raise located(error, function) from None
