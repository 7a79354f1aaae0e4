"""The list of things to do: a pure function of the list and an action."""

from __future__ import annotations

import pytest

from detent.engine.tools import ToolError
from detent.flows.coding.tools.catalogue import SPECS, problems
from detent.flows.coding.tools.todo import MOST, todo

ONE = {"id": "1", "content": "read", "status": "pending", "priority": "medium"}
TWO = {"id": "2", "content": "edit", "status": "in_progress", "priority": "high"}


def test_items_are_added_with_ids_of_their_own():
    items, text = todo([], {"action": "add", "content": "read"})
    assert items == [ONE]
    assert text == "[ ] 1. read (medium)\n1 item open of 1."
    items, _ = todo(items, {"action": "add", "content": "edit", "status": "in_progress", "priority": "high"})
    assert items == [ONE, TWO]
    more, _ = todo(
        items, {"action": "add_multiple", "todos": [{"content": "a"}, {"content": "b", "priority": "low"}]}
    )
    assert [item["id"] for item in more] == ["1", "2", "3", "4"]
    assert more[3]["priority"] == "low"


def test_an_id_is_not_used_again_while_a_higher_one_stands():
    items, _ = todo([ONE, TWO], {"action": "remove", "todo_id": "1"})
    items, _ = todo(items, {"action": "add", "content": "x"})
    assert [item["id"] for item in items] == ["2", "3"]


def test_items_are_updated_completed_removed_and_listed():
    items, text = todo([ONE, TWO], {"action": "complete", "todo_id": "2"})
    assert items[1]["status"] == "completed"
    assert text == "[ ] 1. read (medium)\n[x] 2. edit (high)\n1 item open of 2."
    items, _ = todo(items, {"action": "update", "todo_id": "1", "content": "write", "priority": "low"})
    assert items[0] == {**ONE, "content": "write", "priority": "low"}
    items, text = todo(items, {"action": "remove", "todo_id": "1"})
    assert [item["id"] for item in items] == ["2"]
    same, text = todo(items, {"action": "list"})
    assert same == items
    assert text.endswith("0 items open of 1.")
    assert todo([], {"action": "list"}) == ([], "The list is empty.")


def test_the_list_that_was_given_stays_as_it_was():
    before = [dict(ONE)]
    todo(before, {"action": "complete", "todo_id": "1"})
    todo(before, {"action": "remove", "todo_id": "1"})
    assert before == [ONE]


def test_fields_that_others_keep_in_an_item_stay():
    items, _ = todo([{**ONE, "note": "x"}], {"action": "update", "todo_id": "1", "status": "completed"})
    assert items == [{**ONE, "note": "x", "status": "completed"}]


def test_fifty_items_fit_and_no_more_not_even_partly():
    many = [{"content": str(number)} for number in range(MOST)]
    items, _ = todo([], {"action": "add_multiple", "todos": many})
    assert len(items) == MOST == 50
    with pytest.raises(ToolError) as caught:
        todo(items, {"action": "add", "content": "x"})
    assert caught.value.code == "too_large"
    with pytest.raises(ToolError):
        todo(items[:49], {"action": "add_multiple", "todos": many[:2]})
    assert len(todo(items[:49], {"action": "add", "content": "x"})[0]) == MOST


@pytest.mark.parametrize(("args", "code"), [
    ({"action": "add"}, "invalid_arguments"),
    ({"action": "add", "content": " \n"}, "invalid_arguments"),
    ({"action": "add_multiple"}, "invalid_arguments"),
    ({"action": "update", "todo_id": "1"}, "invalid_arguments"),
    ({"action": "update", "content": "x"}, "invalid_arguments"),
    ({"action": "update", "todo_id": "1", "status": "done"}, "invalid_arguments"),
    ({"action": "complete"}, "invalid_arguments"),
    ({"action": "complete", "todo_id": "7"}, "not_found"),
    ({"action": "remove", "todo_id": "7"}, "not_found"),
    ({"action": "clear"}, "invalid_arguments"),
    ({}, "invalid_arguments"),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_in_words(args, code):
    with pytest.raises(ToolError) as caught:
        todo([ONE], args)
    assert caught.value.code == code
    assert len(caught.value.message) > 10


def test_content_of_several_lines_stays_one_item():
    items, text = todo([], {"action": "add", "content": "a\n[x] 2. fake\n\tb"})
    assert items[0]["content"] == "a [x] 2. fake b"
    assert len(text.split("\n")) == 2


def test_every_action_the_schema_allows_is_known():
    for action in SPECS["todo"].parameters["properties"]["action"]["enum"]:
        args = {"action": action, "content": "x", "todo_id": "1", "todos": [{"content": "y"}]}
        assert problems(SPECS["todo"], args) == []
        todo([ONE], args)
