"""Connections to a PostgreSQL server: connecting, migrating, and the meaning of a failure in one sentence.

No message from here contains a password: messages are our own words and names taken from the address, never
the address itself.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from importlib import resources
from typing import Any

from detent.engine.ports import USUAL_LEASE
from detent.kernel.errors import (
    ConfigurationError,
    IntegrationMissing,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
)

try:
    import psycopg
    from psycopg import conninfo, errors
except ImportError as error:
    raise IntegrationMissing(
        "The PostgreSQL store needs psycopg. Install it with: pip install 'detent[postgres]'"
    ) from error

Connection = psycopg.AsyncConnection[Any]

# A server that vanished silently is noticed within a third of the usual lease, so that whatever waits for it
# is given up and tried again while the lease is still valid.
NOTICED_WITHIN = int(USUAL_LEASE / 3)
DEFAULTS: dict[str, Any] = {
    "connect_timeout": NOTICED_WITHIN,
    "keepalives_idle": NOTICED_WITHIN - 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": NOTICED_WITHIN * 1000,
    "application_name": "detent",
}
"""Connection settings used unless the address says otherwise."""

_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

# A server may be configured to answer before the data is on disk. A stricter setting is kept.
_SYNCHRONOUS = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""
_HAS_SCHEMA = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_HAS_TABLES = (
    "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s LIMIT 1"
)
_HAS_VERSION = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'detent_schema'"
_LOCK = "SELECT pg_advisory_xact_lock(%s, 0)"

# Messages of the client library before there is a session; they have no error code.
_NO_SESSION = (
    (r"password|authentication|pg_hba\.conf|role .* does not exist", "refused the login of user {user}"),
    (r"database .* does not exist", "has no database {dbname}"),
    (r"too many clients|remaining connection slots|too many connections", "has no connection to spare"),
    (r"starting up|shutting down|recovery mode", "is starting up or shutting down"),
    (r"SSL|certificate", "could not agree on an encrypted connection"),
)
# Error codes of the server, once there is a session.
_BY_CODE = (
    ("42501", "does not let user {user} do this: permission denied"),
    ("25006", "is read-only"),
    ("53100", "cannot grow: the disk is full"),
    ("53200", "is out of memory"),
    ("53300", "has no connection to spare"),
    ("3D000", "has no database {dbname}"),
    ("28", "refused the login of user {user}"),
    ("55P03", "is locked by another process"),
    ("42P01", "lacks a table it should have"),
    ("57014", "stopped the statement: it took too long"),
    ("57P", "is starting up or shutting down"),
    ("08", "cannot be reached: the connection was lost"),
    ("XX00", "reports damaged data"),
)


class Link:
    """The server's address, our schema in it, and their names in messages."""

    def __init__(self, dsn: str, schema: str) -> None:
        if not _SCHEMA_NAME.fullmatch(schema):
            raise ConfigurationError(
                f"'{schema}' cannot be the name of a schema. Use letters, digits and underscores, at most 63."
            )
        try:
            settings = conninfo.conninfo_to_dict(dsn)
        except psycopg.Error:
            # Neither shown nor chained: the library's message quotes the address, password and all.
            raise ConfigurationError(
                "The address of the PostgreSQL store cannot be read. "
                "It looks like postgresql://user@host:5432/database."
            ) from None
        self.schema = schema
        self.conninfo = conninfo.make_conninfo("", **{**DEFAULTS, **settings})
        self.user = str(settings.get("user") or "of this process")
        self.dbname = str(settings.get("dbname") or settings.get("user") or "")
        host = str(settings.get("host") or settings.get("hostaddr") or "localhost")
        port = settings.get("port")
        self.server = f"{host}:{port}" if port and not host.startswith("/") else host

    @property
    def place(self) -> str:
        """Server, database and schema, for messages."""
        return f"{self.server}/{self.dbname} schema {self.schema}"

    async def connect(self) -> Connection:
        """A new connection in autocommit mode."""
        connection: Connection = await psycopg.AsyncConnection.connect(self.conninfo, autocommit=True)
        try:
            await configure(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    def explain(self, error: Exception) -> Exception:
        """A database error as one of ours, in one sentence."""
        if isinstance(error, StoreError) or not isinstance(error, psycopg.Error):
            return error
        if isinstance(error, psycopg.DataError):
            return StoreError(f"The store {self.place} cannot hold this value: {self._sentence(error)}.")
        return StoreUnavailable(f"The PostgreSQL server at {self.server} {self._why(error)}.")

    def _why(self, error: psycopg.Error) -> str:
        names = {"user": self.user, "dbname": f"'{self.dbname}'"}
        if error.sqlstate is not None:
            for code, why in _BY_CODE:
                if error.sqlstate.startswith(code):
                    return why.format(**names)
            return f"refused: {self._sentence(error)} ({error.sqlstate})"
        text = str(error)
        for pattern, why in _NO_SESSION:
            if re.search(pattern, text, re.IGNORECASE):
                return why.format(**names)
        return "cannot be reached"

    @staticmethod
    def _sentence(error: psycopg.Error) -> str:
        """The main sentence of the server or the library, without details that could quote a value."""
        text = error.diag.message_primary or str(error).partition("\n")[0]
        return text.strip().rstrip(".")

    async def migrate(self, connection: Connection) -> int:
        """Bring the schema to this version, even while another process does the same; returns the version."""
        steps = migrations()
        version = await self._version(connection)
        if version == len(steps):
            return version
        async with connection.transaction():
            await connection.execute(_LOCK, (lock_key(self.schema),))
            version = await self._version(connection)
            if version > len(steps):
                raise StoreTooNew(
                    f"The store {self.place} was written by a newer Detent (schema {version}; this one knows "
                    f"{len(steps)}). Upgrade Detent, or use another store."
                )
            if version == 0:
                await self._create_schema(connection)
            await connection.execute(f'SET LOCAL search_path = "{self.schema}"')
            for step in steps[version:]:
                await connection.execute(step.encode())
            await connection.execute("UPDATE detent_schema SET version = %s", (len(steps),))
        return len(steps)

    async def _version(self, connection: Connection) -> int:
        if await (await connection.execute(_HAS_VERSION, (self.schema,))).fetchone() is None:
            return 0
        cursor = await connection.execute(f'SELECT version FROM "{self.schema}".detent_schema'.encode())
        row = await cursor.fetchone()
        return int(row[0]) if row is not None else 0

    async def _create_schema(self, connection: Connection) -> None:
        """Create the schema, unless it has tables of another program."""
        # Checked first: IF NOT EXISTS alone needs rights that an existing schema makes unnecessary.
        if await (await connection.execute(_HAS_SCHEMA, (self.schema,))).fetchone() is None:
            await connection.execute(f'CREATE SCHEMA "{self.schema}"'.encode())
        elif await (await connection.execute(_HAS_TABLES, (self.schema,))).fetchone() is not None:
            raise StoreUnavailable(
                f"The schema '{self.schema}' of database '{self.dbname}' has tables that are not Detent's. "
                "Choose another schema."
            )
        await connection.execute(
            f'CREATE TABLE "{self.schema}".detent_schema (version integer NOT NULL)'.encode()
        )
        await connection.execute(f'INSERT INTO "{self.schema}".detent_schema VALUES (0)'.encode())


async def configure(connection: Connection) -> None:
    """Set up a connection of a store."""
    await connection.execute(_SYNCHRONOUS)


def lost(connection: Connection | None, error: BaseException) -> bool:
    """Whether the connection is gone, so that what it was doing may or may not have happened."""
    if connection is not None and connection.closed:
        return True
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and (
        error.sqlstate is None or error.sqlstate.startswith(("08", "57P", "53300"))
    )


def repeatable(error: BaseException) -> bool:
    """Whether the server undid the transaction only because of others, and asks to try again."""
    return isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure))


def lock_key(schema: str) -> int:
    """The advisory lock of a schema, as a signed 32-bit number."""
    return zlib.crc32(f"detent {schema}".encode()) - (1 << 31)


async def let_go(connection: Connection | None) -> None:
    """Close a connection that may already be broken."""
    if connection is not None:
        with contextlib.suppress(Exception):
            await connection.close()


def migrations() -> list[str]:
    """The schema's steps, in order."""
    folder = resources.files("detent.adapters.stores") / "postgres_schema"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]
