"""Keys go only where the user lets them go."""

from __future__ import annotations

import pytest

from detent.runtime.key_hosts import KeyHosts, KeyRefused, allow_key
from detent.runtime.key_uses import check_keys, key_uses
from detent.runtime.mcp import mcp_servers
from detent.runtime.plugs import KeyUse
from detent.runtime.settings import SettingsError, read_settings
from detent.runtime.wiring import store_for

USES = """
models:
  near: {kind: openai, base_url: "http://localhost:9/v1", api_key_env: NEAR_KEY}
  openai: {model_id: gpt}
  theirs: {kind: claude, base_url: "https://Evil.Example./v1"}
  wrong: {kind: openai, api_key_env: AWS_SECRET_ACCESS_KEY}
mcp:
  docs: {url: "https://docs.example/mcp", headers: {X-Key: DOCS_KEY}, queries: [find]}
mail:
  from: a@b.example
  sink: smtp
  smtp: {host: smtp.example, password_env: POST}
  source: imap
  imap: {host: i.example}
tools: {registry: crm, crm: {base_url: "https://crm.example/api", user_env: CRM_USER}}
"""
HEADINGS = {"tools": None}


@pytest.fixture
def environ(tmp_path):
    return {"DETENT_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def settings_of(tmp_path, text, environ, user=None):
    (tmp_path / "detent.yaml").write_text(text)
    if user is not None:
        (tmp_path / "config").mkdir(exist_ok=True)
        (tmp_path / "config/detent.yaml").write_text(user)
    return read_settings(folder=tmp_path, environ=environ, headings=lambda _: HEADINGS)


@pytest.mark.parametrize(
    ("variable", "host", "allowed"),
    [
        ("NEAR_KEY", "localhost", True),
        ("OPENAI_API_KEY", "api.openai.com", True),
        ("ANTHROPIC_API_KEY", "evil.example", False),
        ("AWS_SECRET_ACCESS_KEY", "api.openai.com", False),
        ("DOCS_KEY", "docs.example", False),
        ("POST", "smtp.example", False),
        ("WARRANTY_IMAP_PASSWORD", "i.example", False),
        ("CRM_USER", "crm.example", False),
        ("WARRANTY_CRM_PASSWORD", "crm.example", False),
    ],
)
def test_every_key_that_settings_send_is_known_with_its_host(tmp_path, environ, variable, host, allowed):
    settings = settings_of(tmp_path, USES, environ)
    assert (variable, host) in [use[:2] for use in key_uses(settings)]
    hosts = KeyHosts(settings, {**environ, variable: "value"})
    use = next(use for use in key_uses(settings) if use[:2] == (variable, host))
    if allowed:
        hosts.check(use)
    else:
        with pytest.raises(KeyRefused, match=f"detent trust --allow-key {variable}={host}"):
            hosts.check(use)
        allow_key(variable, host, environ)
        hosts.check(use)


@pytest.mark.parametrize("host", ["127.0.0.2", "localhost.evil.example", "api.openai.com.evil.example"])
def test_a_host_that_only_looks_like_an_allowed_one_is_not(tmp_path, environ, host):
    hosts = KeyHosts(settings_of(tmp_path, "", environ), environ)
    assert not hosts.allowed("OPENAI_API_KEY", host)


def test_a_key_that_is_not_set_is_nobodys_concern(tmp_path, environ):
    hosts = KeyHosts(settings_of(tmp_path, "", environ), environ)
    hosts.check(KeyUse("NOT_SET", "evil.example", "models.x", True))


def test_what_the_user_says_in_their_own_settings_needs_no_more(tmp_path, environ):
    models = 'models: {mine: {kind: openai, base_url: "https://mine.example/v1", api_key_env: MY_KEY}}'
    environ["MY_KEY"] = "value"
    settings = settings_of(tmp_path, "", environ, user=models)
    check_keys(settings, "models", environ=environ)
    # A project that bends one half of it takes the other half along.
    bent = 'models: {mine: {base_url: "https://evil.example/v1"}}'
    settings = settings_of(tmp_path, bent, environ, user=models)
    with pytest.raises(KeyRefused, match=r"MY_KEY would be sent to evil\.example"):
        check_keys(settings, "models", environ=environ)


def test_the_users_own_settings_allow_hosts(tmp_path, environ):
    environ["DOCS_KEY"] = "value"
    settings = settings_of(tmp_path, USES, environ, user="keys: {DOCS_KEY: [docs.example, other.example]}\n")
    check_keys(settings, "mcp", environ=environ)


def test_a_projects_settings_cannot_allow_hosts(tmp_path, environ):
    with pytest.raises(SettingsError, match="'keys' belongs into your own settings"):
        settings_of(tmp_path, "keys: {DOCS_KEY: [docs.example]}\n", environ)


async def test_a_server_of_tools_does_not_get_a_key_for_another_host(tmp_path, environ, monkeypatch):
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", environ["DETENT_CONFIG_HOME"])
    monkeypatch.setenv("DOCS_KEY", "value")
    server = mcp_servers(settings_of(tmp_path, USES, environ))["docs"]
    with pytest.raises(KeyRefused, match=r"mcp\.docs: DOCS_KEY would be sent to docs\.example"):
        await server.open()


STORE = 'store: {url: "postgresql://ada@db.evil.example:15432/runs"}\n'


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://ada@db.example:15432/runs", ["db.example"]),
        ("postgres://ada@one.example,two.example:5433/runs", ["one.example", "two.example"]),
        ("postgresql://ada@/runs?host=db.example", ["db.example"]),
        ("postgresql://ada@localhost/runs?hostaddr=192.0.2.7", ["localhost", "192.0.2.7"]),
        ("postgresql:///runs?host=/var/run/postgresql", []),
        ("postgresql://localhost#@db.example/runs?schema=own", ["db.example"]),
        ("postgresql://localhost%2Cdb.example/runs", ["localhost", "db.example"]),
        ("runs.db", []),
    ],
)
def test_the_password_of_a_database_is_a_key_that_goes_to_its_host(tmp_path, environ, url, hosts):
    settings = settings_of(tmp_path, f"store: '{url}'\n", environ)
    assert key_uses(settings) == [KeyUse("PGPASSWORD", host, "store", True) for host in hosts]


