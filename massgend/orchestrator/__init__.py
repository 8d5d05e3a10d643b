"""The async shell around the machine: event -> machine -> journal -> effects; one mailbox a run."""
