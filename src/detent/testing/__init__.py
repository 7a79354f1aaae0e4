"""Stand-ins and tests that ship: a hand-turned clock, a world whose events can be counted, crashes on demand.

`clock` and `world` replace what a test cannot wait for or look into; `store_suite` is what every store must
pass; `crash` ends or stops the process at a chosen commit or effect; `torture` kills worker processes
hundreds of times and checks that nobody can tell from the results.
"""
