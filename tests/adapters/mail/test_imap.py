"""IMAP against a real server: trust, names, numbering, lost connections, the server's own word."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback

import pytest

from detent.adapters.mail.imap import ImapMailbox, ImapSent
from detent.adapters.mail.server import MailServer, MailUnavailable
from detent.adapters.mail.source import MailGone
from detent.kernel.errors import ConfigurationError, IntegrationMissing
from tests.adapters.mail.servers import (
    HOST,
    PASSWORD,
    RECEIVED,
    USER,
    authority_file,
    imap_server,
    mail,
    relay,
)

POLISH = "Wysłane & różne"


def reach(port, **options):
    usual = {"host": HOST, "tls": "none", "user": USER, "password": PASSWORD}
    return MailServer(protocol="IMAP", port=port, **{**usual, **options})


@pytest.fixture
async def server():
    async with imap_server() as server:
        yield server


@pytest.fixture
async def line(server):
    """The way to the server, which can be watched and cut."""
    async with relay(server.port) as line:
        yield line


@pytest.fixture
async def box(line):
    box = ImapMailbox(reach(line.port))
    await box.open()
    yield box
    await box.close()


class TestTrust:
    @pytest.mark.parametrize("tls", ["implicit", "starttls"])
    async def test_a_mailbox_is_read_over_tls(self, tls, tmp_path):
        async with imap_server(tls=tls) as server:
            await server.deliver(mail(1))
            box = ImapMailbox(reach(server.port, tls=tls, ca_file=authority_file(tmp_path)))
            await box.open()
            (ref,) = await box.list()
            assert (await box.fetch(ref)).raw == mail(1)
            await box.close()

    @pytest.mark.parametrize("tls", ["implicit", "starttls"])
    async def test_a_certificate_nobody_vouches_for_is_refused(self, tls):
        async with imap_server(tls=tls) as server:
            with pytest.raises(MailUnavailable) as caught:
                await ImapMailbox(reach(server.port, tls=tls)).open()
            assert caught.value.kind == "tls"
            assert f"{HOST}:{server.port}" in str(caught.value)
            assert "certificate is not trusted" in str(caught.value)

    @pytest.mark.parametrize("tls", ["implicit", "starttls"])
    async def test_a_certificate_for_another_name_is_refused(self, tls, tmp_path):
        async with imap_server(tls=tls, names=("imap.other.example",)) as server:
            with pytest.raises(MailUnavailable) as caught:
                await ImapMailbox(reach(server.port, tls=tls, ca_file=authority_file(tmp_path))).open()
            assert caught.value.kind == "tls"

    async def test_no_password_is_sent_where_starttls_is_not_offered(self, server, line):
        told = []
        line.cut_up = lambda piece: told.append(piece)
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(line.port, tls="starttls")).open()
        assert caught.value.kind == "tls"
        assert PASSWORD.encode() not in b"".join(told)

    async def test_tls_on_a_port_without_it_says_what_to_check(self, server):
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(server.port, tls="implicit", timeout=5)).open()
        assert caught.value.kind == "tls"
        assert "port and tls fit together" in str(caught.value)

    @pytest.mark.parametrize("host", ["imap.northpine.example", "192.0.2.7", "127.0.0.1.example", "0.0.0.0"])
    def test_plain_connections_leave_this_machine_under_no_circumstances(self, host):
        with pytest.raises(ConfigurationError) as caught:
            reach(143, host=host)
        assert host in str(caught.value)

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
    def test_plain_connections_within_this_machine_are_possible(self, host):
        assert reach(143, host=host).tls == "none"

    def test_all_that_is_wrong_is_told_at_once(self):
        with pytest.raises(ConfigurationError) as caught:
            reach(0, host="", tls="maybe", timeout=0)
        for words in ("no host", "0 is no port", "'maybe'", "timeout"):
            assert words in str(caught.value)

    async def test_certificates_that_cannot_be_read_are_told(self, server, tmp_path):
        with pytest.raises(ConfigurationError) as caught:
            await ImapMailbox(reach(server.port, tls="implicit", ca_file=tmp_path / "none.pem")).open()
        assert "none.pem" in str(caught.value)


class TestRefusals:
    async def test_a_wrong_password_is_told_without_any_password(self, server, caplog):
        caplog.set_level(logging.DEBUG)
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(server.port, password="wrong horse")).open()
        error = caught.value
        assert (error.kind, error.exit_code) == ("login", 3)
        assert "b'" not in str(error)  # the server's words, not how Python shows bytes
        assert isinstance(error, IntegrationMissing)
        assert "Check user name and password" in str(error)
        ours = [record.getMessage() for record in caplog.records if not record.name.startswith("pymap")]
        assert ours
        assert "wrong horse" not in "".join(
            [str(error), repr(error.__cause__), repr(error.__context__), *ours]
        )

    async def test_a_server_that_is_not_there_is_told_with_its_host(self, server):
        port = server.port
        await server.stop()
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(port)).open()
        assert (caught.value.kind, caught.value.host, caught.value.port) == ("unreachable", HOST, port)
        assert "Check host and port" in str(caught.value)
        await server.start(None)

    async def test_a_host_without_address_is_told(self):
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(993, host="nowhere.invalid", tls="implicit", timeout=5)).open()
        assert (caught.value.kind, caught.value.host) == ("unreachable", "nowhere.invalid")

    async def test_a_server_that_never_says_a_word_is_given_up(self):
        async def silent(reader, writer):
            await reader.read()
            writer.close()

        listening = await asyncio.start_server(silent, HOST, 0)
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(port, timeout=0.3)).open()
        assert caught.value.kind == "unreachable"
        listening.close()

    async def test_what_is_no_imap_server_is_told(self):
        async def other(reader, writer):
            writer.write(b"SSH-2.0-other\r\n")
            await reader.read()
            writer.close()

        listening = await asyncio.start_server(other, HOST, 0)
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(port, timeout=2)).open()
        assert caught.value.kind == "unreachable"
        listening.close()

    async def test_a_folder_that_is_not_there_is_told_with_those_that_are(self, server):
        await server.add_folder("Service")
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(server.port), folder="Servise").open()
        assert caught.value.kind == "folder"
        assert "Did you mean 'Service'?" in str(caught.value)
        assert "INBOX" in str(caught.value)

    async def test_a_folder_that_cannot_be_marked_in_is_told(self, server):
        folder = await server.add_folder("Archive")
        folder._readonly = True
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(server.port), folder="Archive").open()
        assert caught.value.kind == "folder"
        assert "read-only" in str(caught.value)

    async def test_without_the_library_it_says_what_to_install(self, server, monkeypatch):
        monkeypatch.setitem(sys.modules, "imapclient", None)
        with pytest.raises(IntegrationMissing) as caught:
            await ImapMailbox(reach(server.port)).open()
        assert "detent[mail]" in str(caught.value)

    def test_a_mailbox_needs_a_user(self):
        with pytest.raises(ConfigurationError):
            ImapMailbox(reach(993, user="", password=""))

    async def test_a_password_of_other_letters_gets_in(self):
        async with imap_server(password="zażółć gęślą") as server:
            box = ImapMailbox(reach(server.port, password="zażółć gęślą"))
            await box.open()
            assert await box.list() == ()
            await box.close()

    async def test_a_mailbox_that_was_not_opened_says_so(self, server):
        with pytest.raises(MailUnavailable) as caught:
            await ImapMailbox(reach(server.port)).list()
        assert "not opened" in str(caught.value)


class TestMails:
    async def test_the_server_says_when_it_took_a_mail_in(self, server, box):
        await server.deliver(mail(1, Date="Thu, 01 Jan 1970 00:00:00 +0000"))
        arrival = await box.fetch((await box.list())[0])
        assert (arrival.received, arrival.file_time) == (RECEIVED, None)

    async def test_mails_seen_or_deleted_by_a_person_are_not_ours(self, server, box):
        await server.deliver(mail(1), flags=[b"\\Seen"])
        await server.deliver(mail(2), flags=[b"\\Deleted"])
        uid = await server.deliver(mail(3), flags=[b"\\Flagged"])
        (ref,) = await box.list()
        assert ref.endswith(f"/{uid}")
        await box.mark_processed(ref)
        assert await server.flags(uid) == {b"\\Flagged", b"\\Seen"}

    async def test_a_mail_in_the_making_of_the_largest_number_is_as_good_as_any(self, server, box):
        """UIDs have gaps and go up to 2**32 - 1."""
        first = await server.deliver(mail(1))
        gone = await server.deliver(mail(2))
        folder = await server.folder()
        await folder.delete([gone])
        folder._max_uid = 2**32 - 2
        last = await server.deliver(mail(3))
        assert last == 2**32 - 1
        refs = await box.list()
        assert [int(ref.partition("/")[2]) for ref in refs] == [first, last]
        assert (await box.fetch(refs[-1])).raw == mail(3)
        await box.mark_processed(refs[-1])
        assert await box.list() == refs[:1]

    async def test_a_renumbered_folder_makes_old_refs_stale_and_marks_no_other_mail(self, server):
        folder = await server.add_folder("Service")
        await server.deliver(mail(1), "Service")
        box = ImapMailbox(reach(server.port), folder="Service")
        await box.open()
        (old,) = await box.list()
        await (await server.folders()).delete_mailbox("Service")
        renewed = await server.add_folder("Service")
        renewed._uid_validity = folder.uid_validity + 1
        uid = await server.deliver(mail(2), "Service")
        server.hang_up()
        assert old.endswith(f"/{uid}")
        with pytest.raises(MailGone):
            await box.fetch(old)
        await box.mark_processed(old)
        assert await server.flags(uid, "Service") == set()
        (new,) = await box.list()
        assert (await box.fetch(new)).raw == mail(2)
        await box.close()

    async def test_a_huge_mail_is_never_on_the_line(self, server, line):
        came = []
        box = ImapMailbox(reach(line.port), max_size=1000)
        await box.open()
        await server.deliver(mail(1, "x" * 300_000))
        (ref,) = await box.list()
        line.cut_down = lambda piece: came.append(piece)
        arrival = await box.fetch(ref)
        assert arrival.too_large
        assert arrival.size == len(mail(1, "x" * 300_000))
        assert len(b"".join(came)) < 1000
        await box.close()

    async def test_folders_of_any_name_are_read(self, server):
        await server.add_folder(POLISH)
        await server.deliver(mail(1), POLISH)
        box = ImapMailbox(reach(server.port), folder=POLISH)
        await box.open()
        assert (await box.fetch((await box.list())[0])).raw == mail(1)
        await box.close()


class TestFindingByMessageId:
    @pytest.mark.parametrize("folder", ["INBOX", "Sent", POLISH, 'Quoted "name" \\ here'])
    async def test_the_whole_id_counts_in_any_folder(self, server, box, folder):
        if folder != "INBOX":
            await server.add_folder(folder)
        await server.deliver(mail(12), folder)
        assert await box.find_message_id(folder, "<m12@holt-bakery.example>")
        for other in (
            "<m1@holt-bakery.example>",
            "m12@holt-bakery.example",
            "<m12@holt-bakery",
            "<é>",
            "<a\r\nb>",
        ):
            assert not await box.find_message_id(folder, other)

    @pytest.mark.parametrize("odd", ["<a.b+c=d_e%f*{3}@x.example>", "<a@[192.0.2.1]>", "<a@X.Example>"])
    async def test_ids_of_odd_characters_are_found(self, server, box, odd):
        await server.deliver(mail(1, Message_ID=odd))
        assert await box.find_message_id("INBOX", odd)
        assert not await box.find_message_id("INBOX", odd.replace("a", "b"))

    async def test_looking_elsewhere_leaves_the_mailbox_as_it_was(self, server, box):
        await server.add_folder("Sent")
        uid = await server.deliver(mail(2), "Sent")
        await server.deliver(mail(1))
        (ref,) = await box.list()
        await box.find_message_id("Sent", "<m2@holt-bakery.example>")
        assert await server.flags(uid, "Sent") == set()
        assert (await box.fetch(ref)).raw == mail(1)
        assert await box.list() == (ref,)

    async def test_a_folder_that_is_not_there_is_told(self, box):
        with pytest.raises(MailUnavailable) as caught:
            await box.find_message_id("Sent", "<a@b>")
        assert caught.value.kind == "folder"
        assert await box.list() == ()

    async def test_copies_are_kept_as_seen_and_found(self, server):
        await server.add_folder(POLISH)
        sent = ImapSent(reach(server.port), POLISH)
        await sent.open()
        assert not await sent.find("<m7@holt-bakery.example>")
        server.hang_up()  # it had stood idle for too long
        await sent.keep(mail(7))
        assert await sent.find("<m7@holt-bakery.example>")
        assert await server.bodies(POLISH) == [mail(7)]
        await sent.close()


class TestLostConnections:
    async def test_every_call_goes_on_over_a_new_connection(self, server, box):
        await server.deliver(mail(1))
        (ref,) = await box.list()
        for call in (box.list, lambda: box.fetch(ref), lambda: box.mark_processed(ref)):
            before = server.logins
            server.hang_up()
            await call()
            assert server.logins == before + 1
        assert await box.list() == ()

    async def test_a_connection_cut_in_the_middle_of_a_mail_gives_the_whole_mail_in_the_end(
        self, server, line, box
    ):
        raw = mail(1, "x" * 200_000)
        uid = await server.deliver(raw)
        (ref,) = await box.list()
        # The first piece of the mail comes through by half, then nothing any more.
        line.cut_down = lambda piece: piece[: len(piece) // 2] if b"BODY[]" in piece else None
        arrival = await box.fetch(ref)
        assert line.cuts == 1
        assert arrival.raw == raw
        assert await server.flags(uid) == set()

    async def test_a_connection_cut_after_every_new_login_is_an_error_not_a_loop(self, server, line, box):
        await server.deliver(mail(1))
        (ref,) = await box.list()

        def cut(piece):
            if b"BODY[]" not in piece:
                return None
            asyncio.get_running_loop().call_soon(setattr, line, "cut_down", cut)
            return b""

        line.cut_down = cut
        with pytest.raises(MailUnavailable) as caught:
            await box.fetch(ref)
        assert (caught.value.kind, line.cuts) == ("lost", 2)
        line.cut_down = None
        await asyncio.sleep(0)
        line.cut_down = None
        assert (await box.fetch(ref)).raw == mail(1)

    async def test_a_mark_whose_answer_was_lost_is_made_again(self, server, line, box):
        uid = await server.deliver(mail(1))
        (ref,) = await box.list()
        armed = []

        def watch(piece):
            if b"STORE" in piece and not armed:
                armed.append(piece)
                line.cut_down = lambda answer: b""

        line.cut_up = watch
        await box.mark_processed(ref)
        assert line.cuts == 1
        assert await server.flags(uid) == {b"\\Seen"}

    async def test_an_answer_nobody_can_read_is_asked_for_again_on_a_new_connection(self, server, line, box):
        await server.deliver(mail(1, "a secret"))
        (ref,) = await box.list()
        spoilt = []

        def spoil(piece):
            if b"BODY[]" in piece and not spoilt:
                spoilt.append(piece)
                return piece.replace(b"BODY[]<0>", b"BODY[(((")
            return piece

        line.rewrite = spoil
        assert (await box.fetch(ref)).raw == mail(1, "a secret")
        assert spoilt
        line.rewrite = lambda piece: piece.replace(b"BODY[]<0>", b"BODY[(((")
        server.hang_up()
        with pytest.raises(MailUnavailable) as caught:
            await box.fetch(ref)
        assert "a secret" not in "".join(traceback.format_exception(caught.value))

    async def test_a_server_that_is_gone_is_an_error_and_one_that_is_back_is_used(self, server):
        box = ImapMailbox(reach(server.port))
        await box.open()
        port = server.port
        await server.stop()
        with pytest.raises(MailUnavailable) as caught:
            await box.list()
        assert caught.value.kind == "unreachable"
        await server.start(None, port)
        await server.deliver(mail(1))
        assert len(await box.list()) == 1
        await box.close()

    async def test_a_server_that_stops_answering_is_given_up(self, server, line):
        box = ImapMailbox(reach(line.port, timeout=0.3))
        await box.open()
        held = asyncio.Event()
        line.hold = held
        with pytest.raises(MailUnavailable) as caught:
            await box.list()
        assert caught.value.kind in ("lost", "unreachable")
        held.set()
        line.hold = None
        assert await box.list() == ()
        await box.close()

    async def test_closing_ends_a_call_that_would_hang(self, server, line):
        box = ImapMailbox(reach(line.port, timeout=0.5))
        await box.open()
        line.hold = asyncio.Event()
        listing = asyncio.create_task(box.list())
        await asyncio.sleep(0)
        await box.close()
        with pytest.raises(MailUnavailable):
            await listing
        line.hold.set()


class TestWaiting:
    @pytest.fixture
    def idling(self, line):
        """Set when the server has said that it will tell what happens."""
        heard = asyncio.Event()

        def listen(piece):
            if b"Idling" in piece:
                heard.set()

        line.cut_down = listen
        return heard

    async def test_the_server_says_when_a_mail_comes(self, server, box, idling):
        await box.list()
        waiting = asyncio.create_task(box.wait(3600))
        await idling.wait()
        await server.deliver(mail(1))
        await waiting
        assert len(await box.list()) == 1

    async def test_a_mail_left_unprocessed_does_not_end_the_wait(self, server, box, idling):
        await server.deliver(mail(1))
        await box.list()
        waiting = asyncio.create_task(box.wait(3600))
        await idling.wait()
        assert not waiting.done()
        waiting.cancel()

    async def test_other_calls_go_first_and_the_wait_goes_on(self, server, box, idling):
        await server.deliver(mail(1))
        (ref,) = await box.list()
        waiting = asyncio.create_task(box.wait(3600))
        await idling.wait()
        for _ in range(3):
            idling.clear()
            assert (await box.fetch(ref)).raw == mail(1)
            await idling.wait()
        await box.mark_processed(ref)
        assert not waiting.done()
        await server.deliver(mail(2))
        await waiting
        assert len(await box.list()) == 1

    @pytest.mark.parametrize("tls", ["none", "implicit", "starttls"])
    async def test_no_mail_slips_between_looking_and_listening(self, tls, tmp_path):
        """Whenever it comes, the wait ends; otherwise this would last for ever."""
        async with imap_server(tls=tls) as server:
            box = ImapMailbox(reach(server.port, tls=tls, ca_file=authority_file(tmp_path)), pause=0.1)
            await box.open()
            for number in range(100):
                known = len(await box.list())
                waiting = asyncio.create_task(box.wait(3600))
                for _ in range(number % 25):  # a little later every time
                    await asyncio.sleep(0)
                await server.deliver(mail(number))
                await waiting
                assert len(await box.list()) == known + 1
            await box.close()

    @pytest.mark.parametrize("news_first", [False, True])
    async def test_news_in_one_piece_with_the_go_ahead_are_heard(self, server, line, box, idling, news_first):
        kept = []

        def together(piece):
            if b"Idling" in piece:
                kept.append(piece)
                return b""
            pieces = [piece, *kept] if news_first else [*kept, piece]
            kept.clear()
            return b"".join(pieces)

        await box.list()
        line.rewrite = together
        waiting = asyncio.create_task(box.wait(3600))
        await idling.wait()
        await asyncio.sleep(0)
        line.cut_down = None
        await server.deliver(mail(1))
        await asyncio.sleep(0)
        await waiting
        line.rewrite = None
        assert len(await box.list()) == 1

    async def test_a_server_that_keeps_saying_it_is_there_does_not_end_the_wait(
        self, server, line, box, idling
    ):
        await box.list()
        line.rewrite = lambda piece: piece + b"* OK Still here\r\n" if b"Idling" in piece else piece
        waiting = asyncio.create_task(box.wait(3600))
        for _ in range(3):
            await idling.wait()
            idling.clear()
        assert not waiting.done()
        line.rewrite = None
        await idling.wait()
        await server.deliver(mail(1))
        await waiting

    async def test_a_server_that_offers_idle_and_refuses_it_is_waited_for_all_the_same(
        self, server, line, box
    ):
        await box.list()
        line.rewrite = lambda piece: b"* BAD no such thing\r\n" if b"Idling" in piece else piece
        before = line.connections
        await box.wait(0.5)
        assert line.connections == before
        line.rewrite = None
        assert await box.list() == ()

    async def test_closing_is_possible_while_waiting(self, server, box, idling):
        await box.list()
        waiting = asyncio.create_task(box.wait(3600))
        await idling.wait()
        await box.close()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def test_a_connection_lost_while_waiting_does_not_make_us_hurry(self, server, line, box, idling):
        """A server that drops us again and again is asked once for every wait, not without pause."""
        await box.list()
        waiting = asyncio.create_task(box.wait(1.5))
        await idling.wait()
        before = line.connections
        server.hang_up()
        await waiting
        assert line.connections == before
        await server.deliver(mail(1))
        assert len(await box.list()) == 1

    async def test_without_idle_the_time_is_simply_waited(self):
        async with imap_server(idle=False) as server, relay(server.port) as line:
            box = ImapMailbox(reach(line.port))
            await box.open()
            told = []
            line.cut_up = lambda piece: told.append(piece)
            await box.list()
            await box.wait(0.05)
            assert b"IDLE" not in b"".join(told)
            await server.deliver(mail(1))
            assert len(await box.list()) == 1
            await box.close()


async def test_two_clients_share_a_mailbox(server):
    """W-46: both see the same mails; what one has processed the other no longer lists."""
    one, other = ImapMailbox(reach(server.port)), ImapMailbox(reach(server.port))
    await asyncio.gather(one.open(), other.open())
    uids = [await server.deliver(mail(number)) for number in range(10)]
    refs, same = await asyncio.gather(one.list(), other.list())
    assert refs == same
    await asyncio.gather(*(one.mark_processed(ref) for ref in refs[::2]))
    await asyncio.gather(*(other.mark_processed(ref) for ref in refs[1::2]))
    assert await asyncio.gather(one.list(), other.list()) == [(), ()]
    assert all([await server.flags(uid) == {b"\\Seen"} for uid in uids])
    await asyncio.gather(one.close(), other.close())
