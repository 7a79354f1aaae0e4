"""What a check's command runs."""

from __future__ import annotations

import pytest

from detent.flows.coding.check_parts import parts_of

RUN = [
    ("Makefile", "make test"), ("sub/Makefile", "make -C sub test"), ("Makefile", "CI=1 make test"),
    ("Makefile", "(make test)"), ("Makefile", "cd . && make test;"), ("Makefile", "sh -c 'make test'"),
    ("GNUmakefile", "make test"), ("rules.mk", "make test"), ("build.make", "make -f build.make test"),
    ("build.make", "make --file=build.make test"), ("Makefile", "test -e Makefile && make"),
    ("package.json", "npm test"), (".npmrc", "npm test"), ("pyproject.toml", "python -m pytest -q"),
    ("sitecustomize.py", "pytest"), ("pytest.py", "python -m pytest"),
    ("checks/all.py", "python3 -m checks.all"), ("unittest/__main__.py", "python -m unittest"),
    ("Cargo.toml", "cargo test"), ("check.sh", "./check.sh"), ("ci/check.sh", "bash ci/check.sh --fast"),
    ("check.sh", "./check.sh; exit $?"), ("check.sh", "./check.sh&&true"),
    ("check.sh", "bash -c './check.sh --fast'"), ("check.sh", "$PWD/check.sh"),
    ("check.sh", '"$(pwd)"/check.sh'), ("check.sh", "/home/me/project/check.sh"),
    ("check.sh", "sh<check.sh"), ("check.sh", "! ./check.sh"), ("sub/check.sh", "cd sub && ./check.sh"),
    ("check.py", "python3 check.py | tee log"), ("check.py", "true\npython3 check.py"),
    ("verify", "sh verify"), ("tests/a.py", "make 'test"), ("check.sh", "./check.sh 'it"),
    ("tests/a.py", "true"),
]  # fmt: skip
NOT_RUN = [
    ("Makefile", "pytest -q"), ("package.json", "make test"), ("pyproject.toml", "make test"),
    ("rules.mk", "npm test"), ("other.sh", "./check.sh"), ("sub/check.sh", "./check.sh"),
    ("src/a.py", "make test"), ("all.py", "python3 -m checks.all"), ("report.md", "test -s report.md"),
    ("report.md", "grep -q done report.md"), ("a.txt", "make && test -e a.txt"),
    ("a.txt", "[ -e a.txt ] || exit 1"), ("check.sh", "/other/mycheck.sh"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "check"), RUN)
def test_what_a_check_runs_is_a_part_of_it(path: str, check: str):
    assert parts_of(check).has(path)


@pytest.mark.parametrize(("path", "check"), NOT_RUN)
def test_another_file_is_none(path: str, check: str):
    assert not parts_of(check).has(path)
