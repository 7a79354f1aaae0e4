"""The commands of the warranty mailbox, from the outside."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.apps.warranty.project import demo_registry, make_demo
from detent.engine.breaker import Breakers
from detent.engine.clock import SystemClock
from detent.kernel.policy import BreakerPolicy
from tests.apps.warranty.mailroom import COVERED, NO_SERIAL, mail
from tests.cli.conftest import PATIENCE

CONFIG = """
warranty:
  mail: {inbox: mail/inbox, outbox: mail/outbox}
  orchestration: {retry: {min_s: 0.001, max_s: 0.001}}
"""


@pytest.fixture
def desk(folder, detent) -> Path:
    """A project with a mailbox, the sample devices and the sample mails."""
    (folder / "config.yaml").write_text(CONFIG)
    make_demo(folder)
    assert detent("warranty", "registry", "import", str(demo_registry())).code == 0
    return folder


@pytest.fixture
def closed_port() -> int:
    """A port nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def put(desk: Path, name: str, raw: bytes) -> Path:
    file = desk / "mail/inbox" / name
    file.write_bytes(raw)
    long_ago = time.time() - 100
    os.utime(file, (long_ago, long_ago))
    return file


def empty(desk: Path) -> None:
    shutil.rmtree(desk / "mail/inbox")
    (desk / "mail/inbox").mkdir()


# -- looking ------------------------------------------------------------------------------------------------


@pytest.fixture
def untrusted(desk, detent, monkeypatch, tmp_path_factory) -> Path:
    """A mailbox that has been worked, in the hands of somebody who does not trust it yet."""
    put(desk, "nothing.eml", b"")
    detent("run", "warranty", "--once")
    (desk / "config.yaml").write_text(CONFIG + "plugins: [theirs.py]\n")
    (desk / "theirs.py").write_text("from pathlib import Path\nPath('MARKER').write_text('executed')\n")
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    return desk


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("stats",), "02-check-warranty"),
        (("attention",), "unreadable"),
        (("unchecked",), "No mail was answered without a check."),
        (("tickets", "list"), "TKT-"),
        (("registry", "show", "wz550931"), "Otus S3 scanner"),
        (("rollback", "status"), "mails are handled step by step"),
        (("serial", "mail/samples/one.eml"), "serial number"),
    ],
)
def test_looking_at_a_mailbox_takes_no_trust_and_runs_nothing_of_it(untrusted, detent, command, shown):
    (untrusted / "mail/samples").mkdir(exist_ok=True)
    (untrusted / "mail/samples/one.eml").write_bytes(mail())
    said = detent("warranty", *command)
    assert said.code == 0, said.err
    assert shown in said.out
    assert said.err.count("This project is not trusted") == 1
    assert not (untrusted / "MARKER").exists()


@pytest.mark.parametrize("command", [("attention",), ("tickets", "list"), ("registry", "show", "SN1")])
def test_an_untrusted_mailbox_reaches_no_file_outside_its_folder(
    untrusted, detent, tmp_path_factory, command
):
    outside = tmp_path_factory.mktemp("outside") / "office.db"
    (untrusted / "config.yaml").write_text(CONFIG + f"tools: {{database: {outside}}}\n")
    said = detent("warranty", *command)
    assert said.code == 2
    assert "is not trusted" in said.err
    assert not outside.exists()


def test_looking_makes_no_file(folder, detent):
    (folder / "config.yaml").write_text(CONFIG)
    before = sorted(folder.rglob("*"))
    for command in (("attention",), ("unchecked",), ("tickets", "list"), ("registry", "show", "SN1")):
        detent("warranty", *command)
    assert sorted(folder.rglob("*")) == before


def test_before_the_first_mail_nothing_needs_attention(folder, detent):
    (folder / "config.yaml").write_text(CONFIG)
    assert detent("warranty", "registry", "import", str(demo_registry())).code == 0
    said = detent("warranty", "attention")
    assert (said.code, said.out) == (0, "No mail needs attention.\n")


