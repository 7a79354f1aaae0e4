"""What a retry writes instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detent.flows.notebook.recipes.recipe import Kitchen
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import notebook


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory) -> Kitchen:
    return notebook(tmp_path_factory.mktemp("book"), tables.houses(), "Predict price").kitchen


def test_the_first_time_an_expression_stands_as_it_is(kitchen):
    assert attempted(kitchen, "1 / 0", "2") == "1 / 0"


def test_a_retry_has_a_substitute_and_prints_why(kitchen, capsys):
    names = {}
    exec(ATTEMPT, names)
    assert eval(attempted(replace(kitchen, iteration=2), "1 / 0", "2"), names) == 2
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert eval(attempted(replace(kitchen, iteration=2), "1 / 1", "2"), names) == 1
