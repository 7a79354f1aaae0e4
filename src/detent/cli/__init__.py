"""The command line: one module for each group of commands. Whatever is heavy is imported inside them."""
