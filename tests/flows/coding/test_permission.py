"""Which calls are made, refused or asked about: deny wins, nothing widens a pattern, only people grant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.flows.coding.permission import (
    Decision,
    Grant,
    Rules,
    decide,
    excluded,
    grant_for,
    parse_rule,
    question,
)
from detent.flows.coding.permission_patterns import split_command
from detent.flows.coding.tools.catalogue import SPECS
from detent.flows.coding.tools.secret_names import is_secret
from detent.kernel.errors import ConfigurationError
from tests.examples import covering


class Desk:
    """Asks for decisions in one workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        for path in (
            "src/a.py",
            "src/deep/b.py",
            "docs/c.md",
            ".env",
            "secret/key.pem",
            ".git/config",
            "README.md",
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
        (root / "src/link.py").symlink_to("../docs/c.md")
        (root / "open").symlink_to("secret")
        (root / "notes.txt").symlink_to(".env")

    def decide(self, tool: str, rules: Rules | None = None, granted: Any = (), **args: Any) -> Decision:
        return decide(
            rules or Rules(), tool, args, workspace=str(self.root), kind=SPECS[tool].kind, granted=granted
        )  # fmt: skip

    def write(self, path: str, **rules: Any) -> str:
        return self.decide("write_file", Rules(**rules), filepath=path, content="x").verdict

    def read(self, path: str, **rules: Any) -> str:
        return self.decide("read_file", Rules(**rules), filepath=path).verdict

    def bash(self, command: str, allow: str = "", deny: str = "", yes: bool = False, **args: Any) -> str:
        rules = Rules(allow=(allow,) if allow else (), deny=(deny,) if deny else (), yes=yes)
        return self.decide("bash", rules, command=command, **args).verdict


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ws")


# -- the order ----------------------------------------------------------------------------------------------

CHANGES = {
    "write_file": {"filepath": "src/a.py", "content": "x"},
    "update_file": {"filepath": "src/a.py", "target": "a", "patch": "b"},
    "bash": {"command": "make test"},
}
PATTERNS = {"write_file": "src/**", "update_file": "src/**", "bash": "make *"}


@pytest.mark.parametrize(
    ("tool", "allowed", "denied", "yes", "granted", "read_only"),
    covering(
        CHANGES, ("", "bare", "pattern"), ("", "bare", "pattern"), (False, True), (False, True), (False, True)
    ),
)
def test_deny_comes_before_allow_and_allow_before_the_question(
    desk, tool, allowed, denied, yes, granted, read_only
):
    def rule(form: str) -> tuple[str, ...]:
        return {"": (), "bare": (tool,), "pattern": (f"{tool}:{PATTERNS[tool]}",)}[form]

    grants = [grant_for(tool, CHANGES[tool], str(desk.root))] if granted else []
    rules = Rules(rule(allowed), rule(denied), yes, read_only)
    decision = desk.decide(tool, rules, grants, **CHANGES[tool])
    if denied or read_only:
        expected = "deny"
    elif allowed or yes or granted:
        expected = "allow"
    else:
        expected = "ask"
    assert decision.verdict == expected
    assert decision.why


@pytest.mark.parametrize("tool", ["read_file", "list_dir", "glob", "grep", "todo", "ask", "task"])
def test_what_changes_nothing_needs_no_question_but_can_be_denied(desk, tool):
    args = {"read_file": {"filepath": "src/a.py"}, "glob": {"pattern": "*"}, "grep": {"pattern": "x"}}.get(
        tool, {}
    )
    assert desk.decide(tool, **args).verdict == "allow"
    assert desk.decide(tool, Rules(read_only=True), **args).verdict == "allow"
    assert desk.decide(tool, Rules(allow=(tool,), deny=(tool,), yes=True), **args).verdict == "deny"


def test_a_rule_is_about_its_own_tool_only(desk):
    assert desk.write("src/a.py", allow=("update_file", "bash", "read_file:src/**")) == "ask"
    assert desk.write("src/a.py", deny=("update_file", "bash", "read_file:src/**"), yes=True) == "allow"


def test_tools_that_users_add_are_asked_about_until_a_rule_allows_them(tmp_path):
    def verdict(rules: Rules, kind: str = "effect", granted: Any = ()) -> str:
        return decide(
            rules, "crm.note", {"x": 1}, workspace=str(tmp_path), kind=kind, granted=granted
        ).verdict

    assert verdict(Rules()) == "ask"
    assert verdict(Rules(allow=("crm.note",))) == "allow"
    assert verdict(Rules(yes=True)) == "allow"
    assert verdict(Rules(deny=("crm.note",), yes=True)) == "deny"
    assert verdict(Rules(), kind="query") == "allow"
    grant = grant_for("crm.note", {"x": 1}, str(tmp_path))
    assert verdict(Rules(), granted=[grant]) == "allow"
    assert verdict(Rules(), granted=[grant_for("crm.note", {"x": 2}, str(tmp_path))]) == "ask"


# -- paths --------------------------------------------------------------------------------------------------


def test_a_pattern_is_matched_against_the_place_a_path_leads_to(desk):
    allow = ("write_file:src/**",)
    for path in ("src/a.py", "./src/a.py", "docs/../src/a.py", f"{desk.root}/src/new.py", "src/deep/x/y.py"):
        assert desk.write(path, allow=allow) == "allow", path
    for path in (
        "src/../README.md",
        "src/link.py",
        "README.md",
        "srcx/a.py",
        "docs/src/a.py",
        "src",
        "SRC/a.py",
    ):
        assert desk.write(path, allow=allow) == "ask", path


def test_what_the_tool_refuses_anyway_needs_no_question(desk):
    for path in ("../x", "/etc/passwd", "~/x", ".git/config", ".detent/x", "a\0b"):
        rules = Rules(allow=("write_file",), yes=True)
        decision = desk.decide("write_file", rules, filepath=path, content="")
        codes = {"a\0b": "invalid_arguments", ".git/config": "protected", ".detent/x": "protected"}
        assert decision.verdict == "refuse", path
        assert decision.code == codes.get(path, "outside_workspace"), path
    assert desk.write("../x", deny=("write_file",)) == "deny"


SPELLINGS = [
    "secret/key.pem", "./secret/key.pem", "secret//key.pem", "src/../secret/key.pem", "open/key.pem",
    "open/../secret/key.pem",
    "src/deep/../../secret/key.pem", "SECRET/key.pem", "secret/KEY.pem", "secret/new", "open/new/file",
    "{root}/secret/key.pem",
    "{root}/open/key.pem", "../ws/secret/key.pem", "secret/../secret/./key.pem",
]  # fmt: skip


@pytest.mark.parametrize(
    "pattern", ["secret/**", "secret", "secret/", "./secret/**", "secr*/**", "{secret,x}/**", "**/secret/**"]
)
def test_a_denied_folder_is_denied_however_the_path_is_spelled(desk, pattern):
    for path in SPELLINGS:
        path = path.format(root=desk.root)
        everything = {"allow": ("write_file", "read_file"), "yes": True}
        assert desk.write(path, deny=(f"write_file:{pattern}",), **everything) == "deny", path
        assert desk.read(path, deny=(f"read_file:{pattern}",), **everything) == "deny", path
    assert desk.write("src/a.py", deny=(f"write_file:{pattern}",), yes=True) == "allow"


def test_a_denied_link_is_denied_by_its_own_name_too(desk):
    assert desk.write("src/link.py", deny=("write_file:src/*.py",), yes=True) == "deny"
    assert desk.write("src/link.py", deny=("write_file:docs/**",), yes=True) == "deny"
    assert desk.write("docs/c.md", deny=("write_file:src/*.py",), yes=True) == "allow"


def test_a_decision_names_the_one_place_that_it_is_about(desk):
    assert desk.decide("write_file", filepath="src/link.py", content="").place == "docs/c.md"
    assert desk.decide("read_file", filepath="./open/key.pem").place == "secret/key.pem"
    assert desk.decide("grep", pattern="x").place == "."
    assert desk.decide("bash", command="ls").place is None


def test_an_update_tells_what_is_in_a_file_so_it_is_denied_where_reading_is(desk):
    edit = {"filepath": "open/key.pem", "target": "a", "patch": "b"}
    rules = Rules(deny=("read_file:secret/**",), yes=True)
    assert desk.decide("update_file", rules, **edit).verdict == "deny"
    assert desk.decide("update_file", rules, **{**edit, "filepath": "src/a.py"}).verdict == "allow"
    assert desk.decide("update_file", Rules(deny=("read_file",), yes=True), **edit).verdict == "deny"
    assert desk.decide("write_file", rules, filepath="secret/new", content="x").verdict == "allow"


def test_a_pattern_without_a_slash_matches_names_at_any_depth(desk):
    assert desk.write("src/deep/b.py", allow=("write_file:*.py",)) == "allow"
    assert desk.write("b.py", allow=("write_file:src/*.py",)) == "ask"
    assert desk.write("src/deep/b.py", allow=("write_file:src/*.py",)) == "ask"
    assert desk.write("sub/README.md", allow=("write_file:./README.md",)) == "ask"
    assert desk.write("README.md", allow=("write_file:./README.md",)) == "allow"
    assert desk.write("a.ts", allow=("write_file:*.{js,ts}",)) == "allow"


def test_searches_must_leave_out_what_reading_denies():
    rules = Rules(
        deny=("read_file:secret/**", "grep:*.log", "list_dir:x", "glob:y/*.{a,b}", "grep", "bash:rm *")
    )
    assert excluded(rules, "grep") == ["*.log", "secret/**"]
    assert excluded(rules, "glob") == ["y/*.a", "y/*.b"]
    assert excluded(rules, "list_dir") == ["x"]
    assert excluded(rules, "read_file") == []


# -- what looks like a secret -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    ".env", ".env.local", ".envrc", "a/.ENV", "x.pem", "id_rsa", "keys/id_ed25519", "credentials",
    "aws-credentials.json", "MyCredentials.txt", "ID_RSA", "../x/.env",
])  # fmt: skip
def test_a_secret_is_told_by_its_name(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", [
    "valid_ids.py", "env.py", "environment", "x.env", "id/x.py", "id_x/y.py", "pem", "x.pem.py", "grid_a.py",
    "my_id_rsa.txt", ".environ/x", "cred.py", "credentials/a.py", "idx", "",
])  # fmt: skip
def test_no_other_name_is_one(name):
    assert not is_secret(name)


