"""The pages of the documentation: their blocks of code, links, headings, and what is said of a block before it."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A comment before a block says that it is not run, and why. What is not run is read: its flags, routes and paths.
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
REASONS = ("docker", "GPU", "root, systemd", "builds for minutes", "python package torch",
           "python package ultralytics", "python package lightgbm", "python package tensorflow", "python package jax")


@dataclasses.dataclass
class Block:
    page: str
    line: int  # of its first line in the page, from 1
    language: str
    text: str
    not_run: str = ""  # the reason

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages():
    """The paths that this test is about, from the root of the tree."""
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page):
    """The fenced blocks of a page, in order. A fence may be indented, as in a list."""
    found, said, lines = [], "", read(page).split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        fence = re.match(r"( *)```(\w*)\s*$", line)
        if fence is None:
            comment = NOT_RUN.search(line)
            said = comment[1] if comment else said if not line.strip() else ""
            number += 1
            continue
        end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == "```")
        text = "\n".join(one.removeprefix(fence[1]) for one in lines[number + 1:end])
        found.append(Block(page, number + 2, fence[2], text, said))
        said = ""
        number = end + 1
    return found


def prose(page):
    """The page without its blocks; lines keep their numbers."""
    out, fenced = [], False
    for line in read(page).split("\n"):
        if line.strip().startswith("```"):
            fenced = not fenced
            out.append("")
        else:
            out.append("" if fenced else line)
    return out


def anchors(page):
    """What GitHub and mkdocs make of the headings."""
    found, counts = set(), {}
    for line in prose(page):
        heading = re.match(r"#+ +(.*)", line)
        if heading is None:
            continue
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        count = counts.get(slug, 0)
        counts[slug] = count + 1
        found.add(slug if count == 0 else f"{slug}-{count}")
    return found
