"""Who performs a step, code or agent, and what counts.

The engine knows handlers only; this room plugs into it through the port `Performer` (`engine/performer.py`).
"""
