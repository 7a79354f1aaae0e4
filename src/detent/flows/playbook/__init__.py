"""Runs a procedure written as a folder of Markdown files, one file per step.

Each file says what to do, which functions it may use and which steps may follow. `flow.playbook_flow` makes a
checked `Flow` of a folder; `checking.check_playbook` lists everything that is wrong with one.
"""