def test_reading_a_secret_asks_even_where_a_rule_allows_it(desk):
    for path in (".env", "notes.txt", "./src/../.env", "secret/key.pem", "open/key.pem", ".env.new"):
        assert desk.read(path) == "ask", path
        assert desk.read(path, allow=("read_file", "read_file:**")) == "ask", path
        assert desk.read(path, yes=True) == "allow", path
        assert desk.read(path, yes=True, deny=("read_file:**",)) == "deny", path
    assert desk.read("src/a.py") == "allow"


def test_tools_that_show_parts_of_a_secret_ask_too(desk):
    edit = {"filepath": ".env", "target": "A", "patch": "B"}
    assert desk.decide("update_file", Rules(allow=("update_file",)), **edit).verdict == "ask"
    assert desk.decide("update_file", Rules(yes=True), **edit).verdict == "allow"
    assert desk.decide("grep", pattern="x", directory=".env").verdict == "ask"
    assert desk.decide("grep", pattern="x", directory="secret").verdict == "allow"
    assert desk.decide("grep", pattern="x").verdict == "allow"
    (desk.root / "id_cards").mkdir()
    assert desk.decide("grep", pattern="x", directory="id_cards").verdict == "allow"


def test_a_persons_grant_for_a_folder_holds_for_its_secrets(desk):
    grant = grant_for("read_file", {"filepath": ".env"}, str(desk.root))
    assert desk.decide("read_file", granted=[grant], filepath=".env").verdict == "allow"
    assert desk.decide("read_file", granted=[grant], filepath="secret/key.pem").verdict == "ask"


