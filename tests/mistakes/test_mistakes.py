"""The message for each mistake of a user says what is wrong, why, and what would work."""

import pathlib
import re

import pytest

import command_line
import model_files
import over_http
import python_package
import settings
import tools

TABLES = {"command line": command_line, "files": model_files, "settings": settings, "HTTP": over_http,
          "Python": python_package, "tools": tools}
ALL = [pytest.param(mistake, id=f"{table}: {mistake.name}") for table, module in TABLES.items() for mistake in module.MISTAKES]
# Phrases that are hard to read for users with another first language than English.
PHRASES = [line.partition(" -> ") for line in
           (pathlib.Path(__file__).resolve().parents[2] / "tools/phrases.txt").read_text().splitlines()
           if line and not line.startswith("#")]


@pytest.mark.parametrize("mistake", ALL)
def test_the_message_says_what_and_why_and_what_works(mistake, workshop):
    said = mistake.make(workshop).replace(str(workshop.folder), "")
    for part in ("what", "why", "works"):
        assert re.search(getattr(mistake, part), said, re.DOTALL), f"it does not say {part}:\n{said}"
    last = re.split(r"\n`chairlift [\w ]*--help` lists", said)[0].splitlines()[-1]
    for phrase, _, instead in PHRASES:
        found = re.search(phrase, last, 0 if re.search("[A-Z]", phrase) else re.IGNORECASE)
        assert not found, f"{found.group()!r} (write: {instead}):\n{last}"


def test_there_are_a_hundred():
    assert len(ALL) >= 100
