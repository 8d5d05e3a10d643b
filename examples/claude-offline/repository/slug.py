"""Names for URLs."""


def slug(title: str) -> str:
    raise NotImplementedError
