"""A sample of each payload, as files: one run on house prices, in the first step of its first stage."""
