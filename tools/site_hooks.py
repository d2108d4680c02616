"""What mkdocs changes in the pages of docs/: links to other files of the tree, which the site does not have."""

import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"


def on_page_markdown(markdown, page, **_):
    """A link out of docs/ becomes its text and the file's path. A link to a missing file stays, so that it is an error."""
    here = (DOCS / page.file.src_uri).parent

    def link(found):
        label, target = found[1], found[2].split("#")[0]
        if re.match(r"[a-z]+:", target) or not target:
            return found[0]
        path = (here / target).resolve()
        if path.is_relative_to(DOCS) or not path.exists():
            return found[0]
        shown = str(path.relative_to(DOCS.parent))
        name = label.strip("`")
        return f"`{shown}`" if name in shown else f"{label} (`{shown}`)"

    return re.sub(r"(?<!!)\[([^]\n]*)\]\(([^)\s]+)\)", link, markdown)
