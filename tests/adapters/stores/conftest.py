"""What the store tests share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("detent.testing.store_trials")

from tests.postgres import postgres_schema, postgres_server  # noqa: E402

__all__ = ["postgres_schema", "postgres_server"]
