"""Actions on a real repository: odd names, odd states, and undoing only what is one's own."""

from __future__ import annotations

import pytest

ODD = [
    "with space.txt",
    "ünï.txt",
    "new\nline.txt",
    "-dash.txt",
    'quo"te.txt',
    "tab\t.txt",
    ":colon.txt",
    "*.txt",
]


class TestLooking:
    async def test_odd_names_come_through(self, shop):
        shop.repository()
        for name in ODD:
            shop.write(name, "x\n")
        assert (await shop.run("git_status")).output["untracked"] == sorted(ODD)
        done = await shop.run("git_stage", paths=ODD)
        assert done.ok, done.error
        assert done.output["files"] == sorted(ODD)
        diff = (await shop.run("git_diff")).output
        assert sorted(one["path"] for one in diff["files"]) == sorted(ODD)

    async def test_a_name_is_no_pattern(self, shop):
        shop.repository()
        shop.write("*.txt", "x")
        shop.write("other.txt", "x")
        assert (await shop.run("git_stage", paths=["*.txt"])).output["files"] == ["*.txt"]

    async def test_a_repository_without_commits(self, shop):
        shop.git("init", "-q", "-b", "main")
        assert (await shop.run("git_status")).output["clean"]
        assert (await shop.run("git_diff")).output == {"diff": "", "files": [], "truncated": False}
        assert (await shop.run("git_log", base="main")).output == {"commits": []}
        assert (await shop.run("git_check_and_stage")).output == {
            "has_changes": False,
            "files": [],
            "diff": "",
        }
        shop.write("a.txt", "a\n")
        done = await shop.run("git_check_and_stage", "r.a")
        assert done.output["has_changes"], done.error
        assert done.output["files"] == ["a.txt"]
        assert (await shop.run("git_unstage", "r.b")).output["files"] == ["a.txt"]
        assert (await shop.run("git_status")).output["untracked"] == ["a.txt"]
        await shop.run("git_stage", "r.c", paths=["a.txt"])
        done = await shop.run("git_commit", "r.d", message="first")
        assert done.output["files"] == ["a.txt"], done.error
        done = await shop.run("git_uncommit", "r.e", sha=done.output["sha"])
        assert done.output == {"head": None}, done.error
        assert (await shop.run("git_status")).output["staged"] == ["a.txt"]

    async def test_a_detached_head(self, shop):
        shop.repository()
        shop.remote()
        shop.git("checkout", "-q", "--detach")
        assert (await shop.run("git_status")).output["branch"] is None
        assert "detached" in (await shop.run("git_push")).error

    async def test_renames_and_files_that_are_no_text(self, shop):
        shop.repository("old.txt")
        shop.write("old.txt", "line\n" * 20)
        shop.git("commit", "-qam", "more")
        shop.git("mv", "old.txt", "new.txt")
        shop.write("pic.bin", b"\0\1\2")
        shop.git("add", "-A")
        files = (await shop.run("git_diff")).output["files"]
        assert files == [
            {"path": "new.txt", "added": 0, "removed": 0},
            {"path": "pic.bin", "added": None, "removed": None},
        ]
        assert (await shop.run("git_status")).output["staged"] == ["new.txt", "pic.bin"]

    async def test_a_long_diff_is_cut_at_a_line_and_says_so(self, shop):
        shop.repository("a.txt")
        shop.write("a.txt", "some line\n" * 60_000)
        found = (await shop.run("git_diff")).output
        assert found["truncated"]
        assert len(found["diff"]) <= 200_000
        assert found["diff"].endswith("\n")
        assert found["files"] == [{"path": "a.txt", "added": 60_000, "removed": 1}]

    async def test_ahead_and_behind(self, shop):
        shop.repository()
        shop.remote()
        await shop.run("git_push")
        shop.git("commit", "-q", "--allow-empty", "-m", "x")
        found = (await shop.run("git_status")).output
        assert (found["ahead"], found["behind"]) == (1, 0)

    @pytest.mark.parametrize("base", ["nope", "--output=x", "", "HEAD~9"])
    async def test_a_base_that_is_none(self, shop, base):
        shop.repository()
        assert not (await shop.run("git_diff", base=base)).ok
        assert not (await shop.run("git_log", base=base)).ok
        assert not (shop.root / "x").exists()

    async def test_no_repository(self, shop):
        assert "no_repository" in (await shop.run("git_status")).error

    async def test_a_project_below_the_top_of_its_repository(self, shop):
        shop.git("init", "-q", "-b", "main", cwd=shop.folder)
        (shop.folder / ".gitignore").write_text("home/\n")
        shop.write("in.txt", "x")
        (shop.folder / "out.txt").write_text("x")
        assert (await shop.run("git_status")).output["untracked"] == ["in.txt"]
        assert (await shop.run("git_check_and_stage")).output["files"] == ["in.txt"]
        assert not (await shop.run("git_stage", paths=["../out.txt"])).ok

    async def test_what_runs_keep_is_never_part_of_it(self, shop):
        """The store and the state lie in the project."""
        shop.repository()
        shop.write(".detent/detent.db", "x")
        shop.write(".detent/backups/r/y", "x")
        shop.write(".detent/anything", "x")
        shop.write(".detent/workflows/w.yaml", "x")
        done = await shop.run("git_check_and_stage")
        assert done.output["files"] == [".detent/workflows/w.yaml"]

    async def test_variables_that_lead_elsewhere_are_not_heard(self, workshops, tmp_path):
        shop = workshops(environ={"GIT_DIR": str(tmp_path / "nowhere")})
        shop.environ.pop("GIT_DIR")
        shop.repository()
        shop.environ["GIT_DIR"] = str(tmp_path / "nowhere")
        assert (await shop.run("git_status")).ok


