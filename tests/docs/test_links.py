"""Every link of every Markdown file leads somewhere, and every path that sources and messages name is there."""

import re
import subprocess

import pytest
from pages import ROOT, anchors, prose

TRACKED = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                         check=True).stdout.split("\n")[:-1]
MARKDOWN = [name for name in TRACKED if name.endswith(".md")]
# Pages that are named in the past tense, or made by a build.
MENTION = re.compile(r"(?<![\w/.-])((?:\.\./)*docs/[\w./-]*\w)")


@pytest.mark.parametrize("page", MARKDOWN)
def test_links_lead_somewhere(page):
    wrong = []
    for number, line in enumerate(prose(page), 1):
        line = re.sub(r"`[^`]*`", "", line) if "](" not in line else line
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"(https?|mailto):", target):
                continue
            path, _, anchor = target.partition("#")
            there = (ROOT / page).parent / path if path else ROOT / page
            if not there.exists():
                wrong.append(f"{page}:{number}: {target}: there is no such file")
            elif anchor and there.suffix == ".md":
                if anchor not in anchors(str(there.resolve().relative_to(ROOT))):
                    wrong.append(f"{page}:{number}: {target}: {path or page} has no such heading")
    assert not wrong, "\n".join(wrong)


WRITTEN = {"docs/images/benchmarks.svg"}  # by `make chart`


def test_paths_that_sources_name_are_there():
    wrong = []
    for name in TRACKED:
        path = ROOT / name
        if path.suffix not in {".cc", ".h", ".cu", ".cuh", ".py", ".pyi", ".cmake", ".txt", ".sh", ".toml", ".csv", ".md",
                               ".yaml", ".yml", ""} or not path.is_file() or name.startswith(("tests/docs/", "tests/mistakes/")):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
            for mention in MENTION.findall(line):
                mention = mention.removeprefix("../" * mention.count("../"))
                if not (ROOT / mention).exists() and name != "CHANGELOG.md" and mention not in WRITTEN:
                    wrong.append(f"{name}:{number}: {mention}")
    assert not wrong, "there is no such page:\n" + "\n".join(wrong)


def test_every_page_opens_with_what_it_is_for_and_an_example():
    wrong = []
    for page in [name for name in MARKDOWN if name.startswith("docs/")]:
        text = (ROOT / page).read_text(encoding="utf-8")
        head = text.split("\n## ")[0]
        purpose = re.match(r"# .+\n\n(?![#`|<!])\S", text)
        if purpose is None:
            wrong.append(f"{page}: does not open with a sentence")
        if "```" not in head:
            wrong.append(f"{page}: has no example before its first section")
    assert not wrong, "\n".join(wrong)