# -- what configures Detent ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["detent.yaml", "./Detent.yaml", "config.yaml", "playbooks/x/01.md", "sub/detent.yaml", "evals/a.yaml"],
)
def test_what_configures_detent_is_for_a_person_whatever_allows_it(desk, path):
    for tool in ("write_file", "update_file"):
        args = {**CHANGES[tool], "filepath": path}
        rules = Rules(allow=(tool, f"{tool}:**"), yes=True)
        grants = [grant_for(tool, args, str(desk.root))]
        assert desk.decide(tool, rules, grants, **args).verdict == "ask"
        assert desk.decide(tool, Rules(deny=(tool,), yes=True), **args).verdict == "deny"
    assert desk.read(path) == "allow"


# -- commands -----------------------------------------------------------------------------------------------

MATCHING = {
    "make test": ["make test", "make  test", "  make test ", "make 'test'", 'make "test"'],
    "make *": [
        "make",
        "make test",
        "make -C x test",
        "make 'a b'",
        "make *.c",
        "make ~",
        "make a=b",
        "make [x]",
        "make #x",
    ],
    "git log *": ["git log", "git log -1 --format=%H"],
    "git commit -m 'a b'": ["git commit -m 'a b'", 'git commit -m "a b"'],
    "*": ["ls", "rm -rf /"],
}


