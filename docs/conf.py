"""The settings of Sphinx: ``make docs`` builds the site, without network access."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import redis_lock_decorators

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from generate import filled  # noqa: E402

project = "redis_lock_decorators"
author = "the redis_lock_decorators authors"
version = release = redis_lock_decorators.__version__
html_title = f"{project} {release}"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
highlight_language = "python"

pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

autodoc_default_options = {"members": True, "member-order": "bysource"}
# The types are in the package, for editors and type checkers; the text has the units.
autodoc_typehints = "none"
autodoc_typehints_format = "fully-qualified"
python_maximum_signature_line_length = 88
napoleon_use_ivar = True
napoleon_use_rtype = False

# The prompt and the output of a session are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

#: The pages that show what is at the root of the repository, or a section of the README.
PAGES = {
    "CHANGELOG.rst": "/reference/changelog",
    "CONTRIBUTING.rst": "/reference/contributing",
    "SECURITY.rst": "/reference/security",
    "Clients": "/reference/clients",
    "Events and metrics": "/reference/events",
    "Lock names": "/reference/lock-names",
    "Transactions and results": "/reference/transactions-and-results",
    "Who holds a lock": "/reference/owner-info",
    "docs/decisions": "/decisions/README",
    "docs/how-to/": "/how-to/index",
    "examples/": "/how-to/examples",
}
#: The numbers of decisions: "(0028, 0134)".
DECISION = re.compile(r"(?<=[ (])0\d{3}(?=[,)])")


def linked(text: str) -> str:
    """The text of a page with links for the files and sections that it names.

    A file is named as a literal, so that it can be read on its own: in a terminal, or on PyPI.
    A file that is no page is published with the site.
    """

    def link(found: re.Match[str]) -> str:
        page = PAGES.get(found[1]) or "/" + found[1].removeprefix("docs/").removesuffix(".rst")
        exists = (HERE / f"{page[1:]}.rst").exists()
        return f":doc:`{page}`" if exists else found[0]

    def download(found: re.Match[str]) -> str:
        exists = (HERE.parent / found[1]).is_file()
        return f":download:`{found[1]} </../{found[1]}>`" if exists else found[0]

    text = re.sub(
        r"``((?:docs/[\w/-]+|[A-Z]+)\.rst|docs/decisions|docs/how-to/|examples/)``", link, text
    )
    text = re.sub(r"``((?:docs|examples)/[\w/-]+\.(?:py|json))``", download, text)
    text = re.sub(r"(?<!`)`([A-Z][\w ]+)`_(?!_)", link, text)
    return re.sub(r"`(\d{4}) <(\d{4}-[\w-]+)\.rst>`_", r":doc:`\1 </decisions/\2>`", text)


def decided(text: str) -> str:
    """The text of a page with links for the numbers of decisions."""

    def link(found: re.Match[str]) -> str:
        pages = [path.stem for path in HERE.glob(f"decisions/{found[0]}-*.rst")]
        return f":doc:`{found[0]} </decisions/{pages[0]}>`" if pages else found[0]

    return DECISION.sub(link, text)


def _link_page(app: object, page: str, content: list[str]) -> None:
    # Their index links to the decisions; in the sidebar they would hide all other pages.
    orphan = ":orphan:\n\n" if page.startswith("decisions/0") else ""
    text = decided(content[0]) if page.startswith("concepts/") else content[0]
    content[0] = orphan + filled(linked(text))


def _link_included(app: object, path: Path, page: str, content: list[str]) -> None:
    content[0] = linked(content[0])


def _signature(
    app: object, what: str, name: str, thing: Any, options: object, shown: str | None, rest: object
) -> tuple[str, str] | None:
    """No signature for errors, which programs only catch."""
    return ("", "") if shown and what == "exception" else None


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _link_page)
    app.connect("include-read", _link_included)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
