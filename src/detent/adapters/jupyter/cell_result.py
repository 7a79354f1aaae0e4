"""What became of a cell, and what is known of a variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

CellStatus = Literal["ok", "error", "timeout", "interrupted", "died"]
OutputType = Literal["stream", "execute_result", "display_data", "error"]


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a cell."""

    output_type: OutputType
    text: str = ""
    """A stream's text, or the plain form of a result."""
    name: str | None = None
    """A stream's name: stdout or stderr."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """By MIME type; pictures as base64."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    execution_count: int | None = None
    ename: str | None = None
    evalue: str | None = None
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of executing a cell."""

    status: CellStatus
    outputs: tuple[Output, ...] = ()
    execution_count: int | None = None
    duration_ms: float = 0.0
    error: str | None = None
    """The error in one line, such as `KeyError: 'price'`, `TimeoutError` or `KernelDied`."""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What runs."""

    name: str
    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class EvalResult:
    """The value of an expression."""

    value_repr: str = ""
    truth: bool = False
    """True iff the value is True, as Python's or NumPy's bool; nothing else counts."""
    json: Any = None
    """The value, if it is plain JSON."""
    text: str | None = None
    """The whole value, if it is a str."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class VariableInfo:
    """What is known of a variable in the kernel."""

    exists: bool
    type: str = ""
    shape: tuple[int, ...] | None = None
    size: int | None = None
    """Length, rows or bytes, whichever the value has; 0 for an empty one."""
    is_none: bool = False
    repr: str = ""
    json: Any = None
    sha256: str | None = None
    comparison: Mapping[str, Any] | None = None
    """Where there is a fingerprint: what tells whether another value differs by more than rounding."""
