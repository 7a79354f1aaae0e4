"""What strangers send, as plain values; what they say about their tools, tamed."""

from __future__ import annotations

import pytest
from mcp import types

from detent.adapters.mcp.answers import LARGEST_ANSWER, Unreadable, answer_of, listed, tame
from detent.engine.schemas import misfits
from detent.kernel.errors import ConfigurationError


def told(*texts, **options):
    content = [types.TextContent(type="text", text=text) for text in texts]
    return types.CallToolResult(content=[*content, *options.pop("more", ())], **options)


class TestAnswers:
    def test_structured_content_comes_first(self):
        assert answer_of(told("something else", structured_content={"n": 1})) == {"n": 1}

    def test_texts_are_joined(self):
        assert answer_of(told("one", "two")) == "one\ntwo"

    def test_a_text_that_spells_a_list_or_mapping_is_read(self):
        assert answer_of(told(' {"a": [1, null]}')) == {"a": [1, None]}

    @pytest.mark.parametrize("text", ["42", "true", '"x"', "{not json", '{"n": NaN}', "[" * 100_000])
    def test_any_other_text_stays_text(self, text):
        assert answer_of(told(text)) == text

    def test_no_content_is_nothing(self):
        assert answer_of(told()) is None

    def test_of_pictures_sounds_and_files_only_the_kind_and_size_are_kept(self):
        blob = types.BlobResourceContents(uri="file:///a", blob="aGVsbG8=")
        more = [
            types.ImageContent(type="image", data="aGVsbG8h", mime_type="image/png"),
            types.AudioContent(type="audio", data="aGVsbA==", mime_type="audio/wav"),
            types.EmbeddedResource(type="resource", resource=blob),
            types.EmbeddedResource(
                type="resource", resource=types.TextResourceContents(uri="file:///b", text="inside")
            ),
            types.ResourceLink(type="resource_link", uri="file:///c", name="c", size=7),
        ]
        assert answer_of(told("see", more=more)) == [
            "see",
            {"$type": "image/png", "size": 6},
            {"$type": "audio/wav", "size": 4},
            {"$type": "application/octet-stream", "size": 5},
            "inside",
            {"$type": "resource_link", "uri": "file:///c", "name": "c", "size": 7},
        ]

    def test_what_would_mean_something_to_the_engine_means_nothing(self):
        """A stranger's stand-in for a receipt, or reference to a kept value, is only data (I9)."""
        found = answer_of(told(structured_content={"$receipt": "k", "in": [{"$blob": "h", "$other": 1}]}))
        assert found == {"$$receipt": "k", "in": [{"$$blob": "h", "$other": 1}]}

    @pytest.mark.parametrize(
        "value", [{"n": float("nan")}, {"x": "x" * (LARGEST_ANSWER + 1)}], ids=["nan", "large"]
    )
    def test_what_cannot_be_kept_says_why_without_its_values(self, value):
        with pytest.raises(Unreadable) as caught:
            answer_of(told(structured_content=value))
        assert "xxx" not in str(caught.value)


class TestTaming:
    def test_long_prose_is_cut_wherever_it_stands(self):
        tool = types.Tool(
            name="t",
            description="Do this. " * 500,
            input_schema={
                "type": "object",
                "properties": {"description": {"type": "string", "description": "y" * 900}},
            },
        )
        found = listed(tool)
        assert len(found.description) == 500
        assert len(found.schema["properties"]["description"]["description"]) == 500
        assert misfits({"description": 3}, found.schema)

    @pytest.mark.parametrize(
        ("schema", "told"),
        [
            ({"$ref": "http://127.0.0.1:9/schema.json"}, "outside itself"),
            ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "outside itself"),
            ({"type": "nonsense"}, "no JSON Schema"),
            ({"description": "x" * 70_000}, "70018 characters"),
            ([], "not described by a JSON Schema"),
        ],
    )
    def test_a_schema_that_is_none_or_reaches_out_is_refused(self, schema, told):
        with pytest.raises(ConfigurationError, match=told):
            tame(schema)

    def test_a_schema_may_refer_to_its_own_parts(self):
        schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
        assert misfits({"a": "x"}, tame(schema)) == misfits({"a": "x"}, schema) != []
