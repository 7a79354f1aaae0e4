"""Hosts in URLs."""

import pytest

from detent.adapters.hosts import host_of, on_this_machine


def test_only_host_and_port_are_named():
    assert host_of("https://user:secret@example.org:8443/v1?key=k") == "example.org:8443"


@pytest.mark.parametrize(
    ("url", "own"),
    [("http://127.0.0.1:1/v1", True), ("http://[::1]:1", True), ("http://localhost", True),
     ("http://example.org", False), ("http://10.0.0.1", False)],
)  # fmt: skip
def test_this_machine_is_known(url, own):
    assert on_this_machine(url) is own
