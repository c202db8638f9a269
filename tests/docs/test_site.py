"""The site is built without a warning, and its reference has every public name."""

from __future__ import annotations

import importlib
import re
from html.parser import HTMLParser
from pathlib import Path

from redis_lock_decorators import errors
from redis_lock_decorators._lua import INCLUDED
from redis_lock_decorators._shared.settings import OPTION_NAMES

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = (ROOT / "tests" / "support" / "public_api.txt").read_text("utf-8")


class Ids(HTMLParser):
    """Collects the anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attrs if name == "id" and value}


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = (site / "reference").rglob("*.html")
    documented = set[str]().union(*(Ids(page).found for page in pages))

    missing = {line.partition("(")[0] for line in PUBLIC.splitlines()} - documented

    assert sorted(missing) == []


def test_every_error_has_its_place(site: Path) -> None:
    places = Ids(site / "reference" / "errors.html").found

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    ours = [kind for kind in kinds if issubclass(kind, errors.LockError)]

    assert len(ours) == 7
    assert {errors._anchor(kind) for kind in ours} <= places


def test_every_script_and_verb_has_its_place(site: Path) -> None:
    scripts = Ids(site / "reference" / "wire-protocol.html").found
    main = importlib.import_module("redis_lock_decorators.cli").main
    verbs = Ids(site / "reference" / "command-line-options.html").found

    assert {verb.replace("_", "-") for verb in INCLUDED} <= scripts
    assert {f"redis-lock-{verb}" for verb in main.commands} <= verbs


def test_every_option_is_in_the_table(site: Path) -> None:
    text = (site / "reference" / "options.html").read_text("utf-8")

    assert [name for name in OPTION_NAMES if f'<span class="pre">{name}</span>' not in text] == []


def test_files_that_pages_name_are_published(site: Path) -> None:
    named = re.compile(
        r'<code class="docutils literal notranslate"><span class="pre">'
        r"((?:docs|examples)/[\w/-]+\.(?:py|json))</span></code>"
    )
    pages = {page.relative_to(site): page.read_text("utf-8") for page in site.rglob("*.html")}

    unlinked = [f"{page}: {name}" for page, text in pages.items() for name in named.findall(text)]

    assert [one for one in unlinked if (ROOT / one.split(": ")[1]).exists()] == []
    assert (site / "_downloads").is_dir()


def test_decisions_that_concepts_name_are_linked(site: Path) -> None:
    pages = [page.read_text("utf-8") for page in (site / "concepts").glob("*.html")]

    assert not [page for page in pages if re.search(r"[( ]0\d{3}[,)]", page)]
    assert any('href="../decisions/0007-' in page for page in pages)


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    loaded = [
        f"{page.relative_to(site)}: {url}"
        for page in site.rglob("*.html")
        for url in re.findall(
            r"<(?:script|img|iframe|link rel=.stylesheet.)[^>]*(?:src|href)=.(https?:[^\"']+)",
            page.read_text("utf-8"),
        )
    ]

    assert loaded == []
