"""The mailbox's settings stand under its own heading; the spelling of before is still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.apps.warranty.app import APP
from detent.apps.warranty.evals.subject import WarrantySubject
from detent.apps.warranty.mailbox import warranty_settings
from detent.apps.warranty.own_heading import at_the_top, lifted
from detent.kernel.errors import ConfigurationError
from detent.runtime.key_uses import key_uses
from detent.runtime.settings import Settings, SettingsError, read_settings

NESTED = """\
warranty:
  default_language: pl
  mail: {inbox: in, sink: smtp, smtp: {host: smtp.firm.example}}
  tools: {database: own.db}
"""
FLAT = """\
mail: {inbox: in, sink: smtp, smtp: {host: smtp.firm.example}}
tools: {database: own.db}
warranty: {default_language: pl}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Settings:
        (tmp_path / "detent.yaml").write_text(text)
        return read_settings(headings=lambda _: APP.headings())

    return write


@pytest.mark.parametrize("text", [NESTED, FLAT])
def test_both_spellings_mean_the_same(project, text):
    own = warranty_settings(project(text))
    assert (own.mail.inbox, own.tools.database, own.warranty.default_language) == ("in", "own.db", "pl")


def test_what_stands_under_the_heading_is_stronger_key_by_key(project):
    own = warranty_settings(project("mail: {inbox: top, outbox: out}\nwarranty: {mail: {inbox: in}}\n"))
    assert (own.mail.inbox, own.mail.outbox) == ("in", "out")


def test_the_command_line_is_stronger_than_either(project):
    settings = lifted(project(NESTED)).over({("tools", "database"): "other.db"})
    assert warranty_settings(settings).tools.database == "other.db"
    assert lifted(lifted(settings)) == lifted(settings)


@pytest.mark.parametrize("name", ["DETENT__MAIL__INBOX", "DETENT__WARRANTY__MAIL__INBOX"])
@pytest.mark.parametrize("text", [NESTED, FLAT])
def test_the_environment_is_stronger_than_the_file_in_either_spelling(project, monkeypatch, name, text):
    monkeypatch.setenv(name, "/srv/mail")
    assert warranty_settings(project(text)).mail.inbox == "/srv/mail"


def test_only_parts_at_the_top_that_are_the_applications_alone_are_hinted_at(project):
    assert at_the_top(project(NESTED)) == []
    assert at_the_top(project(FLAT)) == ["tools"]


def test_a_mistake_under_the_heading_is_told_where_it_stands(project):
    with pytest.raises(SettingsError, match=r"detent.yaml:2:11: .*Did you mean 'database'\?"):
        project("warranty:\n  tools: {databse: x}\n")
    with pytest.raises(ConfigurationError, match="detent.yaml:2:11: 'tools.registry' should be"):
        warranty_settings(project("warranty:\n  tools: {registry: paper}\n"))


@pytest.mark.parametrize("text", [NESTED, FLAT])
def test_keys_are_known_to_go_to_the_server_in_either_spelling(project, text):
    uses = {(use.variable, use.host, use.project) for use in key_uses(project(text))}
    assert ("WARRANTY_SMTP_PASSWORD", "smtp.firm.example", True) in uses


def test_the_suite_plays_the_mode_that_the_mailbox_works_in(project, tmp_path):
    """Whichever heading says so: `detent eval` asks the subject, not the settings."""
    for text, mode in (
        ("warranty: {orchestration: {use_step_orchestrator: false}}\n", "legacy"),
        ("orchestration: {use_step_orchestrator: false}\n", "legacy"),
        ("", "step"),
    ):
        assert WarrantySubject.of(project(text), tmp_path).usual_orchestrator == mode
