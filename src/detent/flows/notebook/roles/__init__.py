"""The six roles: handlers, validators, how agents are asked."""
