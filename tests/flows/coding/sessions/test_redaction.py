"""No secret reaches a session file, and nothing else is taken out of it."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.coding.sessions.file_schema import field_names, schema, words
from detent.flows.coding.sessions.folder import SessionFolder
from detent.flows.coding.sessions.record import SessionRecord
from detent.flows.coding.sessions.redaction import REMOVED, Redaction, names_secret
from tests.examples import examples

ID = "2025-01-02_03-04-05_fix-it_abcdef"
SECRET = "s3cr3t-value/+=&"
VALIDATOR = jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize(
    "key",
    [
        "api_key", "apiKey", "x-api-key", "X-API-Key", "APIKey", "apikey", "OPENAI_API_KEY", "api.key",
        "api key",
        "access_token", "accessToken", "token", "Token", "TOKEN", "auth-token", "client_secret",
        "clientSecret",
        "secret", "password", "DB_PASSWORD", "passwordHash", "private_key", "privateKey", "SSH_PRIVATE_KEY",
        "auth", "Authorization", "authorization", "proxy-authorization", "credential", "credentials",
        "awsCredential", "passwd", "passphrase", "secret_access_key", "api_keys", "ａｐｉ_key",
    ],
)  # fmt: skip
def test_keys_with_a_word_for_a_secret_name_one(key):
    assert names_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "author", "authors", "max_tokens", "tokens_used", "input_tokens", "authority", "tokenizer",
        "secretary",
        "key", "api", "keyword", "monkey", "oauthor", "credentialed", "passwordless", "tool_call_id",
        "private",
        "", "123", "ключ", "keyApi", "apis_key",
    ],
)  # fmt: skip
def test_other_keys_do_not(key):
    assert not names_secret(key)


def test_no_field_of_a_file_is_taken_for_a_secret():
    assert not [name for name in field_names() if names_secret(name)]


def test_values_of_secret_keys_are_removed_at_any_depth():
    redaction = Redaction()
    plain = {
        "custom": [{"deep": {"api_key": "a",
        "list": [{"clientSecret": {"x": 1}}]}}], "token": 5, "author": "me",
        "max_tokens": 7, "messages": [{"role": "user", "content": "x",
        "password": ["p"], "note": {"auth": ""}}],
    }  # fmt: skip
    assert redaction.session(plain) == {
        "custom": [{"deep": {"api_key": REMOVED, "list": [{"clientSecret": REMOVED}]}}], "token": REMOVED,
        "author": "me", "max_tokens": 7,
        "messages": [{"role": "user", "content": "x", "password": REMOVED, "note": {"auth": REMOVED}}],
    }  # fmt: skip
    assert redaction.session(redaction.session(plain)) == redaction.session(plain)


@pytest.mark.parametrize(
    "shown",
    [
        SECRET, f"a{SECRET}b", json.dumps({"x": SECRET}), "https://u:s3cr3t-value%2F%2B%3D%26@host/",
    ],
)  # fmt: skip
def test_known_secrets_are_removed_wherever_they_stand(shown):
    cleared = Redaction([SECRET, "", "other-secret"]).session({"a": [{"b": shown}], "messages": [shown]})
    assert "s3cr3t" not in json.dumps(cleared)
    assert REMOVED in cleared["a"][0]["b"]


def test_a_secret_of_several_lines_is_found_inside_json_text():
    secret = 'line "one"\nline é two'
    for text in (json.dumps({"x": secret}), json.dumps({"x": secret}, ensure_ascii=False), secret):
        assert Redaction([secret]).text(text).count("line") == 0


def test_the_longest_secret_is_removed_first_and_keys_stay_apart():
    redaction = Redaction(["password", "password-long"])
    assert redaction.text("x password-long y password") == f"x {REMOVED} y {REMOVED}"
    cleared = Redaction(["secret-1", "secret-2"]).session(
        {"secret-1": 1, "x-secret-2": 2, REMOVED: 3, "a": 4}
    )
    assert sorted(cleared.values(), key=str) == [3, 4, REMOVED, REMOVED]
    apart = Redaction(["value-one", "value-two"]).session({"value-one": 1, "value-two": 2, REMOVED: 3})
    assert apart == {f"{REMOVED} 2": 1, f"{REMOVED} 3": 2, REMOVED: 3}


@given(st.lists(st.sampled_from(sorted(words() | field_names() | {ID, "2025", "user"})), max_size=4))
@settings(max_examples=examples(120))
def test_a_secret_equal_to_a_word_of_the_format_leaves_a_file_that_can_be_read(secrets):
    record = SessionRecord.new(ID, 0.0, workspace="/w").changed(
        state="response", is_complete=True, outcome="completed",
        completion={"line_no": 1, "marker_line": "TUNACODE DONE: x", "summary": "x", "source": "reply"},
        todos=[{"id": "1", "content": "response", "status": "completed", "priority": "medium"}],
        messages=[
            {"role": "user", "content": "the response"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "t1c1", "tool": "glob", "args": {}}]},
            {"role": "tool", "tool_call_id": "t1c1", "tool": "glob", "ok": True, "content": "completed"},
        ],
    )  # fmt: skip
    plain = SessionFolder("/nowhere", secrets=secrets).plain(record)
    VALIDATOR.validate(plain)
    again = SessionRecord.from_plain(plain)
    assert (again.session_id, again.state_value, again.is_complete) == (ID, "response", True)
    assert len(again.turns) == 3
    if "response" in secrets:
        assert again.turns[0]["content"] == f"the {REMOVED}"


def test_a_word_of_the_format_hides_no_secret_in_another_place():
    cleared = Redaction(["hunter2-hunter2"]).session(
        {
            "state": "hunter2-hunter2",
            "messages": [{"role": "hunter2-hunter2", "content": 1}],
            "session_id": "x",
        }
    )
    assert "hunter2" not in json.dumps(cleared)