@pytest.mark.parametrize("pattern", MATCHING)
def test_a_command_pattern_matches_whole_commands(desk, pattern):
    for command in MATCHING[pattern]:
        assert desk.bash(command, allow=f"bash:{pattern}") == "allow", command


ESCAPES = [
    "git status; rm -rf x", "git status;rm -rf x", "git status && rm x", "git status || rm x",
    "git status & rm x",
    "git status | sh", "git status\nrm x", "git status\r\nrm x", "git status\rrm x", "git status `rm x`",
    "git status $(rm x)",
    "git status ${x}", "git status $x", "git status > x", "git status >x", "git status 2>&1",
    "git status < x",
    "git status <(rm x)", "git status {a,b}", "git status !x", "git status !!", "git status \\\nrm",
    "git status \\x",
    "(git status)", "{ git status; }", "! git status", "FOO=1 git status", "PATH=. git status",
    "env git status",
    "git statusx", "gitstatus", "git", "xgit status", "git  -c x status", "./git status",
    "/usr/bin/git status", "git-status",
    "git\u00a0status", "git\u2003status", "git\u2028status", "git\u200bstatus", "git status\u00a0x",
    "git\tstatus", "git status\t",
    "git\x0bstatus", "git\x0cstatus", "git status\x00", "git status\x1b[2J", "git status\x85x",
    "git status\u202e", "git status\ud800",
    "'git status'", "git 'status", 'git "status', "git 'status x", "git ''status x;", "Git status",
    "git Status", "sudo git status",
    "#git status", "\ufeffgit status", "gi't' status;", "git status\u2029rm x", "",  " ", "g\u0456t status",
]  # fmt: skip


@pytest.mark.parametrize("command", ESCAPES)
def test_nothing_but_the_pattern_is_allowed_by_it(desk, command):
    assert desk.bash(command, allow="bash:git status *") == "ask"
    assert desk.bash(command, allow="bash:git status") == "ask"


def test_an_environment_widens_no_pattern(desk):
    for env in ({"PATH": "."}, {"LD_PRELOAD": "x.so"}, {"A": ""}):
        assert desk.bash("make test", allow="bash:make test", env=env) == "ask"
        assert desk.bash("make test", allow="bash:*", env=env) == "ask"
        assert desk.bash("make test", allow="bash", env=env) == "allow"
    assert desk.bash("make test", allow="bash:make test", env={}) == "allow"


def test_a_pattern_for_commands_holds_in_the_workspaces_own_folder_alone(desk):
    """Elsewhere the same words may run another program: the Makefile that is there, `./x`."""
    (desk.root / "here").symlink_to(".")
    for cwd in (".", "./", "./.", str(desk.root), f"{desk.root}/"):
        assert desk.bash("make test", allow="bash:make test", cwd=cwd) == "allow", cwd
    for cwd in ("src", "./src", "src/..", "here", f"{desk.root}/src", "..", "/", "gone"):
        assert desk.bash("make test", allow="bash:make test", cwd=cwd) == "ask", cwd
        assert desk.bash("make test", allow="bash", cwd=cwd) == "allow", cwd
        assert desk.bash("make test", deny="bash:make *", yes=True, cwd=cwd) == "deny", cwd


def test_words_in_quotes_are_one_word(desk):
    assert desk.bash("git commit -m 'a; b'", allow="bash:git commit *") == "ask"
    assert desk.bash("git commit -m 'a b' x", allow="bash:git commit -m 'a b'") == "ask"
    assert split_command("a 'b  c' d\"e f\"") == ["a", "b  c", "de f"]