def test_what_changes_the_whole_desk_needs_attention(desk, detent):
    detent("run", "warranty", "--once")

    async def fails() -> None:
        store = SQLiteStore(desk / ".detent/detent.db")
        await store.open()
        for _ in range(5):
            await Breakers(store, SystemClock()).failed("tool/send_email", BreakerPolicy(5, 600))
        await store.close()

    asyncio.run(fails())
    assert detent("warranty", "rollback", "trip").code == 0
    said = detent("warranty", "attention")
    assert [line.split()[0] for line in said.lines[1:3]] == ["all", "all"]
    assert "rolled back by hand: new mails go through legacy mode" in said.lines[1]
    assert said.lines[1].endswith("detent warranty rollback status")
    assert "'send_email' failed 5 times in a row" in said.lines[2]
    rows = json.loads(detent("warranty", "attention", "--json").out)
    assert [(row["mail"], row["what"]) for row in rows] == [(None, "rolled back"), (None, "left alone")]
    detent("warranty", "rollback", "reset")
    rows = json.loads(detent("warranty", "attention", "--json").out)
    assert [row["what"] for row in rows] == ["left alone"]


# -- run ----------------------------------------------------------------------------------------------------


def test_one_pass_shows_a_line_a_mail(desk, detent):
    said = detent("run", "warranty", "--once")
    assert (said.code, said.err) == (0, "")
    head, *mails, end = said.lines
    assert head.split("   ") == [
        "warranty", "mail/inbox", "step mode", "8 steps, all deterministic", "registry 5 devices",
    ]  # fmt: skip
    assert len(mails) == 7
    (covered,) = [line for line in mails if "TKT-10001" in line]
    assert "01 → 02 → 03a → 05   covered, ticket TKT-1000" in covered
    assert any("01 → 03d             no serial, asked" in line for line in mails)
    assert any(line.endswith("ignored              auto_submitted") for line in mails)
    assert end == "  7 mails: 6 succeeded, 1 ignored, 0 failed"
    assert len(list((desk / "mail/outbox").glob("*.eml"))) == 6
    assert not list((desk / "mail/inbox").glob("*.eml"))
    assert detent("run", "warranty", "--once").lines[-1] == "  0 mails: 0 succeeded, 0 failed"


def test_json_is_a_line_a_mail_without_a_word_of_it(desk, detent):
    said = detent("run", "warranty", "--once", "--json")
    *mails, end = [json.loads(line) for line in said.lines]
    assert end == {"counts": {"ignored": 1, "succeeded": 6}}
    assert {one["what"] for one in mails} == {"ignored", "succeeded"}
    assert {tuple(one["path"]) for one in mails if "path" in one} >= {
        ("01-extract-serial", "03d-request-serial")
    }
    assert "oakline" not in said.out


def test_quiet_says_nothing(desk, detent):
    assert detent("run", "warranty", "--once", "--quiet") == (0, "", "")


def test_named_mails_only(desk, detent):
    named = desk / "mail/inbox/4-no-serial.eml"
    said = detent("run", "warranty", "--mail", str(named))
    assert said.code == 0
    assert said.lines[-1] == "  1 mail: 1 succeeded, 0 failed"
    assert len(list((desk / "mail/outbox").glob("*.eml"))) == 1
    assert named.exists()


def test_a_rehearsal_decides_shows_and_does_nothing(desk, detent):
    before = sorted(path.name for path in (desk / "mail/inbox").glob("*.eml"))
    said = detent("run", "warranty", "--dry-run")
    assert said.code == 0
    assert "would create a ticket: serial_number: SN30517" in said.out
    assert "would send to hanna.oakes@oakline.example: Re: Label printer" in said.out
    assert said.lines[-1] == "  7 mails: 6 succeeded, 1 ignored, 0 failed"
    assert sorted(path.name for path in (desk / "mail/inbox").glob("*.eml")) == before
    assert not (desk / "mail/outbox").exists()
    assert not (desk / ".detent").exists()
    assert detent("warranty", "tickets", "list").out == "There are no tickets.\n"
    assert detent("run", "warranty", "--once").lines[-1] == "  7 mails: 6 succeeded, 1 ignored, 0 failed"
    again = detent("run", "warranty", "--dry-run", "--mail", str(desk / "mail/inbox/processed/1-covered.eml"))
    assert "duplicate" in again.out