def test_a_projects_store_is_not_sent_the_users_password(tmp_path, environ, monkeypatch):
    settings = settings_of(tmp_path, STORE, environ)
    for name, value in {**environ, "PGPASSWORD": "secret"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DETENT_TRUST", raising=False)
    with pytest.raises(KeyRefused, match="--allow-key PGPASSWORD=db.evil.example"):
        store_for(settings)
    allow_key("PGPASSWORD", "db.evil.example")
    assert store_for(settings) is not None


def test_a_password_file_for_any_host_counts_as_a_password(tmp_path, environ):
    settings = settings_of(tmp_path, STORE, environ)
    (use,) = key_uses(settings)
    (tmp_path / ".pgpass").write_text("db.evil.example:*:*:ada:meant-for-it\n")
    KeyHosts(settings, environ).check(use)
    (tmp_path / ".pgpass").write_text("*:*:*:ada:meant-for-all\n")
    with pytest.raises(KeyRefused):
        KeyHosts(settings, environ).check(use)


def test_a_store_that_the_environment_names_is_the_users_own_choice(tmp_path, environ):
    settings = settings_of(tmp_path, STORE, {**environ, "DETENT_STORE": "postgresql://ada@db.example/runs"})
    (use,) = key_uses(settings)
    assert not use.project


def test_default_variables_of_mail_servers_are_those_of_the_models(tmp_path, environ):
    from detent.adapters.mail.settings import MailSettings
    from detent.apps.warranty.settings import Mail

    text = "mail: {sink: smtp, source: imap, smtp: {host: s.example}, imap: {host: i.example}}"
    mail_uses = {use[:2] for use in key_uses(settings_of(tmp_path, text, environ))}
    for model in (MailSettings, Mail):
        mail = model()
        assert mail_uses >= {
            (mail.smtp.user_env, "s.example"), (mail.smtp.password_env, "s.example"),
            (mail.imap.user_env, "i.example"), (mail.imap.password_env, "i.example"),
        }  # fmt: skip
    assert len(mail_uses) == 8
