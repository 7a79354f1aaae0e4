"""The code policy of cells that an agent wrote. It prevents accidents; it is no sandbox."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from typing import Literal

from detent.flows.notebook.measuring.code_problem import CodeProblem, ProblemCode
from detent.flows.notebook.measuring.expressions import parse_cell

CodePolicy = Literal["guarded", "open", "strict"]

STRICT_IMPORTS = frozenset(
    {
        "abc", "bisect", "calendar", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime",
        "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "joblib", "json",
        "lightgbm", "math", "matplotlib", "numbers", "numpy", "operator", "os", "pandas", "pathlib",
        "platform",
        "pprint", "random", "re", "scipy", "seaborn", "sklearn", "statistics", "statsmodels", "string", "sys",
        "textwrap", "time", "typing", "unicodedata", "warnings", "xgboost",
    }
)  # fmt: skip
"""Packages that the policy `strict` allows."""

_FORBIDDEN_MODULES = {
    **dict.fromkeys(("subprocess", "pty", "pexpect", "multiprocessing"), "starts programs"),
    **dict.fromkeys(
        (
            "socket", "socketserver", "ssl", "http", "urllib.request", "urllib3", "requests", "httpx",
            "aiohttp",
            "httpcore", "pycurl", "ftplib", "smtplib", "imaplib", "poplib", "telnetlib", "nntplib", "xmlrpc",
            "websocket", "websockets", "paramiko", "webbrowser",
        ),
        "uses the network",
    ),
    **dict.fromkeys(("pip", "ensurepip", "conda", "micropip"), "installs packages"),
    **dict.fromkeys(("ctypes", "cffi", "importlib.util", "runpy", "IPython.core"), "goes round the checks"),
}  # fmt: skip
_OS_CALLS = re.compile(
    r"^(system|popen|exec[lv]?[pe]{0,2}|spawn\w*|fork(pty)?|kill(pg)?|posix_spawnp?|startfile)$"
)
_FORBIDDEN_NAMES = {
    "get_ipython": "reaches the shell",
    "__import__": "imports what cannot be checked",
    "exec": "runs what cannot be checked",
    "eval": "runs what cannot be checked",
}
_ROOTS = (
    "bin", "boot", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "proc", "root", "run", "sbin",
    "srv", "sys", "tmp", "usr", "var", "Users", "Volumes", "private", "Applications", "Library",
)  # fmt: skip
_ABSOLUTE = re.compile(rf"^/(?:{'|'.join(_ROOTS)})(?:/|$)|^[A-Za-z]:[\\/]|^\\\\\w|^~\w*/|^file://")
_UPWARDS = re.compile(r"(?:^|[\\/])\.\.(?:[\\/]|$)")
_ROOTED = re.compile(r"^/[\w.-]")
_PATH_CALLS = re.compile(
    r"^(open|Path|PurePath|read_\w+|to_(csv|parquet|pickle|json|excel|feather|html|markdown|latex|stata)|savefig"
    r"|load|dump|loadtxt|savetxt|save|savez\w*|genfromtxt|listdir|scandir|walk|mkdir|makedirs|remove|unlink|rmdir"
    r"|rmtree|rename|replace|copy|copy2|copyfile|copytree|move|chdir|glob|iglob|stat|join|exists|isfile|isdir)$"
)  # fmt: skip
_SHELL = re.compile(r"^\s*(?:!|%|[A-Za-z_][\w, ]*=\s*[!%])")


def check_policy(
    source: str,
    policy: CodePolicy = "guarded",
    *,
    cell: int = 0,
    allowed_imports: Collection[str] = STRICT_IMPORTS,
) -> tuple[CodeProblem, ...]:
    """What the policy forbids in a cell. `open` forbids nothing but what does not parse."""
    problems = [] if policy == "open" else list(_shell_lines(source, cell))
    try:
        tree = parse_cell(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        message = f"this is not Python: {getattr(error, 'msg', None) or error}"
        return (*problems, CodeProblem("syntax", cell, line, "", message))
    if policy == "open":
        return ()
    problems.extend(_forbidden(tree, cell))
    if policy == "strict":
        problems.extend(_not_listed(tree, cell, allowed_imports))
    return tuple(dict.fromkeys(problems))


def _shell_lines(source: str, cell: int) -> Iterator[CodeProblem]:
    """Lines of shell and magic commands, as far as they are not lines of a longer text."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        for number, line in enumerate(source.split("\n"), 1):
            if _SHELL.match(line):
                command = line.strip()
                yield CodeProblem("shell", cell, number, command[:80], f"'{command[:80]}' is no Python")