def test_a_rehearsal_makes_no_file_where_there_is_none(folder, detent):
    make_demo(folder)
    said = detent("run", "warranty", "--dry-run")
    assert said.code == 0
    assert "01 → 02 → 03b" in said.out  # nothing is registered
    assert not (folder / "warranty.db").exists()


def test_settings_in_the_spelling_of_before_are_read_with_a_hint(desk, detent):
    (desk / "config.yaml").write_text("orchestration: {max_steps: 2}")
    said = detent("run", "warranty", "--once")
    assert "Hint (config.yaml:1:1)" in said.err
    assert "move these there: orchestration." in said.err
    assert "max_steps" in said.out
    assert "Hint" not in detent("run", "warranty", "--once", "--quiet").err


def test_a_mail_that_failed_makes_the_pass_end_with_1_and_can_be_run_again(desk, detent):
    """W-50"""
    empty(desk)
    put(desk, "a.eml", mail(body=COVERED.replace("SN48213", "SN30517")))
    (desk / "config.yaml").write_text("orchestration: {max_steps: 2}")
    said = detent("run", "warranty", "--once")
    assert said.code == 1
    assert "01 → 02              serial found, failed: max_steps" in said.out
    assert said.lines[-1] == "  1 mail: 0 succeeded, 1 failed"
    assert "run.failed" in said.err
    listed = detent("warranty", "attention")
    assert "max_steps" in listed.out
    assert listed.lines[-1].startswith("What happened to one of them: detent why w-")
    (matter,) = detent("warranty", "attention", "--json").json
    assert matter["command"] == ["detent", "warranty", "retry", matter["mail"]]
    assert "02-check-warranty" in detent("why", matter["run"]).out
    (desk / "config.yaml").write_text(CONFIG)
    done = detent("warranty", "retry", matter["mail"][:6])
    assert (done.code, done.err) == (0, "")
    assert "01 → 02 → 03a → 05" in done.out
    assert detent("warranty", "attention").out == "No mail needs attention.\n"
    assert detent("warranty", "retry", matter["mail"]).code == 2
    assert detent("warranty", "retry", "ffff").err.startswith("No mail 'ffff' is known here.")


def test_a_step_may_be_given_to_an_agent_for_one_call(desk, detent):
    said = detent("run", "warranty", "--once", "--mode", "01-extract-serial=agent")
    assert said.code == 0
    assert "8 steps, 1 by an agent" in said.lines[0]
    assert "no_executor" in said.err
    assert said.lines[-1] == "  7 mails: 6 succeeded, 1 ignored, 0 failed"


def test_the_older_way_can_be_asked_for(desk, detent):
    """W-29"""
    said = detent("run", "warranty", "--once", "--orchestrator", "legacy")
    assert said.code == 0
    assert "legacy mode" in said.lines[0]
    assert "valid-warranty, ticket TKT-10001, reply queued" in said.out
    flows = {row["flow"] for row in detent("runs", "--json").json["runs"]}
    assert flows == {"warranty-legacy"}


def test_application_comes_first(desk, detent):
    assert detent("run", "--once", "warranty", "--quiet").code == 0
    said = detent("run", "--config", "config.yaml", "warranty")
    assert said.code == 2
    assert "Name the application first" in said.err


