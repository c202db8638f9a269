"""The source distribution is complete, the wheel is built from it, and both can be published."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import NamedTuple

import pytest

import redis_lock_decorators

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = "redis_lock_decorators"
#: Folders that are left out: of tools, and what a build leaves behind.
IGNORED = (".*", "*.egg-info", "__pycache__", "_build", "build", "dist")
#: Files that setuptools writes into a source distribution.
WRITTEN = {"PKG-INFO", "setup.cfg"}
BUILD = "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"


class Built(NamedTuple):
    """The two archives, and the tree that the first was built from."""

    source: pathlib.Path
    wheel: pathlib.Path
    tree: pathlib.Path


def build(kind: str, tree: pathlib.Path, folder: pathlib.Path) -> None:
    subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(folder)], cwd=tree, check=True, timeout=100
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    pytest.importorskip("setuptools", "77")
    folder = tmp_path_factory.mktemp("built")
    tree = folder / "tree"  # setuptools leaves files where it builds
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*IGNORED))
    build("build_sdist", tree, folder)
    (source,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(source, folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    build("build_wheel", unpacked, folder)
    (wheel,) = folder.glob("*.whl")
    return Built(source, wheel, tree)


def files(folder: pathlib.Path) -> set[str]:
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix() for path in found if not path.parts[0].endswith(".egg-info")}


def test_the_source_distribution_holds_tests_documents_and_examples(built: Built) -> None:
    with tarfile.open(built.source) as packed:
        held = {one.name.partition("/")[2] for one in packed.getmembers() if one.isfile()}

    assert {name for name in held if ".egg-info/" not in name} == files(built.tree) | WRITTEN
    assert {
        "tests/conftest.py",
        "docs/reference/platforms.rst",
        "examples/README.rst",
        "tox.ini",
    } <= held


def test_the_wheel_holds_the_package_alone(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as packed:
        held = {name for name in packed.namelist() if ".dist-info/" not in name}

    assert held == {f"{PACKAGE}/{name}" for name in files(built.tree / PACKAGE)}
    assert f"{PACKAGE}/py.typed" in held


def test_the_names_of_both_have_the_version_of_the_package(built: Built) -> None:
    version = redis_lock_decorators.__version__

    assert built.source.name == f"{PACKAGE}-{version}.tar.gz"
    assert built.wheel.name == f"{PACKAGE}-{version}-py3-none-any.whl"


def test_the_index_can_show_both(built: Built) -> None:
    pytest.importorskip("twine")

    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", built.source, built.wheel],
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 0, done.stdout


def test_the_wheel_has_no_common_mistake(built: Built) -> None:
    pytest.importorskip("check_wheel_contents")

    done = subprocess.run(
        [sys.executable, "-m", "check_wheel_contents", built.wheel],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 0, done.stdout


def test_every_classifier_is_known() -> None:
    known = pytest.importorskip("trove_classifiers").classifiers
    metadata = importlib.metadata.metadata(PACKAGE)

    assert set(metadata.get_all("Classifier") or []) <= known


def test_tox_runs_the_tests_on_every_python_of_the_classifiers() -> None:
    classifiers = importlib.metadata.metadata(PACKAGE).get_all("Classifier") or []
    named = re.findall(r":: 3\.(\d+)$", "\n".join(classifiers), re.MULTILINE)
    listed = re.search(r"py\{([\d,]+)\}", (ROOT / "tox.ini").read_text())

    assert listed
    assert {f"3{minor}" for minor in named} <= set(listed[1].split(","))


def test_every_page_of_the_project_is_an_address_with_tls() -> None:
    pages = importlib.metadata.metadata(PACKAGE).get_all("Project-URL") or []

    assert [page for page in pages if not page.partition(", ")[2].startswith("https://")] == []
