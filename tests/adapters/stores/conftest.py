"""What the store tests share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("detent.testing.store_trials")