def _forbidden(tree: ast.Module, cell: int) -> Iterator[CodeProblem]:
    modules = _aliases_of_os(tree)
    inner = _inner_texts(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    yield from _module(node, alias.name, cell)
            case ast.ImportFrom(module=str() as module, names=aliases):
                yield from _module(node, module, cell)
                for alias in aliases:
                    yield from _module(node, f"{module}.{alias.name}", cell)
                    if module in ("os", "posix") and _OS_CALLS.match(alias.name):
                        yield _problem("forbidden_call", node, cell, f"os.{alias.name}", "starts programs")
                    if alias.name in ("get_ipython", "import_module"):
                        yield _problem("forbidden_call", node, cell, alias.name, "goes round the checks")
            case ast.Name(id=name) if name in _FORBIDDEN_NAMES:
                yield _problem("forbidden_call", node, cell, name, _FORBIDDEN_NAMES[name])
            case ast.Attribute(value=ast.Name(id=module), attr=call) if module in modules and _OS_CALLS.match(
                call
            ):
                yield _problem("forbidden_call", node, cell, f"os.{call}", "starts programs")
            case ast.Attribute(attr="import_module" | "__subclasses__" | "__globals__" as name):
                yield _problem("forbidden_call", node, cell, name, "goes round the checks")
            case ast.Attribute(attr="urlopen" | "urlretrieve" as name):
                yield _problem("forbidden_call", node, cell, name, "uses the network")
            case ast.Constant(value=str() as text) if id(node) not in inner:
                yield from _literal(node, text, cell)
            case ast.Call():
                yield from _path_argument(node, cell)


def _aliases_of_os(tree: ast.Module) -> frozenset[str]:
    """The names under which a cell knows the module `os`."""
    imported = (alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names)
    named = (alias.asname for alias in imported if alias.name in ("os", "posix") and alias.asname)
    return frozenset({"os", "posix", *named})


def _inner_texts(tree: ast.Module) -> frozenset[int]:
    """Parts of formatted texts after their first: where those begin with `/` is not the root."""
    return frozenset(
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values[1:]
    )


def _problem(code: ProblemCode, node: ast.AST, cell: int, name: str, why: str) -> CodeProblem:
    return CodeProblem(code, cell, getattr(node, "lineno", 1), name, f"'{name}' {why}")


def _module(node: ast.AST, module: str, cell: int) -> Iterator[CodeProblem]:
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        why = _FORBIDDEN_MODULES.get(".".join(parts[:depth]))
        if why is not None:
            yield _problem("forbidden_import", node, cell, ".".join(parts[:depth]), why)
            return


def _literal(node: ast.AST, text: str, cell: int) -> Iterator[CodeProblem]:
    """Paths that lead out of the work folder, and addresses."""
    if "\n" in text or (" " in text.strip() and not _ABSOLUTE.match(text)):
        return
    if _ABSOLUTE.match(text) or _UPWARDS.search(text):
        yield _problem("outside_path", node, cell, text[:80], "lies outside the work folder")


def _path_argument(call: ast.Call, cell: int) -> Iterator[CodeProblem]:
    """A path from the root or an address, where a path or file is expected."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if not _PATH_CALLS.match(name):
        return
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
            continue
        text = argument.value
        if re.match(r"^(https?|ftp|s3|gs)://", text):
            yield _problem("forbidden_call", argument, cell, text[:80], "uses the network")
        elif _ROOTED.match(text) and not _ABSOLUTE.match(text) and name not in ("join", "replace"):
            yield _problem("outside_path", argument, cell, text[:80], "lies outside the work folder")


def _not_listed(tree: ast.Module, cell: int, allowed: Collection[str]) -> Iterator[CodeProblem]:
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "."]
        for module in modules:
            if module.split(".")[0] not in allowed:
                yield _problem(
                    "forbidden_import", node, cell, module, "is not in the list of allowed imports"
                )