DENIED = [
    "rm x", "rm -rf /", "rm", "ls; rm x", "ls;rm x", "ls && rm x", "ls||rm x", "ls | rm x", "ls & rm x",
    "(rm x)", "{ rm x; }",
    "$(rm x)", "`rm x`", "echo $(rm x)", "echo `rm x`", "ls\nrm x", "FOO=1 rm x", "A=1 B='2 3' rm x",
    "sudo rm x", "sudo -u root rm x",
    "env rm x", "env A=1 rm x", "command rm x", "exec rm x", "nohup rm x", "/bin/rm x", "./rm x", "'rm' x",
    "r'm' x", '"rm" x',
    "r\\m x", "\\rm x", "sh -c 'rm x'", 'bash -c "rm x"', "xargs rm", "xargs -n1 rm x", "timeout 5s rm x",
    "find . -exec rm x",
    "if true; then rm x; fi", "while rm x; do :; done", "! rm x", "time rm x", "nice -n 5 rm x",
    "rm x > y", "rm\tx", "x='a;' rm b",
    "eval rm x", "eval 'rm x'", "<(rm x)", "ls 2>&1; rm x",
]  # fmt: skip


@pytest.mark.parametrize("command", DENIED)
def test_a_denied_program_is_seen_in_a_longer_command(desk, command):
    assert desk.bash(command, deny="bash:rm *", yes=True) == "deny"


@pytest.mark.parametrize(
    "command",
    ["ls", "rmdir x", "grep rm x", "echo rm x", "cat rm", "git rm x", "xrm x", "ls # not", "rm.py x"],
)
def test_what_only_resembles_a_denied_program_is_not_denied(desk, command):
    assert desk.bash(command, deny="bash:rm *", yes=True) == "allow"


def test_a_denied_command_without_a_star_is_denied_whole(desk):
    for command in (
        "git push",
        "git push; ls",
        "cd x && git push",
        "git push >out",
        "git push 2>&1",
        "git 'push'",
        "git push &",
    ):
        assert desk.bash(command, deny="bash:git push", yes=True) == "deny", command
    for command in ("git push origin", "git pushx", "git pull"):
        assert desk.bash(command, deny="bash:git push", yes=True) == "allow", command
    assert desk.bash("make", allow="bash:make", deny="bash:make") == "deny"
    assert desk.bash("make", deny="bash:make *", env={"A": "1"}, yes=True) == "deny"


def test_a_long_command_is_judged_in_no_time(desk):
    for command in (
        "env " * 25_000,
        "a " * 50_000,
        "'a' " * 25_000,
        ";" * 100_000,
        "A=1 " * 25_000,
        "'" * 99_999,
    ):
        assert desk.bash(command, deny="bash:rm -rf *", allow="bash:ls *") == "ask"


# -- patterns that mean nothing -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "", "raed_file", "read_file:", "read_file: ", "read_file:/etc/**", "read_file:~/x", "read_file:../x",
    "read_file:a/../../b",
    "read_file:.", "read_file:./", "read_file:{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "bash:", "bash: ",
    "bash:make; ls",
    "bash:make $x", "bash:make 'x", "bash:git*", "bash:make t*", "bash:* x", "bash:make * x",
    "bash:make\ttest", "todo:x", "ask:x",
    "*", "*:x", ":x", "Bash", "task:worker", "crm.note",
])  # fmt: skip
def test_a_pattern_that_means_nothing_is_refused_in_words(text):
    with pytest.raises(ConfigurationError) as caught:
        parse_rule(text)
    assert f"'{text}' is no rule" in str(caught.value)


def test_a_misspelled_tool_is_told_the_nearest():
    with pytest.raises(ConfigurationError, match="Did you mean 'read_file'"):
        parse_rule("raed_file:x")
    with pytest.raises(ConfigurationError, match="--yes"):
        parse_rule("*")
    assert parse_rule("crm.note", ["crm.note"]).tool == "crm.note"


# -- grants and questions -----------------------------------------------------------------------------------


