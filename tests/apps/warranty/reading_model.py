"""A model server that reads the prompt as a careful clerk would, and one that misreads it; both over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cli.acting import Model, serving


class Clerk:
    """Fills in whatever form the request's schema asks for, from the words of the prompt alone."""

    def reply(self, text: str, schema: dict[str, Any]) -> Any:
        """The answer to one request."""
        if "anyOf" in schema:
            status = re.search(r'"status": ?"(\w+)"', text)
            return {"answer": {"status": status[1]}} if status else self.call(text)
        fields = schema.get("properties", {})
        return {name: getattr(self, name)(text, part) for name, part in fields.items()}

    def call(self, text: str) -> Any:
        serial = re.search(r'serial_number: "([^"]+)"', text)
        assert serial is not None, text
        return {"tool": "check_warranty", "arguments": {"serial_number": serial[1]}}

    def about(self, text: str, part: Any) -> str:
        return "administration" if "hours" in text.lower() else "device"

    def numbers(self, text: str, part: Any) -> dict[str, str]:
        return dict.fromkeys(part["properties"], "serial")

    def priority(self, text: str, part: Any) -> str:
        return "high" if "burning" in text else "normal"

    def body(self, text: str, part: Any) -> str:
        draft = text.split("body_draft")[1].split("\n", 2)[2].rsplit("\n", 1)[0]
        return draft.replace("Kind regards", "With kind regards").replace("Pozdrawiamy", "Z pozdrowieniami")


class Careless(Clerk):
    """Answers in the right form, and wrongly: plausible, and not what the mail or the registry says."""

    def reply(self, text: str, schema: dict[str, Any]) -> Any:
        if "anyOf" in schema and '"status"' in text:
            status = re.search(r'"status": ?"(\w+)"', text)
            return {"answer": {"status": "expired" if status and status[1] == "valid" else "valid"}}
        return super().reply(text, schema)

    def numbers(self, text: str, part: Any) -> dict[str, str]:
        return dict.fromkeys(part["properties"], "order")

    def priority(self, text: str, part: Any) -> str:
        return "normal" if "burning" in text else "high"


@contextmanager
def reading(clerk: Clerk) -> Iterator[Model]:
    """The server of such a model."""
    with serving({}) as model:
        empty = model.answer

        def answer(body: Any) -> dict[str, Any]:
            said = [str(each.get("content")) for each in body["messages"] if each["role"] != "system"]
            form = (body.get("response_format") or {}).get("json_schema", {}).get("schema") or {}
            plain = empty(body)
            plain["choices"][0]["message"]["content"] = json.dumps(clerk.reply("\n".join(said), form))
            return plain

        model.answer = answer  # type: ignore[method-assign]
        yield model
