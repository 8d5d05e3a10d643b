"""The coordination domain, PURE: no await, clock, randomness, I/O or logging. Rules: docs/coordination.md."""