class TestStaging:
    async def test_a_deletion_is_staged(self, shop):
        shop.repository("a.txt", "b.txt")
        (shop.root / "a.txt").unlink()
        assert (await shop.run("git_check_and_stage")).output["files"] == ["a.txt"]

    async def test_what_others_had_staged_stays_when_it_is_undone(self, shop):
        shop.repository("a.txt")
        shop.write("theirs.txt", "t")
        shop.git("add", "theirs.txt")
        shop.write("a.txt", "changed\n")
        shop.write("theirs.txt", "changed since")
        done = await shop.run("git_check_and_stage", "r.a")
        assert done.output["files"] == ["a.txt", "theirs.txt"]
        assert (await shop.run("git_unstage", "r.b", paths=["."])).output["files"] == ["a.txt", "theirs.txt"]
        assert shop.git("diff", "--cached", "--name-only") == "theirs.txt"
        assert shop.git("show", ":theirs.txt") == "t"
        assert shop.read("a.txt") == "changed\n"

    async def test_undoing_it_twice_leaves_what_was_staged_by_hand_since(self, shop):
        shop.repository()
        shop.write("a.txt")
        await shop.run("git_stage", "r.a", paths=["a.txt"])
        await shop.run("git_unstage", "r.b")
        shop.git("add", "a.txt")
        assert (await shop.run("git_unstage", "r.c")).output["files"] == []
        assert shop.git("diff", "--cached", "--name-only") == "a.txt"

    async def test_a_path_that_is_not_there(self, shop):
        shop.repository()
        assert "no_file" in (await shop.run("git_stage", paths=["none.txt"])).error


class TestCommitting:
    async def test_nothing_staged(self, shop):
        shop.repository()
        assert "nothing_staged" in (await shop.run("git_commit", message="x")).error
        assert (await shop.run("git_commit", message="x", allow_empty=True)).ok
        assert "invalid" in (await shop.run("git_commit", message=" \n ", allow_empty=True)).error

    async def test_a_message_with_hashes_quotes_and_umlauts_stays(self, shop):
        shop.repository()
        message = 'fix: "ü" $HOME\n\n# no comment\n\n--amend'
        done = await shop.run("git_commit", message=message, allow_empty=True)
        assert shop.git("log", "-1", "--format=%B") == message
        assert done.output["subject"] == 'fix: "ü" $HOME'

    async def test_a_hook_that_refuses_fails_the_step(self, shop):
        shop.repository()
        hook = shop.write(".git/hooks/pre-commit", "#!/bin/sh\necho bad >&2\nexit 1\n")
        hook.chmod(0o755)
        done = await shop.run("git_commit", message="x", allow_empty=True)
        assert "not_committed" in done.error
        assert shop.git("rev-list", "--count", "HEAD") == "1"

    @pytest.mark.parametrize("after", [False, True])
    async def test_one_in_doubt_is_looked_for(self, shop, after):
        """By parent, tree and message: it is made once."""
        shop.repository()
        shop.write("b.txt", "b")
        shop.git("add", "-A")
        done = await shop.crashed("git_commit", "git.commit", after, "r.a", message="feat: b")
        assert done.ok, done.error
        assert done.output == {"sha": shop.git("rev-parse", "HEAD"), "subject": "feat: b", "files": ["b.txt"]}
        assert shop.git("rev-list", "--count", "HEAD") == "2"

    async def test_only_ones_own_last_unpublished_commit_is_undone(self, shop):
        shop.repository()
        theirs = shop.git("rev-parse", "HEAD")
        assert "not_ours" in (await shop.run("git_uncommit", "r.x", sha=theirs)).error
        sha = (await shop.run("git_commit", "r.a", message="mine", allow_empty=True)).output["sha"]
        assert "not_ours" in (await shop.run("git_uncommit", "other", sha=sha)).error
        shop.git("commit", "-q", "--allow-empty", "-m", "on top")
        assert "not_head" in (await shop.run("git_uncommit", "r.b", sha=sha)).error
        shop.git("reset", "-q", "--hard", sha)
        shop.remote()
        await shop.run("git_push", "r.p")
        assert "pushed" in (await shop.run("git_uncommit", "r.c", sha=sha)).error
        assert shop.git("rev-parse", "HEAD") == sha

    async def test_a_whole_run_is_undone_backwards(self, shop):
        """D-69 in small: commit, then stage; the index is what it was."""
        shop.repository("a.txt")
        shop.write("a.txt", "new\n")
        await shop.run("git_check_and_stage", "r.a")
        sha = (await shop.run("git_commit", "r.b", message="x")).output["sha"]
        assert (await shop.run("git_uncommit", "r.c", sha=sha)).ok
        assert (await shop.run("git_unstage", "r.d")).output["files"] == ["a.txt"]
        assert (await shop.run("git_status")).output["unstaged"] == ["a.txt"]
        assert shop.read("a.txt") == "new\n"


