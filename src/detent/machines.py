"""State machines without an engine: the metrics-carrying object, guards, and their error."""

from __future__ import annotations

from detent.engine.state_machine import StateMachine as StateMachine
from detent.kernel.errors import InvalidTransitionError as InvalidTransitionError
from detent.kernel.guards import Guard as Guard
from detent.kernel.state_history import StateMetrics as StateMetrics
from detent.kernel.state_history import StateTransition as StateTransition
