"""The law: what may happen, with no clock, disk, network or event loop.

Belongs here: tables, entries, folds, budgets, policies, errors. Does not belong here: anything that waits,
locks, reads a file or talks to somebody.
"""
