"""What every test of refinements gets: ears, and engines that dispatch."""

from tests.dispatch.conftest import bench, durable, heard, quick

__all__ = ["bench", "durable", "heard", "quick"]
