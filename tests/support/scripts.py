"""The set-up scripts as tests use them: run as programs, or loaded as a module where a pure function is looked at."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


def load(name: str) -> ModuleType:
    """A fresh module from the Python script `name`; the interpreter's cache of it stays out of the tree."""
    loader = SourceFileLoader(f"script_{name}", str(SCRIPTS / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


def run(*argv: str | Path, timeout_s: float = 100, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a program with some environment variables changed, or taken away where None is given."""
    wanted = {**os.environ, **environment}
    clean = {name: value for name, value in wanted.items() if value is not None}
    return subprocess.run(argv, env=clean, capture_output=True, text=True, timeout=timeout_s, check=False)


def engine(verb: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, SCRIPTS / "engine", verb, **environment)
