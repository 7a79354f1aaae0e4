"""What HTTP providers have in common."""

from __future__ import annotations

import pytest

from detent.adapters.models import http_common
from detent.adapters.models.model import ModelRequest
from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.conversation import Message
from detent.engine.schemas import misfits
from detent.kernel.errors import ConfigurationError

FORM = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"type": "string", "enum": ["x"]}},
    "required": ["a", "b"],
    "$defs": {"A": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
}


def asking(text: str, *tools: str) -> ModelRequest:
    return ModelRequest(
        (Message("user", text),),
        tools=tuple(AgentTool(name, "query", "", {"type": "object"}) for name in tools),
    )


class TestStatuses:
    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
    def test_these_may_pass(self, status):
        assert http_common.status_failure("X", status).transient

    @pytest.mark.parametrize("status", [301, 400, 401, 402, 403, 404, 413, 422])
    def test_these_do_not_pass(self, status):
        assert not http_common.status_failure("X", status, retry_after=3).transient
        assert http_common.status_failure("X", status, retry_after=3).retry_after is None

    def test_an_empty_account_does_not_fill_itself_by_waiting(self):
        assert not http_common.status_failure("X", 429, code="insufficient_quota").transient


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry-after": "7"}, 7.0),
            ({"retry-after": "1.5"}, 1.5),
            ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
            ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
            ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
            ({"retry-after": "soon"}, None),
            ({"retry-after": "-4"}, None),
            ({}, None),
        ],
    )
    def test_it_is_read_as_seconds_or_as_a_date(self, headers, seconds):
        assert http_common.retry_after(headers, now=100.0) == seconds


class TestMessages:
    def test_a_key_is_never_repeated(self):
        assert http_common.fit_to_tell("bad key sk-123", asking("?"), ["sk-123", ""]) == "bad key ***"

    def test_what_repeats_the_question_is_left_out(self):
        question = "The customer Erika Mustermann wants her money back"
        told = http_common.fit_to_tell("cannot parse: 'Erika Mustermann  wants'", asking(question))
        assert "Erika" not in told
        assert "left out" in told

    def test_it_is_one_short_line(self):
        told = http_common.fit_to_tell("a\nb " + "x" * 500, asking("?"))
        assert told.startswith("a b xx")
        assert len(told) <= http_common.LONGEST_TOLD + 1

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"error": {"message": "m", "code": 5}}, "m"),
            ({"error": "m"}, "m"),
            ({"detail": "m"}, "m"),
            ({"message": "m"}, "m"),
            ([{"error": {"message": "m"}}], "m"),
            ("<html>", ""),
            ({"error": 7}, ""),
            (None, ""),
        ],
    )
    def test_it_is_found_in_every_shape_servers_give_it(self, body, message):
        assert http_common.told(body)[0] == message


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ('{"a": [1, 2', True), ('{"a": "half', True), ("", True), ('{"a":', True), ('{"a": 1', True),
        ("<html></html>", False), ('{"a": oops}', False), ("no", False), ('{"a": 1}', False),
    ],
)  # fmt: skip
def test_json_that_stops_in_the_middle_is_told_from_garbage(text, cut):
    assert http_common.cut_short(text) is cut


class TestNames:
    def test_names_come_back_as_they_were(self):
        names = http_common.WireNames(asking("?", "crm.find", "crm_find", "crm/find", "ü"))
        given = [names.wire(name) for name in ("crm.find", "crm_find", "crm/find", "ü")]
        assert len(set(given)) == 4
        assert [names.own(name) for name in given] == ["crm.find", "crm_find", "crm/find", "ü"]
        assert all(name.replace("_", "").replace("-", "").isalnum() or name == "_" for name in given)

    def test_long_names_fit(self):
        assert len(http_common.WireNames(asking("?")).wire("a" * 200)) <= 64

    def test_a_name_nobody_was_given_stays(self):
        assert http_common.WireNames(asking("?")).own("invented") == "invented"


class TestSchemas:
    def test_closing_narrows_and_changes_nothing_else(self):
        closed = http_common.closed(FORM)
        assert closed["additionalProperties"] is False
        assert closed["$defs"]["A"]["additionalProperties"] is False
        assert not misfits({"a": {"n": 1}, "b": "x"}, closed)
        assert misfits({"a": {"n": 1, "m": 2}, "b": "x"}, closed)
        assert http_common.wholly_closed(closed)
        assert not http_common.wholly_closed(FORM)

    def test_an_optional_key_is_not_strict(self):
        assert not http_common.wholly_closed(http_common.closed({**FORM, "required": ["a"]}))

    def test_an_object_for_anything_stays_open(self):
        free = {"type": "object", "properties": {"x": {"type": "object"}}, "required": ["x"]}
        assert http_common.open_ended(free)
        assert http_common.open_ended({})
        assert http_common.open_ended({"type": "object", "additionalProperties": {"type": "string"}})
        assert not http_common.open_ended(FORM)
        assert http_common.closed(free)["properties"]["x"] == {"type": "object"}


class TestAddresses:
    @pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "http://x:99999999", ""])
    def test_what_is_no_address_is_told(self, url):
        assert "base_url" in http_common.wrong_address(url)


def test_all_wrong_options_are_told_at_once_with_the_nearest():
    with pytest.raises(ConfigurationError) as caught:
        http_common.checked_options(
            "openai", {"base_ulr": "x", "timeout": True, "n": 1}, {"base_url": str, "timeout": float}
        )
    assert "Did you mean 'base_url'?" in str(caught.value)
    assert "'timeout'" in str(caught.value)
    assert "'n' is no option" in str(caught.value)
