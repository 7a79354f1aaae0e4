"""What a kind of flow or an application of your own is made of."""

from __future__ import annotations

from detent.runtime.plugs import App as App
from detent.runtime.plugs import Beginning as Beginning
from detent.runtime.plugs import Definitions as Definitions
from detent.runtime.plugs import Kind as Kind
