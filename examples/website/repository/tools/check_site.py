"""Checks a folder's HTML pages: `check_site.py [FOLDER]`. Prints each fault; exit code 1 when there is one."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    """What one page opens, closes and refers to."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.links, self.faults = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        attributes = dict(attrs)
        if tag == "html" and not attributes.get("lang"):
            self.faults.append("<html> names no language")
        if tag == "img" and "alt" not in attributes:
            self.faults.append("an <img> has no alt text")
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes what is not open")


def faults_of(path, folder):
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    faults = page.faults + [f"<{tag}> is never closed" for tag in page.open]
    faults += [f"no <{tag}>" for tag in ("title", "h1") if tag not in page.seen]
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or not parts.path:
            continue
        target = (path.parent / unquote(parts.path)).resolve()
        if folder.resolve() not in target.parents or not target.is_file():
            faults.append(f"{link} leads nowhere")
    return [f"{path.relative_to(folder)}: {fault}" for fault in faults]


def inspect(folder):
    """All faults of a site."""
    if not (folder / "index.html").is_file():
        return ["index.html is missing"]
    return [fault for path in sorted(folder.rglob("*.html")) for fault in faults_of(path, folder)]


if __name__ == "__main__":
    found = inspect(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(found) or "every page is sound")
    sys.exit(1 if found else 0)
