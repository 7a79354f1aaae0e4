"""From the steps of a file to the steps of a flow, one module for each kind."""
