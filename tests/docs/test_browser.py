"""A browser opens every page of the site, without a network: links, search, narrow, wide, dark.

It needs Playwright's Python package and Chromium: that of the system, or of ``CHROMIUM``.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("Chromium is not installed", allow_module_level=True)

#: The pages that are looked at in every size and scheme.
SHOWN = (
    "index",
    "tutorial/1-first-lock",
    "how-to/testing",
    "reference/options",
    "reference/errors",
)
WIDTHS = {"phone": 390, "desktop": 1400}
#: All links and anchors of a page, as the browser has resolved them.
READ = """() => ({
    links: [...document.querySelectorAll('a[href]')].map(link => link.href),
    ids: [...document.querySelectorAll('[id]')].map(one => one.id),
})"""
#: Sphinx's search looks for anchors by a selector, in which it does not escape dots.
KNOWN = "Anchored content block not found"
#: How far the page is wider than the window, and the contrast of its text.
MEASURE = """() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(n => n / 255).map(
            n => n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    }
    const text = light(getComputedStyle(document.querySelector('article p')).color)
    const paper = light(getComputedStyle(document.body).backgroundColor)
    return {
        wider: document.documentElement.scrollWidth - window.innerWidth,
        paper: paper,
        contrast: (Math.max(text, paper) + 0.05) / (Math.min(text, paper) + 0.05),
    }
}"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    """Opens windows that can only reach the site; nothing may fail in them."""
    problems: list[str] = []
    contexts = []

    def route(one: Any) -> None:
        if one.request.url.startswith(address):
            one.continue_()
        else:
            problems.append(f"asks for {one.request.url}")
            one.abort()

    def open_window(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        context.route("**/*", route)
        window = context.new_page()
        window.on("pageerror", lambda error: problems.append(f"{window.url}: {error}"))
        window.on(
            "console",
            lambda message: (
                message.type in ("error", "warning")
                and KNOWN not in message.text
                and problems.append(f"{window.url}: {message.text}")
            ),
        )
        return window

    yield open_window
    for context in contexts:
        context.close()
    assert problems == []


def test_every_link_leads_to_a_place(opened: Any, site: Path, address: str) -> None:
    window = opened()
    places: set[str] = set()
    links: dict[str, str] = {}
    for page in sorted(site.rglob("*.html")):
        window.goto(address + page.relative_to(site).as_posix())
        url = window.url
        found = window.evaluate(READ)
        places |= {url, f"{url}#", *(f"{url}#{one}" for one in found["ids"])}
        links |= {link: url for link in found["links"] if link.startswith(address)}

    files = {address + path.relative_to(site).as_posix() for path in site.rglob("*.*")}
    dead = {link: page for link, page in links.items() if link not in places | files | {address}}

    assert len(links) > 1000
    assert dead == {}


@pytest.mark.parametrize("word", ["acquire_time", "LockLostError", "Sentinel"])
def test_search_finds_a_word(opened: Any, address: str, word: str) -> None:
    window = opened()
    window.goto(f"{address}index.html")
    window.fill("input.sidebar-search", word)
    window.press("input.sidebar-search", "Enter")
    window.wait_for_selector("ul.search li a")

    window.click("ul.search li a")
    window.wait_for_url("**/*.html*")

    assert word.lower() in window.inner_text("article").lower()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
def test_page_fits_and_is_readable(opened: Any, address: str, device: str, scheme: str) -> None:
    window = opened(viewport={"width": WIDTHS[device], "height": 900}, color_scheme=scheme)
    for name in SHOWN:
        window.goto(f"{address}{name}.html")
        seen = window.evaluate(MEASURE)

        assert seen["wider"] <= 0, name
        assert seen["contrast"] >= 7, name
        assert (seen["paper"] > 0.5) == (scheme == "light"), name


def test_menu_of_a_phone_leads_to_the_reference(opened: Any, address: str) -> None:
    window = opened(viewport={"width": 390, "height": 900})
    window.goto(f"{address}index.html")

    window.click("label.nav-overlay-icon")
    window.click(".sidebar-tree a:text-is('Reference')")

    assert window.url == f"{address}reference/index.html"
