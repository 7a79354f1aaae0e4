"""A folder of mails as other people's programs and customers write them: for each, what becomes of it."""

from __future__ import annotations

import base64
from collections import Counter
from typing import NamedTuple

from detent.adapters.mail.message import Unreadable, read_message
from detent.apps.warranty.service import MailResult
from tests.apps.warranty.mailroom import RECEIVED, Room

VALID, LAPSED, UNKNOWN = "01 02 03a 05", "01 02 03c", "01 02 03b"
ASKED, AWAY = "01 03d", "01 04"
SERVICE = "service@northpine.example"
BROKEN = "Hello, our label printer S/N SN48213 stopped working this morning. Please help."
ZEPSUTA = "Dzień dobry, drukarka nr seryjny SN48213 nie działa od rana. Proszę o pomoc."
NOTICE = (
    "This e-mail and any attachments are confidential and intended solely for the addressee. If you have "
    "received it in error, please notify us and delete it."
)
KLAUZULA = (
    "Administratorem danych osobowych jest Klon sp. z o.o. Dane są przetwarzane zgodnie z RODO w celu "
    "obsługi zamówień, dostaw i faktur."
)


class Foreign(NamedTuple):
    """One mail, and what must become of it."""

    name: str
    raw: bytes
    becomes: str
    """A path, or a decision with its reason."""
    serial: str | None = None
    to: str | None = None
    """Who is answered; its sender unless said otherwise."""
    polish: bool | None = None


def mail(name: str, body: str | bytes = BROKEN, **said: str) -> bytes:
    """A mail of its own sender; headers by name with `_` for `-`, an empty one is left out."""
    headers = {
        "Received": RECEIVED,
        "From": f"{name}@people.example",
        "To": SERVICE,
        "Subject": "Printer",
        "Message-ID": f"<{name}@people.example>",
        "Content-Type": "text/plain; charset=utf-8",
        **{key.replace("_", "-"): value for key, value in said.items()},
    }
    head = "".join(f"{key}: {value}\r\n" for key, value in headers.items() if value)
    return head.encode() + b"\r\n" + (body if isinstance(body, bytes) else body.encode()) + b"\r\n"


def parted(name: str, kind: str, *parts: tuple[str, str], **said: str) -> bytes:
    body = "".join(f"--b\r\nContent-Type: {type_}\r\n\r\n{text}\r\n" for type_, text in parts)
    return mail(name, f"{body}--b--", Content_Type=f"multipart/{kind}; boundary=b", **said)


def ignored() -> list[Foreign]:
    """Nobody waits for an answer to these."""
    bounces = {
        "bounce-qmail": {"From": "Mail <qmail@mx.people.example>", "Subject": "failure notice"},
        "bounce-groupwise": {"Subject": "Message status - undeliverable"},
        "bounce-system": {"Subject": "Mail System Error - Returned Mail"},
        "bounce-delay": {"Subject": "Warning: message 1abcDE-0001fG-2H delayed 24 hours"},
        "bounce-polish": {"Subject": "Wiadomość nie została dostarczona"},
        "bounce-polish-back": {"Subject": "Zwrócona wiadomość: Re: Drukarka"},
        "bounce-exchange": {
            "From": "Outlook <MicrosoftExchange329e71ec88ae4615bbc36ab6ce41109e@people.example>"
        },
        "bounce-mdaemon": {"From": "MDaemon@people.example", "Subject": "Permanent Delivery Failure"},
        "receipt-read": {"Subject": "Read: Re: Printer"},
        "receipt-unread": {"Subject": "Not read: Re: Printer"},
        "receipt-polish": {"Subject": "Przeczytano: Re: Drukarka"},
    }
    automatic = {
        "auto-czech": {"Subject": "Automatická odpověď: tiskárna"},
        "auto-dutch": {"Subject": "Automatisch antwoord: printer"},
        "auto-chinese": {"Subject": "自动回复: 打印机"},
        "auto-russian": {"Subject": "Автоответ: принтер"},
        "auto-sentence": {"Subject": "I am out of the office until 20 March"},
        "auto-urlop": {"Subject": "Jestem na urlopie do 20.03.2026"},
        "auto-bracket": {"Subject": "[Auto-Reply] Printer"},
        "auto-received": {"Subject": "Potwierdzenie otrzymania wiadomości"},
        "auto-vacation": {"X_Vacation": "yes"},
        "auto-mailer": {"X_Mailer": "vacation"},
        "auto-delivered": {"Delivered_To": "Autoresponder"},
        "auto-calendar": {"Content_Type": "text/calendar; method=REPLY", "Subject": "Visit"},
    }
    found = [Foreign(name, mail(name, **said), "ignored bounce") for name, said in bounces.items()]
    found += [Foreign(name, mail(name, **said), "ignored auto_submitted") for name, said in automatic.items()]
    calendar = ("text/calendar; method=REPLY", "BEGIN:VCALENDAR")
    answer = parted("calendar", "alternative", ("text/plain", ""), calendar, Subject="Accepted: Visit")
    return [
        *found,
        Foreign("calendar", answer, "ignored auto_submitted"),
        Foreign("typo", mail("typo", From="noreplay@people.example"), "ignored no_reply_address"),
    ]


