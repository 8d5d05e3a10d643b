"""Compares the answers in $MASSGEND_CONTEXT_FILE and prints the best one: `LABEL REASON`. Ties: the first label."""

import json
import os
from pathlib import Path

from check_site import inspect


def weigh(folder):
    """Points, and why: sound pages first, then what visitors get from them."""
    faults = inspect(folder)
    pages = sorted(folder.rglob("*.html"))
    styles = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.css"))
    small, dark = "(max-width" in styles, "prefers-color-scheme" in styles
    points = 2 * len(pages) + 2 * small + 2 * dark - 5 * len(faults)
    said = [f"{len(pages)} page{'s' if len(pages) != 1 else ''}", f"{len(faults)} faults"]
    said += ["fits a phone"] * small + ["has a dark mode"] * dark
    return points, ", ".join(said)


if __name__ == "__main__":
    with open(os.environ["MASSGEND_CONTEXT_FILE"], encoding="utf-8") as file:
        answers = json.load(file)["answers"]
    weighed = [(*weigh(Path(answer["path"])), answer["label"]) for answer in answers]
    points, why, label = max(weighed, key=lambda one: one[0])
    print(label, why)
