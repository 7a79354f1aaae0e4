"""Side-by-side benchmarks of Detent and its peers; run with ``python -m benchmarks``."""
