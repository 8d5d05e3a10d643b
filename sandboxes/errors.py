"""What can go wrong with a sandbox, and what the caller should do.

SandboxError
├── EngineUnreachable   no engine answers: tell the user, try later
├── ImageMissing        the image is not there: tell the user which, and how to get it
├── SandboxRefused      the engine said no to this spec: tell the user why; trying again does not help
└── SandboxGone         the container ended or was removed under us: the turn failed, start another
"""


class SandboxError(Exception):
    """Base of this package's errors. The message says what failed, on what, and what to do next."""


class EngineUnreachable(SandboxError):
    pass


class ImageMissing(SandboxError):
    pass


class SandboxRefused(SandboxError):
    pass


class SandboxGone(SandboxError):
    pass
