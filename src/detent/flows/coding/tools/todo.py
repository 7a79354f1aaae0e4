"""The tool `todo`: the session's list of things to do, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detent.engine.tools import ToolError
from detent.flows.coding.tools.text_form import counted

MOST = 50
STATUSES = ("pending", "in_progress", "completed")
PRIORITIES = ("low", "medium", "high")
USUAL = {"status": "pending", "priority": "medium"}
_MARKS = {"pending": " ", "in_progress": "~", "completed": "x"}

Item = dict[str, Any]


def todo(items: Sequence[Mapping[str, Any]], args: Mapping[str, Any]) -> tuple[list[Item], str]:
    """The list after an action, and a text for the assistant.

    Raises:
        ToolError: the action cannot be done; the list stays as it is.
    """
    todos = [dict(item) for item in items]
    action = args.get("action")
    if action == "list":
        return todos, _listed(todos)
    if action == "add":
        if args.get("content") is None:
            raise _bad("'add' needs content: what is to be done.")
        _add(todos, [args])
    elif action == "add_multiple":
        if not args.get("todos"):
            raise _bad("'add_multiple' needs todos: a list of items, each with content.")
        _add(todos, args["todos"])
    elif action in ("update", "complete", "remove"):
        item = _item(todos, args.get("todo_id"), action)
        if action == "remove":
            todos.remove(item)
        elif action == "complete":
            item["status"] = "completed"
        else:
            changes = {
                name: args[name] for name in ("content", "status", "priority") if args.get(name) is not None
            }
            if not changes:
                raise _bad("'update' needs content, status or priority: what is to change.")
            item.update(_checked(changes))
    else:
        raise _bad("the action is one of add, add_multiple, update, complete, list, remove.")
    return todos, _listed(todos)


def _add(todos: list[Item], new: Sequence[Mapping[str, Any]]) -> None:
    if len(todos) + len(new) > MOST:
        raise ToolError(
            "too_large",
            f"the list holds at most {MOST} items; it has {len(todos)}, and {len(new)} were to be added. "
            f"Remove what is completed.",
        )
    number = max((int(item["id"]) for item in todos if _is_number(item.get("id"))), default=0)
    for item in new:
        number += 1
        given = {name: item[name] for name in ("content", "status", "priority") if item.get(name) is not None}
        todos.append({"id": str(number), **_checked({"content": "", **USUAL, **given})})


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """Values of an item, if they are such."""
    for name, known in (("status", STATUSES), ("priority", PRIORITIES)):
        if name in values and values[name] not in known:
            raise _bad(f"{name} is one of {', '.join(known)}.")
    if "content" in values:
        if not isinstance(values["content"], str) or not values["content"].strip():
            raise _bad("the content of an item is a text that is not empty.")
        values["content"] = " ".join(values["content"].split())
    return values


def _item(todos: Sequence[Item], todo_id: Any, action: str) -> Item:
    if todo_id is None:
        raise _bad(f"'{action}' needs todo_id: which item.")
    item = next((item for item in todos if str(item.get("id")) == str(todo_id)), None)
    if item is None:
        known = ", ".join(str(item.get("id")) for item in todos) or "none"
        raise ToolError("not_found", f"there is no item '{str(todo_id)[:20]}'. Items: {known}.")
    return item


def _listed(todos: Sequence[Item]) -> str:
    if not todos:
        return "The list is empty."
    left = sum(item.get("status") != "completed" for item in todos)
    lines = [_line(item) for item in todos]
    return "\n".join([*lines, f"{counted(left, 'item')} open of {len(todos)}."])


def _line(item: Item) -> str:
    mark = _MARKS.get(str(item.get("status")), " ")
    return f"[{mark}] {item.get('id')}. {item.get('content')} ({item.get('priority')})"


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10


def _bad(message: str) -> ToolError:
    return ToolError("invalid_arguments", message)
