"""Stand-ins and tests that ship: a hand-turned clock, a world whose events can be counted, crashes on demand.

`clock` and `world` replace what a test cannot wait for or inspect; `store_suite` is the suite every store
must pass; `crash` ends or stops the process at a chosen commit or effect; `torture` kills worker processes
hundreds of times and checks that the results do not show it.
"""
