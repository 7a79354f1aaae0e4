"""A real, small model for tests: fetched once for all of them, or what `DETENT_TEST_MODEL` points at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detent.adapters.models.model_files import pull
from detent.kernel.errors import DetentError


@pytest.fixture(scope="session")
def smollm() -> Path:
    """A GGUF file of a model that answers in a moment. Workers that want it at once wait for one another."""
    given = os.environ.get("DETENT_TEST_MODEL")
    if given:
        file = Path(given).expanduser()
        if not file.is_file():
            pytest.fail(f"DETENT_TEST_MODEL names {file}, which is not there.", pytrace=False)
        return file
    try:
        return pull("smollm2-135m")
    except DetentError as error:
        pytest.fail(
            f"The tests of local models need a small one (98 MB). {error} "
            f"Or set DETENT_TEST_MODEL to a GGUF file.",
            pytrace=False,
        )