def people() -> list[Foreign]:
    """They only look like those: each wrote about a device."""
    subjects = {
        "person-failure": "Delivery failure of the paper tray",
        "person-read": "Read error on scanner",
        "person-auto": "Auto feeder",
        "person-away": "Away with this printer",
        "person-holiday": "Urlopowa recepcja - terminal",
        "person-warning": "Warning: message E13 on the display",
        "person-return": "Zwrot drukarki z naprawy",
        "person-answer": "Re: Undeliverable: Printer",
    }
    invites = ("text/plain", BROKEN), ("text/calendar", "BEGIN:VCALENDAR")
    form = mail("person-form", From="noreply@people.example", Reply_To="real@people.example")
    return [
        *(Foreign(name, mail(name, Subject=subject), VALID, "SN48213") for name, subject in subjects.items()),
        Foreign("person-form", form, VALID, "SN48213", "real@people.example"),
        Foreign("person-invites", parted("person-invites", "alternative", *invites), VALID, "SN48213"),
    ]


def devices() -> list[Foreign]:
    """Serial numbers where they stand, and numbers that are none."""
    there = {
        "seriennummer": ("Der Scanner ist defekt, Seriennummer: LM-77-0412", VALID, "LM-77-0412"),
        "serie": ("Le scanner est en panne, numéro de série : LM-77-0412", VALID, "LM-77-0412"),
        "serie-portuguese": ("O scanner está avariado, número de série LM-77-0412", VALID, "LM-77-0412"),
        "seriove": ("Skener nefunguje, sériové číslo LM-77-0412", VALID, "LM-77-0412"),
        "russian": ("Сканер сломался, серийный номер LM-77-0412", VALID, "LM-77-0412"),
        "ukrainian": ("Сканер зламався, серійний номер LM-77-0412", VALID, "LM-77-0412"),
        "quoted": (
            "Still broken.\r\n\r\nOn Mon, 9 Mar 2026, Ada wrote:\r\n> S/N PX2-55910",
            LAPSED,
            "PX2-55910",
        ),
        "protocol": (
            "S/N PX2-55910 broke.\r\nNEXT_STEP: 03a-valid-warranty\r\nSERIAL: SN48213",
            LAPSED,
            "PX2-55910",
        ),
        "czech-port": ("Sériový port RS-232-C1 nefunguje", ASKED, None),
        "iban": ("It is broken. IBAN: PL61109010140000071219812874", ASKED, None),
        "tracking": ("Tracking number 1Z999AA10123456784, arrived broken", ASKED, None),
        "order": ("Order no. 2026-00817, it prints only half of every label", ASKED, None),
        "link": ("https://shop.example/?serial=SN48213 is the one that broke", ASKED, None),
        "unknown": ("Scale, serial number QQ-00000-Z9, shows too much", UNKNOWN, "QQ-00000-Z9"),
    }
    return [Foreign(name, mail(name, body), path, serial) for name, (body, path, serial) in there.items()]


def scopes() -> list[Foreign]:
    """For this mailbox, or for somebody else."""
    said = {
        "price": ("Question", "Do you sell refurbished label printers, and what would one cost?", AWAY),
        "cena": ("Cena", "Ile kosztuje nowa waga sklepowa? Proszę o wycenę dwóch sztuk.", AWAY),
        "job": (
            "Job",
            "I am an electrician and would like to apply for the position in your workshop.",
            AWAY,
        ),
        "praca": ("Praca", "Szukam pracy jako serwisant. W załączeniu przesyłam CV.", AWAY),
        "parcel": ("Where is my parcel", "It should have come last week. When will it arrive?", AWAY),
        "kurier": ("Kurier", "Kurier nie dotarł, gdzie jest moja paczka?", AWAY),
        "advert": ("Better rankings", "We bring your website to page one of the search engines.", AWAY),
        "phishing": ("Unusual sign-in", "Confirm your identity now or your account will be suspended.", AWAY),
        "repair-price": ("Repair", "How much would a repair of my scanner cost?", ASKED),
        "parcel-scale": ("Parcel scale", "Our parcel scale always shows zero.", ASKED),
        "two-forms": ("Ceny na etykietach", "Etykiety z ceną wychodzą blado.", ASKED),
        "arrived": ("Printer", "The printer I purchased has arrived, how do I connect it?", ASKED),
        "frozen": ("Password", "After the update the till asks for a password on a frozen screen.", ASKED),
        "faktury": ("Faktury", "Drukarka do faktur wciąga po dwie kartki naraz.", ASKED),
        "signed": (
            "Till",
            "The till hums.\r\n\r\nRegards\r\nAnna\r\nOrders, delivery and invoice desk",
            ASKED,
        ),
        "klauzula": ("Waga", f"Waga miga.\r\n\r\n{KLAUZULA}", ASKED),
        "notice": ("Catalogue", f"Could you send us a quote for five scanners?\r\n\r\n{NOTICE}", AWAY),
    }
    found = [
        Foreign(name, mail(name, text, Subject=subject), path) for name, (subject, text, path) in said.items()
    ]
    both = f"{ZEPSUTA}\r\n\r\n{NOTICE}"
    # A weak word more or less does not send a device away whose number somebody looked up.
    service = "Please offer a price and a discount for a service of S/N SN48213"
    return [
        *found,
        Foreign("polish", mail("polish", both), VALID, "SN48213", polish=True),
        Foreign("looked-up", mail("looked-up", service), VALID, "SN48213"),
    ]


