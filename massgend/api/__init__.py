"""The control API: HTTP on a unix socket. The only place with FastAPI (`app`); `schemas` is shared with clients."""