# -- what cannot be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "args", "said"),
    [
        ("maill: {}", (), "unknown heading 'maill'. Did you mean 'mail'?"),
        ("agent: {pol: 3}", (), "unknown key 'agent.pol'."),
        ("tools: {crm: {base_ur: x}}", (), "unknown key 'tools.crm.base_ur'. Did you mean 'base_url'?"),
        ("agent: {polling_interval_seconds: 3}", (), "config.yaml:1:9"),
        ("mail: {smtp: {password: secret}}", (), "does not belong in the file"),
        ("steps: {01-extract-serialll: {mode: agent}}", (), "there is no step '01-extract-serialll'"),
        ("playbook: {overlays: [nowhere]}", (), "There is no overlay 'nowhere'"),
        ("", ("--mode", "01-extract-serial"), "--mode takes STEP=VALUE"),
        ("", ("--mode", "01-extract-serial=magic"), "it takes deterministic or agent"),
        ("", ("--mode", "09=agent"), "there is no step '09'"),
        ("", ("--orchestrator", "both"), "--orchestrator takes step or legacy"),
        ("", ("--mail", "gone.eml"), "There is no file"),
        ("", ("--twice",), "No such option"),
        (
            "orchestration: {use_step_orchestrator: false, legacy_available: false}",
            (),
            "legacy_available says that it is retired",
        ),
        ("mail: {inbox: nowhere}", (), "There is no folder"),
    ],
)
def test_what_cannot_be_meant_ends_with_2_before_anything_is_done(desk, detent, config, args, said):
    """W-66"""
    (desk / "config.yaml").write_text(config)
    result = detent("run", "warranty", "--once", *args)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert not (desk / "mail/outbox").exists()


def test_faulty_step_files_are_told_with_their_lines(desk, detent):
    """W-66"""
    from detent.apps.warranty.flow import shipped

    shutil.copytree(shipped(), desk / "instructions")
    step = desk / "instructions/steps/02-check-warranty.md"
    step.write_text(step.read_text().replace("to: 03a-valid-warranty", "to: 03-valid"))
    said = detent("run", "warranty", "--once")
    assert said.code == 2
    assert "02-check-warranty.md:" in said.err
    assert "P10" in said.err


def test_a_server_that_cannot_be_reached_ends_with_3(desk, detent, monkeypatch, closed_port):
    """W-66"""
    port = closed_port
    monkeypatch.setenv("WARRANTY_IMAP_USER", "service")
    monkeypatch.setenv("WARRANTY_IMAP_PASSWORD", "correct horse")
    where = f"{{host: 127.0.0.1, port: {port}, tls: none}}"
    for config in (
        f"mail: {{source: imap, imap: {where}}}",
        f"mail: {{sink: smtp, smtp: {where}}}",
        f"tools: {{registry: crm, crm: {{base_url: 'http://127.0.0.1:{port}', auth: none}}}}",
    ):
        (desk / "config.yaml").write_text(config)
        said = detent("run", "warranty", "--once")
        assert said.code == 3, said
        assert "correct horse" not in said.err


def test_a_crm_for_tickets_alone_is_looked_for_at_the_start_too(desk, detent, closed_port):
    """W-66"""
    crm = f"{{base_url: 'http://127.0.0.1:{closed_port}', auth: none}}"
    for more in ("", ", ticket_by_key_path: '/tickets/by-key/{key}'"):
        (desk / "config.yaml").write_text(f"tools: {{tickets: crm, crm: {crm[:-1]}{more}}}}}")
        said = detent("run", "warranty", "--once")
        assert (said.code, len(list((desk / "mail/inbox").glob("*.eml")))) == (3, 7), said
        assert "The CRM cannot be used" in said.err


AGENT = "steps: {01-extract-serial: {mode: agent}}"
ARMS = "{code: {share: 50}, llm: {share: 50, steps: {01-extract-serial: {mode: agent}}}}"


@pytest.mark.parametrize(
    "config",
    [
        AGENT,
        "orchestration: {router: {strategy: llm}}",
        f"orchestration: {{router: {{experiment: {{name: first, arms: {ARMS}}}}}}}",
    ],
)
def test_a_model_that_is_not_there_is_named_first_and_code_does_the_work(desk, detent, closed_port, config):
    """W-66"""
    server = f"model: {{provider: llamacpp, id: small, base_url: 'http://127.0.0.1:{closed_port}/v1'}}"
    (desk / "config.yaml").write_text(f"{config}\n{server}\n")
    said = detent("run", "warranty", "--once")
    assert said.code == 0, said
    first = next(line for line in said.err.splitlines() if not line.startswith("Hint"))
    assert first.startswith("The model 'llamacpp' cannot be asked: there is no answer at "), said.err
    assert "Code performs instead: " in first
    assert not list((desk / "mail/inbox").glob("*.eml"))