def test_always_means_this_tool_in_this_very_folder(desk):
    grant = grant_for("write_file", {"filepath": "src/a.py", "content": "x"}, str(desk.root))
    assert grant == Grant("write_file", "src")

    def write(path: str, tool: str = "write_file") -> str:
        args = {**CHANGES[tool], "filepath": path}
        return desk.decide(tool, granted=[list(grant)], **args).verdict

    for path in ("src/a.py", "src/new.py", "./src/../src/b.py"):
        assert write(path) == "allow", path
    for path in ("src/deep/b.py", "README.md", "src/link.py", "docs/c.md", "src/new/x.py"):
        assert write(path) == "ask", path
    assert write("src/a.py", "update_file") == "ask"
    assert grant_for("write_file", {"filepath": "x"}, str(desk.root)) == Grant("write_file", ".")
    assert (
        desk.decide("write_file", granted=[Grant("write_file", ".")], filepath="detent.yaml").verdict == "ask"
    )


def test_always_means_this_exact_command_folder_and_environment(desk):
    call = {"command": "make test", "cwd": "src", "env": {"A": "1"}}
    grant = grant_for("bash", call, str(desk.root))
    assert desk.decide("bash", granted=[grant], **call).verdict == "allow"
    assert desk.decide("bash", granted=[grant], **{**call, "cwd": "./src/"}).verdict == "allow"
    assert desk.decide("bash", granted=[grant], **call, timeout=5).verdict == "allow"
    changes = [
        {"command": "make test "}, {"command": "make  test"}, {"cwd": "."}, {"env": {"A": "2"}}, {"env": {}},
        {"env": {"A": "1", "B": ""}}, {"cwd": "docs"},
    ]  # fmt: skip
    for change in changes:
        assert desk.decide("bash", granted=[grant], **{**call, **change}).verdict == "ask", change
    plain = grant_for("bash", {"command": "ls"}, str(desk.root))
    assert plain == grant_for("bash", {"command": "ls", "cwd": ".", "env": {}}, str(desk.root))


def test_a_grant_holds_no_value_of_the_environment(desk):
    grant = grant_for("bash", {"command": "deploy", "env": {"TOKEN": "hunter2"}}, str(desk.root))
    assert "hunter2" not in str(grant)


@pytest.mark.parametrize(("tool", "args", "expected"), [
    ("write_file", {"filepath": "a.py", "content": "1\n2"}, "Write 'a.py' (2 lines)?"),
    ("write_file", {"filepath": "a.py", "content": "",
    "overwrite": True}, "Write, or replace, 'a.py' (0 lines)?"),
    ("write_file", {"filepath": "a.py", "content": "x\ny\n"}, "Write 'a.py' (2 lines)?"),
    ("update_file", {"filepath": "a", "target": "x\ny", "patch": ""}, "Change 'a': replace 'x\\ny'?"),
    ("bash", {"command": "ls"}, "Run 'ls'?"),
    ("bash", {"command": "ls\nrm", "cwd": "src",
    "env": {"TOKEN": "hunter2"}}, "Run 'ls\\nrm' in 'src', with 'TOKEN' set?"),
    ("read_file", {"filepath": ".env"}, "Read '.env', which may hold secrets?"),
    ("grep", {"pattern": "x", "directory": ".env"}, "Search '.env', which may hold secrets?"),
    ("crm.note", {"text": "hi"}, "Call crm.note with '{\"text\": \"hi\"}'?"),
])  # fmt: skip
def test_a_question_is_one_line(tool, args, expected):
    assert question(tool, args) == expected


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[2J\x1b]0;x\x07",
        "\u202ereversed\u2066",
        "a\r\nYes? y",
        "\u2028",
        "\x9b31m",
        "\ud800",
        "x" * 10_000,
        "\u00a0" * 9,
    ],
)
def test_no_question_obeys_what_a_model_wrote(hostile):
    calls = [
        ("bash", {"command": hostile, "cwd": hostile, "env": {hostile: "x"}}),
        ("write_file", {"filepath": hostile}),
        ("update_file", {"filepath": "a", "target": hostile}),
        ("x", {hostile: hostile}),
    ]
    for tool, args in calls:
        text = question(tool, args)
        assert text.isprintable()
        assert len(text) < 800
        text.encode()


def test_a_workspace_that_is_not_there_breaks_nothing(tmp_path):
    gone = str(tmp_path / "gone")
    for tool, args in CHANGES.items():
        decision = decide(Rules(), tool, args, workspace=gone, kind="effect")
        assert decision.verdict == ("ask" if tool == "bash" else "refuse")
        assert decide(Rules(deny=(tool,)), tool, args, workspace=gone, kind="effect").verdict == "deny"
        grant_for(tool, args, gone)
