"""The settings of a project, and engines and stores made from them, for programs of your own."""

from __future__ import annotations

from detent.runtime.settings import Settings as Settings
from detent.runtime.settings import read_settings as read_settings
from detent.runtime.wiring import engine_for as engine_for
from detent.runtime.wiring import store_for as store_for
