"""Keys and secrets are sent only to hosts the user allows."""

from __future__ import annotations

import json

import pytest

from tests.cli.untrusted import foreign, git, record, stranger

__all__ = ["foreign", "stranger"]


def test_a_project_cannot_say_where_the_users_keys_go(stranger, detent):
    (stranger / "detent.yaml").write_text("keys: {AWS_SECRET_ACCESS_KEY: [127.0.0.2]}\n")
    said = detent("workflow", "list")
    assert said.code == 2
    assert "detent.yaml:1:1: 'keys' belongs into your own settings" in said.err


def test_a_key_is_not_sent_to_a_foreign_address_of_a_trusted_project(stranger, foreign, detent):
    git(stranger)
    detent("trust", "--yes")
    (stranger / "hello.txt").write_text("a change to commit\n")
    detent("workflow", "run", "commit-and-push")
    assert not any("aws-secret-value" in one for one in foreign.said)
    assert foreign.said == []


def test_a_key_is_sent_once_the_user_allows_it(stranger, foreign, detent):
    git(stranger)
    detent("trust", "--yes")
    assert detent("trust", "--allow-key", "AWS_SECRET_ACCESS_KEY=127.0.0.2").code == 0
    (stranger / "hello.txt").write_text("a change to commit\n")
    detent("workflow", "run", "commit-and-push")
    assert any("aws-secret-value" in one for one in foreign.said)


def test_a_secret_input_goes_only_to_hosts_the_user_allows(folder, foreign, detent, monkeypatch):
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(folder.parent / f"{folder.name}-config"))
    monkeypatch.setenv("DETENT_INPUT_TOKEN", "a-secret-token")
    (folder / "detent.yaml").write_text("workflow: {allow_private: true}\n")
    (folder / "fetch.yaml").write_text(
        f"""
version: "1.0"
name: fetch
inputs: {{token: {{type: string, secret: true}}}}
steps:
  - name: get
    type: python
    action: http_get
    kwargs:
      url: "http://127.0.0.2:{foreign.port}/"
      headers: {{authorization: "Bearer ${{{{ inputs.token }}}}"}}
"""
    )
    assert detent("trust", "--yes").code == 0
    said = detent("workflow", "run", "fetch.yaml")
    assert "detent trust --allow-key DETENT_INPUT_TOKEN=127.0.0.2" in said.out + said.err
    assert foreign.said == []
    detent("trust", "--allow-key", "DETENT_INPUT_TOKEN=127.0.0.2")
    detent("workflow", "run", "fetch.yaml")
    assert any("a-secret-token" in one for one in foreign.said)


@pytest.mark.parametrize(
    "host",
    [
        "crm.firm.example:8443", "https://crm.firm.example", "crm.firm.example/v1", "ada@crm.firm.example",
        "", " ", "*.firm.example", "crm firm.example", "[::1]:80", "crm..example", "crm.firm.example?x",
    ],
)  # fmt: skip
def test_a_key_is_allowed_for_a_bare_host_only(stranger, detent, host):
    said = detent("trust", "--allow-key", f"CRM_TOKEN={host}")
    assert said.code == 2
    assert "--allow-key takes NAME=HOST, such as CRM_TOKEN=crm.firm.example" in said.err
    assert "no port, scheme, path or user" in said.err
    assert not record(stranger).exists()


@pytest.mark.parametrize("host", ["crm.firm.example", "CRM.firm.example.", "10.0.0.7", "fe80::1", "printer"])
def test_names_and_addresses_of_hosts_can_be_allowed(stranger, detent, host):
    assert detent("trust", "--allow-key", f"CRM_TOKEN={host}").code in (0, 2)
    assert json.loads(record(stranger).read_text())["keys"] == {"CRM_TOKEN": [host.lower().rstrip(".")]}


def test_the_users_own_settings_name_bare_hosts_too(stranger, detent):
    record(stranger).parent.mkdir()
    (record(stranger).parent / "detent.yaml").write_text("keys: {CRM_TOKEN: ['crm.firm.example:8443']}\n")
    said = detent("workflow", "list")
    assert said.code == 2
    assert "'keys.CRM_TOKEN' takes hosts without port, scheme, path or user" in said.err


def test_a_key_is_disallowed_again(stranger, foreign, detent):
    git(stranger)
    detent("trust", "--yes", "--allow-key", "AWS_SECRET_ACCESS_KEY=127.0.0.2")
    said = detent("trust", "--disallow-key", "AWS_SECRET_ACCESS_KEY=127.0.0.2")
    assert (said.code, said.out) == (0, "AWS_SECRET_ACCESS_KEY may not go to 127.0.0.2 any more.\n")
    (stranger / "hello.txt").write_text("a change to commit\n")
    detent("workflow", "run", "commit-and-push")
    assert foreign.said == []


def test_disallowing_says_where_a_key_is_allowed_otherwise(stranger, detent):
    record(stranger).parent.mkdir()
    own = record(stranger).parent / "detent.yaml"
    own.write_text("keys: {CRM_TOKEN: [crm.firm.example]}\n")
    said = detent("trust", "--disallow-key", "CRM_TOKEN=crm.firm.example")
    assert said.code == 2
    assert "CRM_TOKEN may go to crm.firm.example because your own settings say so" in said.err
    said = detent("trust", "--disallow-key", "OPENAI_API_KEY=api.openai.com")
    assert (said.code, "OPENAI_API_KEY may always go to api.openai.com" in said.err) == (2, True)
    said = detent("trust", "--disallow-key", "CRM_TOKEN=other.example")
    assert (said.code, said.out) == (0, "CRM_TOKEN was not allowed to go to other.example.\n")


def test_what_an_earlier_version_accepted_can_be_disallowed(stranger, detent):
    record(stranger).parent.mkdir()
    record(stranger).write_text('{"keys": {"CRM_TOKEN": ["crm.firm.example:8443"]}}')
    assert detent("trust", "--disallow-key", "CRM_TOKEN=crm.firm.example:8443").code == 0
    assert json.loads(record(stranger).read_text())["keys"] == {}


def test_revoking_names_the_keys_that_stay_allowed_and_how_to_withdraw_them(stranger, detent):
    detent("trust", "--yes", "--allow-key", "AWS_SECRET_ACCESS_KEY=127.0.0.2")
    said = detent("trust", "--revoke")
    assert (
        "AWS_SECRET_ACCESS_KEY may still go to 127.0.0.2, whichever project sends it there. "
        "To withdraw that: detent trust --disallow-key AWS_SECRET_ACCESS_KEY=127.0.0.2\n" in said.out
    )


def test_showing_lists_the_keys_that_are_allowed(stranger, detent):
    record(stranger).parent.mkdir()
    (record(stranger).parent / "detent.yaml").write_text("keys: {CRM_TOKEN: [crm.firm.example]}\n")
    detent("trust", "--yes", "--allow-key", "OTHER=other.example")
    said = detent("trust", "--show")
    assert "  keys you allow, in every project:\n" in said.out
    assert "    CRM_TOKEN → crm.firm.example  (your own settings)\n" in said.out
    assert "    OTHER → other.example  (detent trust)\n" in said.out
    listed = detent("trust", "--json").json["allowed_keys"]
    assert {"key": "OTHER", "host": "other.example", "by": "detent trust"} in listed


def test_a_refused_key_names_its_setting_once(stranger, detent):
    detent("trust", "--yes")
    said = detent("steps", "list")
    assert (
        "detent.yaml:5:3: models.theirs: AWS_SECRET_ACCESS_KEY would be sent to 127.0.0.2, "
        "which your own settings do not allow." in said.err
    )
