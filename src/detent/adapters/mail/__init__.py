"""E-mail: what a message says, where it comes from, how it is answered."""
