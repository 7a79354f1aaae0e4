"""Reads `form` and `examples` of a step file, and checks the keys of a field against each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from detent.authoring.document import below
from detent.engine.patterns import InvalidPattern, compiled
from detent.flows.playbook import forms
from detent.flows.playbook.condition_reading import ConditionReader
from detent.flows.playbook.instruction import BAD_FORM, Candidates, FormField, WorkedExample, WrittenField
from detent.kernel.errors import nearest

BOUNDS = {"minLength": "string", "maxLength": "string", "minimum": "number", "maximum": "number"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

T = TypeVar("T")


class FormReader(ConditionReader):
    """Reads the form of a step file."""

    def items(
        self, values: Mapping[str, Any], key: str, read: Callable[[Any, str], T | None]
    ) -> tuple[T, ...]:
        """The usable items of a list."""
        items = [read(item, f"{key}[{index}]") for index, item in enumerate(values.get(key, ()))]
        return tuple(item for item in items if item is not None)

    def form(self, declared: Mapping[str, Any] | None) -> tuple[FormField, ...]:
        """The usable fields of the form."""
        if declared == {}:
            self.wrong("P06", "form", "form has fields, each with a description.")
        fields = [self.field(name, value, below("form", name)) for name, value in (declared or {}).items()]
        return tuple(field for field in fields if field is not None)

    def field(self, name: str, declared: Any, path: str) -> FormField | None:
        """One field of the form."""
        if not _NAME.fullmatch(name):
            self.wrong(BAD_FORM, path, f"'{name}' cannot name a field: letters, digits and _ do.")
            return None
        before = len(self.problems)
        if isinstance(declared, dict) and declared.get("description") == "":
            declared = {**declared, "description": None}
        values = self.item(WrittenField, declared, path, f"field '{name}'")
        if values is None:
            return None
        meanings = self.choices(name, values, path)
        candidates = self.candidates(name, values, path)
        if candidates is not None and "fills" in values:
            self.wrong(BAD_FORM, f"{path}.fills", "labels for candidates fill no argument.")
        schema = self.schema(values, path, meanings, labels=candidates is not None)
        if len(self.problems) > before:
            return None
        description = values["description"].strip()
        return FormField(name, description, schema, meanings, candidates, values.get("fills"))

    def choices(self, name: str, values: Mapping[str, Any], path: str) -> dict[str, str]:
        """The values of a choice, with what each means."""
        enum, enum_path = values.get("enum"), f"{path}.enum"
        if enum is None:
            return {}
        pairs = list(enum.items()) if isinstance(enum, dict) else None
        if isinstance(enum, list):
            pairs = [(choice, "") for choice in enum]
        if pairs is None or not all(
            isinstance(choice, str) and choice and isinstance(meaning, str | None)
            for choice, meaning in pairs
        ):
            message = (
                "enum is a list of texts, or texts with what each means: {fault: something is broken, …}."
            )
            self.wrong(BAD_FORM, enum_path, message)
            return {}
        if len({choice for choice, _ in pairs}) < max(2, len(pairs)):
            self.wrong(BAD_FORM, enum_path, "enum lists at least two choices, each once.")
        if values.get("type", "string") != "string":
            self.wrong(BAD_FORM, f"{path}.type", f"field '{name}' is a choice; its type is 'string'.")
        return {choice: " ".join((meaning or "").split()) for choice, meaning in pairs}

    def candidates(self, name: str, values: Mapping[str, Any], path: str) -> Candidates | None:
        """The function or pattern that finds the candidates of a field."""
        finder, own_path = values.get("candidates"), f"{path}.candidates"
        if finder is None:
            return None
        if "enum" not in values:
            self.wrong(BAD_FORM, own_path, f"field '{name}' labels candidates: say with 'enum' as what.")
        if values.get("optional"):
            message = "every candidate gets a label; add a choice such as other."
            self.wrong(BAD_FORM, f"{path}.optional", message)
        if isinstance(finder, str) and finder.strip():
            return Candidates(function=finder.strip())
        if not isinstance(finder, dict):
            self.wrong(BAD_FORM, own_path, "candidates is a registered function, or {pattern, in}.")
            return None
        for key in finder:
            if key not in ("pattern", "in"):
                message = f"'{key}' is not a key of candidates.{nearest(key, ('pattern', 'in'))}"
                self.wrong(self.unknown, below(own_path, key), message)
        pattern, within = finder.get("pattern"), finder.get("in")
        if not isinstance(pattern, str) or not isinstance(within, str) or not pattern or not within:
            message = "candidates by pattern need the pattern and, as 'in', the key of the data to search."
            self.wrong(BAD_FORM, own_path, message)
            return None
        try:
            expression = compiled(pattern)
        except InvalidPattern as error:
            message = f"this is no regular expression: {error}."
            self.wrong(BAD_FORM, f"{own_path}.pattern", message)
            return None
        if expression.fullmatch(""):
            self.wrong(BAD_FORM, f"{own_path}.pattern", "the pattern matches an empty text.")
            return None
        return Candidates(pattern=pattern, within=within)

    def schema(
        self, values: Mapping[str, Any], path: str, meanings: Mapping[str, str], *, labels: bool
    ) -> dict[str, Any]:
        """JSON Schema of the field's value, or of one label."""
        kind, nullable = values.get("type", "string"), values.get("optional", False) and not labels
        schema: dict[str, Any] = {"type": [kind, "null"] if nullable else kind}
        if meanings:
            schema["enum"] = [*meanings, *([None] if nullable else [])]
        for bound, of in BOUNDS.items():
            if bound not in values:
                continue
            if meanings or (kind != of and (of, kind) != ("number", "integer")):
                self.wrong(BAD_FORM, f"{path}.{bound}", f"{bound} is for a {of}.")
            else:
                schema[bound] = values[bound]
        for low, high in (("minLength", "maxLength"), ("minimum", "maximum")):
            if low in schema and high in schema and schema[low] > schema[high]:
                self.wrong(BAD_FORM, f"{path}.{high}", f"{high} is below {low}: no value fits.")
        return schema

    def examples(self, values: Mapping[str, Any], form: Sequence[FormField]) -> tuple[WorkedExample, ...]:
        """The worked examples; each answer must fit the form."""
        written = self.document.value.get("form") if isinstance(self.document.value, dict) else None
        if "examples" in values and written is None:
            self.wrong(BAD_FORM, "examples", "examples show a form filled in, and there is no form.")
        whole = isinstance(written, dict) and len(form) == len(written)
        labelled = [field.name for field in form if field.candidates is not None]
        known = (*values.get("needs", ()), *labelled)

        def example(item: Any, path: str) -> WorkedExample | None:
            if not isinstance(item, dict) or not all(
                isinstance(item.get(key), dict) for key in ("given", "answer")
            ):
                message = "an example has `given`, values of the needs, and `answer`, the form."
                self.wrong(BAD_FORM, path, message)
                return None
            fields = self.fields(WorkedExample, item, path, "an example")
            if not whole:
                return None  # an answer can only be checked against a valid form
            inputs, answer = item["given"], item["answer"]
            texts = {
                name: [{"text": text, "near": ""} for text in answer[name]]
                for name in labelled
                if isinstance(answer.get(name), dict)
            }
            for problem in forms.facts_of(form, answer, texts)[1]:
                self.wrong(BAD_FORM, f"{path}.answer", f"the answer does not fit the form: {problem}.")
            for key in inputs:
                if key not in known:
                    message = f"'{key}' is none of the step's needs.{nearest(key, known)}"
                    self.wrong(BAD_FORM, below(f"{path}.given", key), message)
            return WorkedExample(inputs, answer, fields.get("note", "").strip())

        return self.items(values, "examples", example)