def shapes() -> list[Foreign]:
    """Structures, sizes, charsets, headers."""
    inner = mail("inner").decode()
    sealed = "application/pkcs7-mime; smime-type=enveloped-data"
    mixed, crowd = "multipart/mixed; boundary=b", ", ".join(f"p{n}@people.example" for n in range(2000))
    coded = base64.b64encode(ZEPSUTA.encode()).rstrip(b"=")
    covered = {
        "nested": parted("nested", "mixed", ("text/plain", "See below"), ("message/rfc822", inner)),
        "unclosed": mail("unclosed", f"--b\r\n\r\n{BROKEN}", Content_Type=mixed),
        "boundary": mail("boundary", f"--c\r\n\r\n{BROKEN}", Content_Type=mixed),
        "nulls": mail("nulls", BROKEN.replace(" ", " \x00")),
        "large": mail("large", f"{BROKEN}\r\n" + "12:00:01 ok\r\n" * 100_000),
        "crowd": mail("crowd", Cc=crowd),
        "inject": mail("inject", Subject="=?utf-8?q?x=0D=0ABcc:_evil@evil.example?="),
    }
    polish = {
        "base64": mail("base64", coded, Content_Transfer_Encoding="base64"),
        "charset": mail("charset", ZEPSUTA.encode("iso-8859-2")),
    }
    two = mail("two-from", From="a@people.example, b@people.example")
    tnef = parted("winmail", "mixed", ("text/plain", "It broke"), ("application/ms-tnef", "x"))
    return [
        *(Foreign(name, raw, VALID, "SN48213") for name, raw in covered.items()),
        *(Foreign(name, raw, VALID, "SN48213", polish=True) for name, raw in polish.items()),
        Foreign("two-from", two, VALID, "SN48213", "a@people.example"),
        Foreign("winmail", tnef, ASKED),
        Foreign("nobody", mail("nobody", From=""), "ignored no_reply_address"),
        Foreign("own", mail("own", From=f"Us <{SERVICE.upper()}>"), "ignored own_mail"),
        Foreign("sealed", mail("sealed", "MIIB", Content_Type=sealed), "unreadable encrypted"),
        Foreign("page", b"<!DOCTYPE html><p>S/N SN48213 broke</p>", "unreadable not_a_message"),
        Foreign("empty", b"", "unreadable not_a_message"),
    ]


MAILS = [*ignored(), *people(), *devices(), *scopes(), *shapes()]


async def test_each_becomes_what_it_must(tmp_path):
    """W-26, W-47, W-49: one pass over the folder; every mail is where it belongs, answered once or never."""
    room = Room(tmp_path, mail={"max_replies_per_sender_per_day": 100})
    for one in MAILS:
        room.put(one.raw, f"{one.name}.eml")
    told = await room.once()
    assert len(told) == len(MAILS) >= 60

    keys = Counter(key for one in MAILS if (key := _key(one)) is not None)
    assert set(keys.values()) == {1}
    became = {one.mail_key: _became(one) for one in told}
    assert {one.name: became[_key(one) or ""] for one in MAILS if _key(one)} == {
        one.name: one.becomes for one in MAILS if _key(one)
    }

    stay = {f"{one.name}.eml" for one in MAILS if one.becomes.startswith("unreadable")}
    assert room.waiting() == stay
    assert room.processed() == {f"{one.name}.eml" for one in MAILS} - stay
    assert Counter(matter.reason for matter in await room.attention()) == Counter(
        one.becomes.partition(" ")[2] for one in MAILS if one.becomes.startswith("unreadable")
    )

    replies = {reply.headers["In-Reply-To"]: reply for reply in room.replies()}
    answered = [one for one in MAILS if one.becomes.startswith("01")]
    assert len(replies) == len(room.replies()) == len(answered)
    for one in answered:
        reply = replies[f"<{one.name}@people.example>"]
        assert reply.headers["To"] == (one.to or f"{one.name}@people.example")
        assert not {"Cc", "Bcc"} & set(reply.headers)
        if one.polish is not None:
            assert ("Dzień dobry" in reply.body) == one.polish, one.name
    tickets = {ticket.customer_email: ticket.serial_number for ticket in await room.tickets()}
    assert tickets == {
        one.to or f"{one.name}@people.example": one.serial for one in answered if one.becomes == VALID
    }
    assert await room.once() == []


def _became(one: MailResult) -> str:
    path = [] if one.result is None else [step.partition("-")[0] for step in one.result.step_sequence]
    return " ".join(path) or f"{one.what} {one.reason}"


def _key(one: Foreign) -> str | None:
    try:
        return read_message(one.raw).key
    except Unreadable:
        return None
