"""Hook of the documentation site: links to files outside docs/ become their names.

README, examples and the source are read in the repository; the site holds docs/ alone.
"""

import re

OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:README|CONTRIBUTING|CHANGELOG|SECURITY|examples|src|tests|benchmarks)[^)]*\)"
)


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with such links as plain text."""
    return OUTSIDE.sub(r"\1", markdown)
