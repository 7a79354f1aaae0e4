"""Errors suggest a name only where it is similar enough to be the one that was meant."""

from __future__ import annotations

import pytest

from detent.authoring.names import Nearest
from detent.kernel.errors import nearest


@pytest.mark.parametrize(
    ("written", "known"),
    [("maybe", "yes"), ("department", "amount"), ("create_ticket", "write_file"), ("orders", "ready")],
)
def test_a_name_that_merely_shares_letters_is_not_suggested(written, known):
    assert nearest(written, [known]) == ""
    assert Nearest().of(written, [known]) == ()


@pytest.mark.parametrize(
    ("written", "known"),
    [("chek", "check"), ("snyc", "sync"), ("querys", "queries"), ("onbord", "onboarding"), ("nam", "name")],
)
def test_a_misspelt_name_is_suggested(written, known):
    assert nearest(written, [known]) == f" Did you mean '{known}'?"
    assert Nearest().of(written, [known]) == (known,)
