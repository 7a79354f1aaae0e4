"""The commands about workflow files: `workflow …`, and `run workflow`."""
