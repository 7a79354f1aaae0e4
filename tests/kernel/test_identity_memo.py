"""Results remembered by the identity of their argument."""

from __future__ import annotations

from typing import Any

from detent.kernel.identity_memo import IdentityMemo


def test_a_function_is_called_once_for_each_object() -> None:
    """Equal objects are different ones: comparing them is what the memo saves."""
    asked: list[Any] = []

    def size(value: Any) -> int:
        asked.append(value)
        return len(value)

    memo = IdentityMemo(size)
    one, equal = {"a": 1}, {"a": 1}
    assert [memo(one), memo(one), memo(equal), memo(equal)] == [1, 1, 1, 1]
    assert [id(value) for value in asked] == [id(one), id(equal)]


def test_a_new_object_never_gets_the_result_of_one_that_is_gone() -> None:
    """An argument is kept alive with its result, so that no other object can have its identity."""
    memo = IdentityMemo(lambda value: value["number"], most=4)
    assert [memo({"number": number}) for number in range(100)] == list(range(100))


def test_only_so_many_results_are_kept() -> None:
    """A schema made anew for every visit does not fill the memory."""
    memo = IdentityMemo(len, most=4)
    for _ in range(50):
        memo([])
        assert len(memo._results) <= 4
