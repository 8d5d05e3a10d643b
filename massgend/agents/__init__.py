"""Adapters: one module a kind of agent, all behind the protocol in `agent.py`. How to add one: docs/agents.md."""
