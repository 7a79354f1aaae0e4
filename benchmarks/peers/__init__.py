"""One module per peer, each run in the peers' own environment as ``python -m benchmarks.peers.NAME``."""
