"""The sandboxes' only way out: one unix socket an agent and turn, owned by the daemon."""