@pytest.mark.parametrize(
    ("config", "by"),
    [
        (f"{AGENT}\nrequire_model: true", "require_model"),
        ("orchestration: {use_step_orchestrator: false}", "legacy"),
    ],
)
def test_a_model_that_is_required_and_not_there_ends_with_3(desk, detent, closed_port, config, by):
    """W-66"""
    server = f"model: {{provider: llamacpp, id: small, base_url: 'http://127.0.0.1:{closed_port}/v1'}}"
    (desk / "config.yaml").write_text(f"{config}\n{server}\n")
    said = detent("run", "warranty", "--once")
    assert said.code == 3, said
    assert f"there is no answer at 127.0.0.1:{closed_port}" in said.err
    assert by in said.err
    assert len(list((desk / "mail/inbox").glob("*.eml"))) == 7
    if by == "require_model":
        forced = detent("run", "warranty", "--once", "--mode", "01-extract-serial=deterministic")
        assert forced.code == 0, forced


def test_a_provider_without_a_model_id_is_no_agent_and_costs_no_trust(desk, detent, closed_port):
    server = f"model: {{provider: vllm, base_url: 'http://127.0.0.1:{closed_port}/v1'}}"
    (desk / "config.yaml").write_text(f"{AGENT}\n{server}\n")
    said = detent("run", "warranty", "--once")
    assert said.code == 0, said
    first = said.err.splitlines()[0]
    assert "none is named" in first, said.err
    assert "01-extract-serial" in first, said.err
    shown = detent("steps", "show", "warranty/01-extract-serial")
    assert "lowered" not in shown.out, shown.out


