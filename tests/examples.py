"""How many examples a property is tried with: some at every change, many more when there is time.

`DETENT_TEST_EXAMPLES=4` tries four times as many, which are as many as each property asks for.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = float(os.environ.get("DETENT_TEST_EXAMPLES", "1"))
USUAL = 100
"""Examples of a property that asks for no number."""
FEWEST = 15


def examples(asked: int) -> int:
    """How many examples to try where so many are wanted when there is time."""
    return max(FEWEST, round(asked * TIMES / 4))


# How long an example takes says how busy the machine is, not whether the property holds.
settings.register_profile(
    "detent",
    max_examples=examples(USUAL),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("detent")
