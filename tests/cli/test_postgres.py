"""The same commands on a PostgreSQL store."""

import pytest

pytestmark = pytest.mark.postgres


def test_a_run_waits_in_postgresql_and_is_released(
    detent, folder, monkeypatch, postgres_server, postgres_schema
):
    mark = "&" if "?" in postgres_server else "?"
    monkeypatch.setenv("DETENT_STORE", f"{postgres_server}{mark}schema={postgres_schema}")
    assert detent("run", "flow.py", "--id", "r1", "--set", "amount=500").code == 0
    assert not (folder / ".detent").exists()
    assert detent("release", "r1", "yes", "--hold", "approval@4").code == 0
    assert detent("runs", "--json").json["runs"][0]["status"] == "succeeded"
    said = detent("doctor")
    assert said.code == 0, said
    assert "postgres" in said.out
