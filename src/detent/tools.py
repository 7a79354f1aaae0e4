"""Tools in detail: what a tool may be told about a call, and what a probe may answer."""

from __future__ import annotations

from detent.engine.tools import UNKNOWN as UNKNOWN
from detent.engine.tools import EffectCall as EffectCall
from detent.engine.tools import Tool as Tool
