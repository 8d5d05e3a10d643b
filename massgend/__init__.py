"""The daemon. Who may import whom: docs/ARCHITECTURE.md, enforced by import-linter."""
