"""A Jupyter kernel as a port: cells executed, variables read, expressions evaluated."""