class TestPushing:
    async def test_history_elsewhere_is_never_rewritten(self, shop):
        shop.repository()
        shop.remote()
        await shop.run("git_push")
        shop.git("commit", "-q", "--allow-empty", "-m", "theirs")
        await shop.run("git_push")
        theirs = shop.git("rev-parse", "HEAD")
        shop.git("reset", "-q", "--hard", "HEAD~1")
        shop.git("commit", "-q", "--allow-empty", "-m", "ours")
        done = await shop.run("git_push")
        assert "non_fast_forward" in done.error
        assert shop.git("rev-parse", "main", cwd=shop.folder / "origin.git") == theirs

    @pytest.mark.parametrize("after", [False, True])
    async def test_one_in_doubt_is_looked_up_at_the_remote(self, shop, after):
        """2.9: probe by the remote ref."""
        shop.repository()
        bare = shop.remote()
        done = await shop.crashed("git_push", "git.push", after, "r.a")
        assert done.output["sha"] == shop.git("rev-parse", "main", cwd=bare)
        assert done.performed == [("git.push", "probed" if after else "performed")]

    @pytest.mark.parametrize("remote", ["nope", "--upload-pack=x", "ext::sh -c touch% x", ""])
    async def test_only_a_remote_that_has_a_name(self, shop, remote):
        shop.repository()
        shop.remote()
        assert "no_remote" in (await shop.run("git_push", remote=remote)).error
        assert not (shop.root / "x").exists()

    async def test_no_password_gets_into_an_error(self, shop):
        shop.repository()
        shop.git("remote", "add", "origin", "http://user:hunter2@127.0.0.1:9/none.git")
        done = await shop.run("git_push")
        assert not done.ok
        assert "hunter2" not in str(done.entries)

    async def test_an_upstream_that_is_set_stays(self, shop):
        shop.repository()
        shop.remote()
        shop.git("config", "branch.main.remote", "elsewhere")
        await shop.run("git_push")
        assert shop.git("config", "branch.main.remote") == "elsewhere"


class TestBranches:
    async def test_one_that_is_there(self, shop):
        shop.repository()
        shop.git("branch", "topic")
        assert (await shop.run("git_branch", name="topic")).output == {"branch": "topic", "created": False}
        assert shop.git("branch", "--show-current") == "topic"
        assert "exists" in (await shop.run("git_branch", name="topic", exist_ok=False)).error

    async def test_beside_the_current_one_and_from_a_base(self, shop):
        shop.repository()
        first = shop.git("rev-parse", "HEAD")
        shop.git("commit", "-q", "--allow-empty", "-m", "x")
        done = await shop.run("git_branch", name="old", base="HEAD~1", switch=False)
        assert done.output["created"]
        assert shop.git("rev-parse", "old") == first
        assert shop.git("branch", "--show-current") == "main"
        assert "no_base" in (await shop.run("git_branch", name="z", base="nope")).error

    async def test_without_commits(self, shop):
        shop.git("init", "-q", "-b", "main")
        assert (await shop.run("git_branch", name="main")).output == {"branch": "main", "created": False}
        assert (await shop.run("git_branch", name="topic")).output["created"]
        assert shop.git("branch", "--show-current") == "topic"
        assert "no_commits" in (await shop.run("git_branch", name="x", switch=False)).error

    @pytest.mark.parametrize("name", ["-x", "a..b", "", "a b", "HEAD", "x.lock", "@{u}", "--force"])
    async def test_names_that_are_none(self, shop, name):
        shop.repository()
        assert not (await shop.run("git_branch", name=name)).ok

    async def test_changes_in_the_way_leave_everything_as_it_is(self, shop):
        shop.repository("a.txt")
        shop.git("switch", "-qc", "topic")
        shop.write("a.txt", "topic\n")
        shop.git("commit", "-qam", "t")
        shop.git("switch", "-q", "main")
        shop.write("a.txt", "mine\n")
        assert "conflict" in (await shop.run("git_branch", name="topic")).error
        assert (shop.git("branch", "--show-current"), shop.read("a.txt")) == ("main", "mine\n")

    async def test_one_in_doubt_still_says_that_it_was_made(self, shop):
        shop.repository()
        done = await shop.crashed("git_branch", "git.branch", True, "r.a", name="topic")
        assert done.output == {"branch": "topic", "created": True}
