#!/usr/bin/env python3
"""Checks that comments and docstrings in C++, CUDA and Python files have no phrase of phrases.txt.

Prints each sentence with a phrase, and for each top folder how many sentences have more than 25 words (--long: those
too). Exits 1 if a phrase is found, or if more than 5% of all sentences are long.
"""

import argparse
import ast
import collections
import io
import pathlib
import re
import sys
import tokenize

import check_prose

# Matches strings, which may contain `//`, and comments. A quote between digits is a separator, not a string.
CPP = re.compile(
    r'R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"
    r"|//(?P<line>[^\n]*)"
    r"|/\*(?P<block>.*?)\*/",
    re.S,
)
SKIPPED = re.compile(r"\s*(?:NOLINT|namespace\b|clang-format|[A-Z_]+_H_$)")
EXAMPLE = re.compile(r" {2,}|\s*$")  # indented code and tables; between paragraphs
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def cpp_comments(text):
    """Yields (position in `text`, column, whether alone on its line, comment)."""
    for match in CPP.finditer(text):
        comment = match["line"] if match["line"] is not None else match["block"]
        if comment is not None and not SKIPPED.match(comment):
            begin = text.rfind("\n", 0, match.start()) + 1
            yield match.start(), match.start() - begin, not text[begin : match.start()].strip(), comment


def cpp_paragraphs(text):
    """Yields (line, paragraph). Comments on adjacent lines in one column belong together."""
    number, end, column, parts = 0, 0, -1, []
    line, position = 1, 0
    for start, at, alone, comment in cpp_comments(text):
        line += text.count("\n", position, start)
        position = start
        follows = alone and line == end + 1 and at == column
        if parts and (not follows or EXAMPLE.match(comment)):
            yield number, " ".join(parts)
            parts = []
        end, column = line, at
        if not EXAMPLE.match(comment):
            if not parts:
                number = line
            parts.append(comment.strip(" /"))
    if parts:
        yield number, " ".join(parts)


def python_paragraphs(text):
    """Yields (line, paragraph) of comments and docstrings."""
    number, end, parts = 0, 0, []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        if parts and (token.start[0] != end + 1 or token.line[: token.start[1]].strip()):
            yield number, " ".join(parts)
            parts = []
        end = token.start[0]
        if not parts:
            number = end
        parts.append(token.string.strip("# "))
    if parts:
        yield number, " ".join(parts)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            for paragraph in re.split(r"\n\s*\n", docstring):
                if not EXAMPLE.match(paragraph):
                    yield node.body[0].lineno, " ".join(paragraph.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="print the long sentences, too")
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    args = parser.parse_args()
    phrases = list(check_prose.read_phrases(pathlib.Path(__file__).with_name("phrases.txt"), "code"))
    any_phrase = re.compile("|".join(f"(?:{pattern.pattern})" for _, pattern, _ in phrases), re.I)
    count, long, failures = collections.Counter(), collections.Counter(), 0
    for path in args.files:
        folder = "/".join(path.parts[: 2 if path.parts[0] == "src" else 1])
        paragraphs = python_paragraphs if path.suffix == ".py" else cpp_paragraphs
        for line, paragraph in paragraphs(path.read_text(encoding="utf-8")):
            for sentence in check_prose.sentences(check_prose.plain(paragraph)):
                count[folder] += 1
                if check_prose.words(sentence) > check_prose.MAX_WORDS:
                    long[folder] += 1
                    if args.long:
                        print(f"{path}:{line}: sentence of {check_prose.words(sentence)} words: {sentence}")
                if not any_phrase.search(sentence):
                    continue
                for phrase, pattern, instead in phrases:
                    if pattern.search(sentence):
                        failures += 1
                        print(f"{path}:{line}: phrase '{phrase}': {sentence} (write: {instead})")
    share = sum(long.values()) / max(1, sum(count.values()))
    print("comments: long sentences " + ", ".join(f"{f} {long[f] / count[f]:.1%}" for f in sorted(count)))
    print(f"comments: {sum(count.values())} sentences, {share:.1%} long, {failures} phrases")
    return 1 if failures or share > check_prose.MAX_SHARE else 0


if __name__ == "__main__":
    sys.exit(main())
