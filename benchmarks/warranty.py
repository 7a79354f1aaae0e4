"""The warranty mailbox: what its steps cost a mail, beside legacy mode and a bare loop over the same code."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.protocol import Param, Result, database, main, require, stored_bytes

RECEIVED = datetime(2026, 3, 10, 8, 15, tzinfo=UTC)
TEXTS = (
    ("Label printer", "Hello, our printer S/N SN48213 stopped working and feeds two labels at once."),
    ("Drukarka", "Dzień dobry, drukarka o numerze seryjnym SN48213 nie działa od wczoraj. Proszę o pomoc."),
    ("Scanner", "Hello, the scanner with serial number SN77120 is broken, is it still under warranty?"),
    ("Waga", "Dzień dobry, waga nr seryjny SN99999 zawyża wynik. Proszę o pomoc."),
    ("Printer", "Hello, the printer in our office has stopped and does not start any more."),
    ("Your invoice", "Hello, the invoice of last month is not in our mail. Could you send it again?"),
)
"""Two that are covered; one each that has lapsed, is unknown, names no serial, is about something else."""
DEVICES = (
    {"serial": "SN48213", "device_name": "Kestrel K200", "manufacturer_end": "2027-05-31"},
    {"serial": "SN77120", "device_name": "Kestrel K100", "manufacturer_end": "2024-11-30"},
)

Process = Callable[[Any], Awaitable[str]]


def mail(number: int) -> Any:
    """The mail of a number, from its bytes."""
    from detent.adapters.mail.message import read_message

    subject, body = TEXTS[number % len(TEXTS)]
    head = (
        f"From: Maren <maren{number}@holt-bakery.example>\r\nMessage-ID: <m{number}@holt-bakery.example>\r\n"
    )
    head += f"Subject: {subject}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
    return read_message(f"{head}{body}\r\n".encode(), received=RECEIVED)


@asynccontextmanager
async def components_in(folder: Path) -> AsyncIterator[Any]:
    """A mailbox with its devices."""
    from detent.apps.warranty.domain.coverage import device_of
    from detent.apps.warranty.settings import read
    from detent.apps.warranty.wiring import Components

    components = Components.of(read({}, folder), environ={}, now=lambda: RECEIVED)
    await components.registry.add([device_of(dict(one)) for one in DEVICES])  # type: ignore[attr-defined]
    yield components


@asynccontextmanager
async def by_engine(param: Param, how: str) -> AsyncIterator[Process]:
    """Every mail a run of the whole engine, committed at full sync."""
    from detent import Engine
    from detent.adapters.stores.sqlite import SQLiteStore
    from detent.apps.warranty.legacy.flow import legacy_for
    from detent.apps.warranty.processor import EmailProcessor, StepOrchestrator
    from detent.apps.warranty.router import StepRouter

    async with (
        components_in(Path(param["folder"])) as components,
        Engine(SQLiteStore(database(param)), [components.flow]) as engine,
    ):
        router = StepRouter(components.handlers, components.settings.orchestration.router)
        legacy = legacy_for(components, engine) if how == "legacy" else None
        processor = EmailProcessor(StepOrchestrator(components, engine, router), legacy=legacy)

        async def process(message: Any) -> str:
            result = await processor.process_email(message, how=how)
            require(result.orchestrator == how, f"the mail was processed by {result.orchestrator}")
            return str(result.end)

        yield process


@asynccontextmanager
async def by_hand(param: Param) -> AsyncIterator[Process]:
    """The same handlers, templates and tools in a plain loop that keeps no journal."""
    from detent.apps.warranty.mail_data import pack
    from detent.engine.tools import EffectCall
    from detent.kernel.plain import decode

    async with components_in(Path(param["folder"])) as components:
        await components.open()
        handlers, tools = components.handlers.by_name(), {tool.name: tool for tool in components.tools}
        steps = components.flow.playbook.steps

        class Receipt(dict[str, Any]):
            def __missing__(self, key: str) -> tuple[str, str]:
                return ("receipt", key)

        class Context(SimpleNamespace):
            def propose(self, tool: str, /, **args: Any) -> Receipt:
                self.wanted.append((tool, args))
                return Receipt()

        async def process(message: Any) -> str:
            packed = pack(message, "UTC")
            data: dict[str, Any] = {**packed.data, "email": decode(packed.beside[0])}
            at = "01-extract-serial"
            while at in steps:
                ctx: Any = Context(
                    data=data, step=SimpleNamespace(name=at), run_id=message.key, failure=None, keep=decode,
                    wanted=[],
                )  # fmt: skip
                if at == "02-check-warranty":
                    tool = tools["check_warranty"]
                    found = await tool.perform(**tool.whole(ctx, {"serial_number": data["serial_number"]}))
                    data["warranty_data"] = found
                    at = {
                        "valid": "03a-valid-warranty", "expired": "03c-expired-warranty"
                    }.get(found["status"], "03b-device-not-found")  # fmt: skip
                    continue
                outcome = await handlers[steps[at].handler](ctx)
                receipts: dict[str, Any] = {}
                for name, args in ctx.wanted:
                    tool = tools[name]
                    call = (EffectCall(message.key, name, 1),) if tool.wants_call else ()
                    receipts |= await tool.perform(*call, **tool.whole(ctx, args))
                data |= {
                    key: receipts[value[1]] if isinstance(value, tuple) else value
                    for key, value in outcome.set.items()
                }
                at = outcome.next
            return str(at)

        yield process
        await components.close()


async def timed(process: Process, first: int, count: int) -> list[float]:
    """Seconds each of some mails takes, from its bytes to its end."""
    taken: list[float] = []
    for number in range(first, first + count):
        begin = time.perf_counter()
        end = await process(mail(number))
        taken.append(time.perf_counter() - begin)
        require(end == "DONE", f"a mail ended in {end}")
    return taken


def mailbox(param: Param) -> Any:
    """The way mails are processed."""
    way = param.get("way", "step")
    return by_hand(param) if way == "bare" else by_engine(param, way)


def run_mails(param: Param) -> Result:
    """Mails one after another: time a mail, and what the slow ones take."""

    async def work() -> list[float]:
        async with mailbox(param) as process:
            await timed(process, 0, len(TEXTS))  # files read, connections made
            return await timed(process, len(TEXTS), param["mails"])

    taken = asyncio.run(work())
    outbox = Path(param["folder"]) / "mail" / "outbox"
    require(len(list(outbox.glob("*.eml"))) == param["mails"] + len(TEXTS), "an answer is missing")
    p95 = statistics.quantiles(taken, n=20)[-1]
    return {
        "seconds": sum(taken), "n": len(taken), "ms": sum(taken) / len(taken) * 1000, "p95": p95 * 1000
    }  # fmt: skip


def run_flat(param: Param) -> Result:
    """The last hundred of many mails beside the first hundred: time and bytes a mail."""

    async def work() -> Result:
        path, window = database(param), param["window"]
        async with mailbox(param) as process:
            await timed(process, 0, len(TEXTS))
            at, marks = len(TEXTS), [stored_bytes(path)]
            cpu = [time.process_time()]
            early = await timed(process, at, window)
            cpu.append(time.process_time())
            marks.append(stored_bytes(path))
            middle = await timed(process, at + window, param["mails"] - 2 * window)
            marks.append(stored_bytes(path))
            cpu.append(time.process_time())
            late = await timed(process, at + param["mails"] - window, window)
            cpu.append(time.process_time())
            marks.append(stored_bytes(path))
        ratio = statistics.median(late) / statistics.median(early)
        return {
            "seconds": sum(early) + sum(middle) + sum(late),
            "n": param["mails"],
            "last_over_first": ratio,
            "cpu_over_first": (cpu[3] - cpu[2]) / (cpu[1] - cpu[0]),
            "bytes_over_first": (marks[3] - marks[2]) / max(marks[1] - marks[0], 1),
        }

    return asyncio.run(work())


if __name__ == "__main__":
    main({"mails": run_mails, "flat": run_flat})
