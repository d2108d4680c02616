#!/usr/bin/env python3
"""Checks that Markdown files are in plain English: short sentences, lines and paragraphs, and no phrase of phrases.txt.

Prints sentences of more than 25 words, table cells of more than 20, and paragraphs of more than 5 sentences. Prints
also lines of more than 120 characters outside tables and code, and phrases of tools/phrases.txt.

Exits 1 if a README.md has a long sentence, if more than 5% of another file's sentences are long, or if a phrase is
found. Fenced and indented blocks are skipped. Code within a line counts as one word. A table cell counts as at least
one sentence.
"""

import argparse
import pathlib
import re
import sys

MAX_WORDS, MAX_CELL_WORDS, MAX_SENTENCES, MAX_LINE, MAX_SHARE = 25, 20, 5, 120, 0.05

ABBREVIATION = re.compile(r"(?:\b(?:Fig|Figs|e\.g|i\.e|al|vs|cf|approx)\.|…)$")
BOUNDARY = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'(*_]*[A-Z0-9`\[])")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")


def blocks(lines):
    """Yields (line number, kind, text): kind is 'prose' for a paragraph or list item, 'row' for a line of a table."""
    number, text, fence, code, listed = 0, [], None, False, False

    def paragraph():
        if text:
            yield number, "prose", " ".join(text)
            text.clear()

    for i, line in enumerate(lines, 1):
        stripped = line.strip()
        if fence or stripped.startswith("```"):
            yield from paragraph()
            fence = None if fence and stripped == fence else fence or "```"
        elif not stripped:
            yield from paragraph()
            code = False
        elif line.startswith(" " * (6 if listed else 4)) and (code or not text):
            code = True
        elif stripped.startswith("|"):
            yield from paragraph()
            yield i, "row", stripped
        elif stripped.startswith(("#", "<", "![")):
            yield from paragraph()
            listed = False
        else:
            if ITEM.match(line):
                yield from paragraph()
                listed = True
                stripped = line[ITEM.match(line).end():].strip()
            elif not line.startswith(" ") and not text:
                listed = False
            if not text:
                number = i
            text.append(stripped)
    yield from paragraph()


def plain(text):
    """Returns the text without code and addresses: `code` becomes one word, [text](address) becomes [text]."""
    text = re.sub(r"``.+?``|`[^`]*`", "`code`", text)
    return re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"[\1]", text)


def sentences(text):
    start = 0
    for end in BOUNDARY.finditer(text):
        if not ABBREVIATION.search(text[:end.start()]):
            yield text[start:end.start()]
            start = end.end()
    if text[start:].strip():
        yield text[start:]


def words(sentence):
    return sum(any(c.isalnum() for c in word) for word in sentence.split())


def read_phrases(path, place="docs"):
    """Yields (phrase, pattern, replacement) for "docs" or for "code". phrases.txt describes the format."""
    for line in path.read_text(encoding="utf-8").splitlines():
        only, rest = re.fullmatch(r"(?:(docs|code): )?(.*)", line).groups()
        if line.strip() and not line.startswith("#") and only in (None, place):
            phrase, _, instead = rest.partition("->")
            yield phrase.strip(), re.compile(phrase.strip(), 0 if re.search("[A-Z]", phrase) else re.I), instead.strip()


def check(path, phrases, quiet):
    lines = path.read_text(encoding="utf-8").splitlines()
    count = long = failures = 0

    def report(line, message, fails=False):
        if fails or not quiet:
            print(f"{path}:{line}: {message}")

    for number, kind, text in blocks(lines):
        text = plain(text)
        if kind == "row":
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", text.strip("|"))]
            if all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                continue
            parts = [cell for cell in cells if cell]
            for cell in parts:
                if words(cell) > MAX_CELL_WORDS:
                    report(number, f"cell of {words(cell)} words: {cell}")
        else:
            parts = [text]
            if (n := sum(1 for _ in sentences(text))) > MAX_SENTENCES:
                report(number, f"paragraph of {n} sentences: {text[:60]}…")
        for sentence in (s for part in parts for s in sentences(part)):
            count += 1
            if words(sentence) > MAX_WORDS:
                long += 1
                report(number, f"sentence of {words(sentence)} words: {sentence}", path.name == "README.md")
            for phrase, pattern, instead in phrases:
                if pattern.search(sentence):
                    failures += 1
                    report(number, f"phrase '{phrase}': {sentence}" + (f" (write: {instead})" if instead else ""), True)

    fenced = False
    for number, line in enumerate(lines, 1):
        fenced ^= line.strip().startswith("```")
        if len(line) > MAX_LINE and not fenced and not line.startswith(("|", "    ", "![")):
            report(number, f"line of {len(line)} characters")
    share = long / count if count else 0
    ok = not failures and (not long if path.name == "README.md" else share <= MAX_SHARE)
    if not quiet or not ok:
        print(f"{path}: {count} sentences, {long} long ({share:.1%}), {failures} phrases: {'ok' if ok else 'FAILED'}")
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quiet", action="store_true", help="print only what fails")
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    args = parser.parse_args()
    phrases = list(read_phrases(pathlib.Path(__file__).with_name("phrases.txt")))
    return 0 if all([check(path, phrases, args.quiet) for path in args.files]) else 1


if __name__ == "__main__":
    sys.exit(main())
