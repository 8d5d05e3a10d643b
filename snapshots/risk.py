"""PURE: which paths make programs on the user's side run something later, so that a merge that brings them warns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

_FILES = frozenset(
    (
        ".gitattributes", ".gitmodules", ".envrc", ".mcp.json", ".npmrc", ".pnpmfile.cjs", ".yarnrc.yml",
        ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", ".devcontainer.json",
        ".gitlab-ci.yml", ".travis.yml", ".drone.yml", ".cirrus.yml", ".appveyor.yml", "appveyor.yml",
        ".woodpecker.yml", "Jenkinsfile", "azure-pipelines.yml", "bitbucket-pipelines.yml",
    )
)  # fmt: skip
_FOLDERS = frozenset(
    (
        ".husky", ".githooks", ".vscode", ".idea", ".claude", ".cursor", ".codex", ".gemini", ".devcontainer",
        ".circleci", ".buildkite", ".woodpecker",
    )
)  # fmt: skip
_NESTED = ((".github", "workflows"), (".github", "actions"), (".gitea", "workflows"), (".forgejo", "workflows"))


def runs_code(path: str, *, hooks_folder: str | None = None) -> bool:
    """Does a file at `path` (from the root of the repository) get read by git, a shell, an editor or a CI as orders?

    `hooks_folder`: where the user's git looks for hooks, when that lies inside the repository.
    """
    *folders, name = path.split("/")
    if name in _FILES or not _FOLDERS.isdisjoint(folders):
        return True
    if hooks_folder and path.startswith(hooks_folder.strip("/") + "/"):
        return True
    return any(pair in _NESTED for pair in pairwise(folders))


def risky_paths(paths: Iterable[str], *, hooks_folder: str | None = None) -> list[str]:
    return [path for path in paths if runs_code(path, hooks_folder=hooks_folder)]


def scripts_differ(before: bytes | None, after: bytes) -> bool:
    """Do two versions of a package.json (None: there was none) name different scripts? Unreadable ones do."""
    try:
        return _scripts(before) != _scripts(after)
    except (ValueError, AttributeError):
        return True


def _scripts(package: bytes | None) -> object:
    return (json.loads(package).get("scripts") or {}) if package is not None else {}
