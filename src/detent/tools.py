"""Tools in detail: what a tool may be told about a call, what a probe may answer, what came of an effect."""

from __future__ import annotations

from detent.engine.acts import Act as Act
from detent.engine.tools import UNKNOWN as UNKNOWN
from detent.engine.tools import EffectCall as EffectCall
from detent.engine.tools import Tool as Tool