def test_a_required_model_without_its_key_ends_with_3(desk, detent, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    model = "model: {provider: openai, id: small, api_key_env: NO_SUCH_KEY}"
    (desk / "config.yaml").write_text(f"{AGENT}\n{model}\nrequire_model: true\n")
    said = detent("run", "warranty", "--once")
    assert (said.code, "NO_SUCH_KEY is not set" in said.err) == (3, True)


def test_a_model_nobody_asks_is_not_looked_for(desk, detent, closed_port):
    server = f"model: {{provider: llamacpp, id: small, base_url: 'http://127.0.0.1:{closed_port}/v1'}}"
    (desk / "config.yaml").write_text(server)
    assert detent("run", "warranty", "--once").code == 0


def test_the_attention_list_says_where_a_mail_lies_that_cannot_be_read(desk, detent):
    put(desk, "odd one.eml", b"\x00")
    detent("run", "warranty", "--once")
    said = detent("warranty", "attention")
    assert f"look at it: {desk / 'mail/inbox/odd one.eml'}" in said.out
    (matter,) = json.loads(detent("warranty", "attention", "--json").out)
    assert matter["place"] == str(desk / "mail/inbox/odd one.eml")
    (desk / "config.yaml").write_text("mail: {inbox: elsewhere}")
    assert "look at it in its mailbox" in detent("warranty", "attention").out


def test_the_environment_sets_any_key(desk, detent, monkeypatch):
    monkeypatch.setenv("DETENT__ORCHESTRATION__MAX_STEPS", "1")
    said = detent("run", "warranty", "--once")
    assert said.code == 1
    assert "failed: max_steps" in said.out


# -- stopping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_service_watches_and_drains(desk, spawn, number, code):
    """W-66"""
    empty(desk)
    service = spawn("run", "warranty")
    service.until("registry 5 devices")
    put(desk, "a.eml", mail(1, NO_SERIAL))
    service.until("no serial, asked")
    put(desk, "b.eml", mail(2, NO_SERIAL))
    service.until_true(lambda: service.so_far().count("no serial, asked") == 2, "left a mail lying")
    service.signal(number)
    said = service.result()
    assert said.code == code
    assert said.out.splitlines()[-2:] == [
        "Draining: the steps under way are finished first.",
        "  2 mails: 2 succeeded, 0 failed",
    ]
    assert len(list((desk / "mail/inbox/processed").glob("*.eml"))) == 2


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal here")
def test_a_log_file_that_was_moved_away_is_opened_anew(desk, spawn):
    """W-66"""
    empty(desk)
    (desk / "config.yaml").write_text(CONFIG + "logging: {level: info, format: json, file: log.jsonl}")
    service = spawn("run", "warranty")
    service.until("registry 5 devices")
    (desk / "log.jsonl").rename(desk / "old.jsonl")
    service.signal(signal.SIGHUP)
    service.until_true((desk / "log.jsonl").exists, "wrote no log")
    put(desk, "a.eml", mail(1, NO_SERIAL))
    service.until("no serial, asked")
    service.signal(signal.SIGTERM)
    assert service.result().code == 0
    assert "mail.completed" in (desk / "log.jsonl").read_text()


@pytest.mark.slow
def test_killed_again_and_again_each_mail_gets_one_ticket_and_one_reply(desk, spawn, detent):
    """W-44"""
    empty(desk)
    number = 14
    for index in range(number):
        put(desk, f"{index:02}.eml", mail(index, COVERED.replace("SN48213", "SN30517")))
    outbox = desk / "mail/outbox"
    for kills in (1, 3, 6):
        service = spawn("run", "warranty", "--once")
        deadline = time.monotonic() + PATIENCE
        while service.process.poll() is None and time.monotonic() < deadline:
            if outbox.is_dir() and len(list(outbox.glob("*.eml"))) >= kills * 2:
                break
            time.sleep(0.002)
        service.kill()
    said = detent("run", "warranty", "--once")
    assert said.code == 0, said
    assert len(list(outbox.glob("*.eml"))) == number
    assert len(detent("warranty", "tickets", "list", "--json").json) == number
    assert len(list((desk / "mail/inbox/processed").glob("*.eml"))) == number
    assert not list((desk / "mail/inbox").glob("*.eml"))
    assert detent("warranty", "attention", "--json").json == []


# -- logging ------------------------------------------------------------------------------------------------


def test_news_go_to_standard_output_and_troubles_to_standard_error(desk, detent):
    """W-34"""
    (desk / "config.yaml").write_text("orchestration: {max_steps: 2}\nlogging: {format: json}")
    said = detent("run", "warranty", "--once", "--quiet")
    news = [json.loads(line) for line in said.lines]
    troubles = [json.loads(line) for line in said.err.splitlines()]
    assert {line["level"] for line in news} == {"info"}
    assert {line["level"] for line in troubles} == {"warning", "error"}
    (first, *_) = [line for line in news if line["event"] == "step.transition"]
    assert first["message"].startswith("Step transition: 01-extract-serial → ")
    assert first["timestamp"].endswith("Z")
    said = detent("run", "warranty", "--once", "--json")
    assert [json.loads(line) for line in said.lines] == [{"counts": {}}]


def test_a_service_logs_every_step_unless_it_is_told_otherwise(desk, spawn):
    """AC8: in production nobody has to ask for the history of a mail; where a person waits, lines will do."""
    empty(desk)
    put(desk, "a.eml", mail(1, NO_SERIAL))
    service = spawn("run", "warranty")
    service.until("no serial, asked")
    service.signal(signal.SIGTERM)
    said = service.result()
    assert said.code == 0
    assert "Step transition: 01-extract-serial → 03d-request-serial (reason: no serial)" in said.out
    assert "Email processing complete: 2 steps executed: [01, 03d]" in said.out
    put(desk, "b.eml", mail(2, NO_SERIAL))
    assert "Step transition" not in spawn("run", "warranty", "--once").result().out
    put(desk, "c.eml", mail(3, NO_SERIAL))
    quiet = spawn("run", "warranty", "--log-level", "warning")
    quiet.until("no serial, asked")
    quiet.signal(signal.SIGTERM)
    assert "Step transition" not in quiet.result().out


# -- looking ------------------------------------------------------------------------------------------------


def test_one_step_answers_alone(desk, detent):
    """W-65"""
    covered = str(desk / "mail/inbox/1-covered.eml")
    said = detent("warranty", "step", "01-extract-serial", "--mail", covered)
    assert said.code == 0
    assert said.lines[0] == "01-extract-serial → 02-check-warranty   deterministic"
    assert "  SERIAL: SN30517" in said.lines
    (desk / "data.yaml").write_text("serial_number: PX2-40118\n")
    found = detent("warranty", "step", "02", "--mail", covered, "--data", "data.yaml", "--json").json
    assert found["next_step"] == "03c-expired-warranty"
    assert found["metadata"]["data"]["warranty_data"]["expires"] == "2024-09-30"
    assert not (desk / "mail/outbox").exists()
    assert detent("warranty", "step", "nope", "--mail", covered).code == 2


def test_extractor_and_router_alone(desk, detent):
    covered = str(desk / "mail/inbox/1-covered.eml")
    found = detent("warranty", "serial", covered, "--json").json
    assert (found["serial_number"], found["confidence"]) == ("SN30517", 0.95)
    assert "SN30517" in detent("warranty", "serial", covered).out
    found = detent("warranty", "route", covered, "--json").json
    assert (found["step"], found["method"]) == ("01-extract-serial", "default")
    (desk / "config.yaml").write_text("orchestration: {router: {strategy: heuristic}}")
    assert "02-check-warranty" in detent("warranty", "route", covered).out


def test_registry_and_tickets(desk, detent):
    assert detent("warranty", "registry", "import", str(demo_registry())).out == (
        "0 added, 0 changed, 5 unchanged.\n"
    )
    assert "Otus S3 scanner" in detent("warranty", "registry", "show", "wz550931").out
    assert detent("warranty", "registry", "show", "none").code == 2
    detent("run", "warranty", "--once", "--quiet")
    assert [one["ticket_id"] for one in detent("warranty", "tickets", "list", "--json").json] == [
        "TKT-10002",
        "TKT-10001",
    ]
    assert "warranty-repair" in detent("warranty", "tickets", "show", "tkt-10001").out
    assert detent("warranty", "tickets", "show", "TKT-1").code == 2


def test_purged_texts_are_gone_and_paths_stay(desk, detent):
    detent("run", "warranty", "--once", "--quiet")
    assert detent("warranty", "purge").out == "0 texts dropped.\n"
    dropped = int(detent("warranty", "purge", "--older", "0s").out.split()[0])
    assert dropped >= 6
    first = detent("runs", "--json").json["runs"][0]["id"]
    assert "01-extract-serial" in detent("why", first).out


def test_runs_of_the_mailbox_are_known_to_the_other_commands(desk, detent):
    """W-56"""
    (desk / "config.yaml").write_text("orchestration: {max_steps: 2}")
    detent("run", "warranty", "--once", "--quiet")
    failed = [row["id"] for row in detent("runs", "--json").json["runs"] if row["status"] == "failed"]
    (desk / "config.yaml").write_text(CONFIG)
    said = detent("reopen", failed[0], "--budget-steps", "10")
    assert said.code == 0, said
    assert "DONE" in said.out
    assert detent("run", "warranty", "--once").lines[-1] == ("  1 mail: 0 succeeded, 1 marked, 0 failed")


# -- projects and the demo ----------------------------------------------------------------------------------


def test_a_project_begins_with_a_folder(folder, detent, monkeypatch):
    said = detent("warranty", "init", "desk")
    assert said.code == 0
    monkeypatch.chdir(folder / "desk")
    assert detent("warranty", "registry", "import", "registry.csv").code == 0
    for sample in (folder / "desk/mail/samples").iterdir():  # as the command tells
        shutil.copy(sample, "mail/inbox")
    assert detent("run", "warranty", "--once").lines[-1] == "  7 mails: 6 succeeded, 1 ignored, 0 failed"
    assert detent("check", "warranty").code == 0
    monkeypatch.chdir(folder)
    assert detent("warranty", "init", "desk").code == 2


def test_problems_of_its_step_files_are_told_with_their_own_place_only(folder, detent, monkeypatch):
    assert detent("warranty", "init", "desk").code == 0
    monkeypatch.chdir(folder / "desk")
    step = Path("instructions/steps/05-send-confirmation.md")
    step.write_text(step.read_text().replace("\nnext:", "\nnxt:"))
    said = detent("check", "warranty")
    assert said.code == 2
    assert said.lines[1].startswith("instructions/steps/05-send-confirmation.md:5:1: P05 'nxt' ")
    assert said.lines[1].endswith(" Did you mean 'next'?")
    assert said.lines[2] == "warranty: 2 errors"


def test_unknown_keys_and_wrong_values_are_told_at_once(desk, detent):
    (desk / "config.yaml").write_text("mail: {inbx: x, sink: pigeon}\nwarranty: {timezone: Mars/X}\n")
    said = detent("run", "warranty", "--once")
    assert said.code == 2
    assert said.err.splitlines() == [
        "The settings have 3 problems:",
        "  config.yaml:1:8: unknown key 'mail.inbx'. Did you mean 'inbox'?",
        "  config.yaml:1:17: 'mail.sink' should be 'outbox' or 'smtp'.",
        "  config.yaml:2:12: 'warranty.timezone': there is no time zone 'Mars/X'.",
    ]


def test_a_step_that_the_command_line_names_and_nobody_knows_is_told_as_such(desk, detent):
    said = detent("run", "warranty", "--once", "--mode", "99-x=agent")
    assert said.code == 2
    assert said.err.startswith("the command line: E025 there is no step '99-x'.")


def test_legacy_mode_is_shown_as_what_it_is(desk, detent):
    said = detent("run", "warranty", "--once", "--orchestrator", "legacy")
    assert "   legacy mode   2 steps   registry" in said.lines[0]
    assert all("  detect → process     " in line for line in said.lines[1:-1] if "ignored" not in line)


def test_a_project_may_be_worked_from_anywhere(desk, detent, monkeypatch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    said = detent("run", "warranty", "--once", "--config", str(desk / "config.yaml"))
    assert said.lines[-1] == "  7 mails: 6 succeeded, 1 ignored, 0 failed"
    assert list(elsewhere.iterdir()) == []
    assert (desk / ".detent/detent.db").exists()


def test_the_demo_needs_nothing_and_leaves_the_folder_alone(folder, detent, monkeypatch):
    """W-68"""

    def no_network(*args, **kwargs):
        raise AssertionError("the demo went out")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    (folder / "config.yaml").write_text("nonsense: {")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    said = detent("warranty", "demo")
    assert (said.code, said.err) == (0, "")
    assert "01-extract-serial    → 02-check-warranty" in said.out
    assert "  7 mails: 6 succeeded, 1 ignored, 0 failed" in said.lines
    assert "Replies: 6 in " in said.out
    assert "Tickets: 2 in " in said.out
    assert "--- Bottleneck Analysis ---" in said.out
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    (place,) = [line.split(" in ")[1] for line in said.lines if line.startswith("Replies:")]
    assert not Path(place).is_relative_to(folder)
    block = said.lines[said.lines.index("Look further:") + 1 :]
    shell = {**os.environ, "PATH": "/usr/bin:/bin"}  # pasted where no virtual environment is active
    pasted = subprocess.run(
        ["/bin/sh", "-e"], input="\n".join(block), env=shell, cwd=folder, capture_output=True, text=True
    )
    assert (len(block), pasted.returncode, pasted.stderr) == (5, 0, "")
    assert "01-extract-serial → 02-check-warranty" in pasted.stdout
    shutil.rmtree(Path(place).parents[1])


def test_help_stays_light(folder):
    heavy = {"detent.apps.warranty.service", "imapclient", "httpx2", "yaml", "sqlite3"}
    script = (
        "import sys; from detent.cli.main import run; run(['--help']); "
        f"print([name for name in {sorted(heavy)} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
