"""Programs that stand in pages of the documentation."""

import re
from pathlib import Path

FENCE = re.compile(r"^```(\w*)[^\n]*$")


def program(page: Path) -> str:
    """The page's ```python blocks, each on the line where it stands in the page."""
    lines: list[str] = []
    language = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = FENCE.match(line)
        if fence:
            language = "" if language else fence[1] or "text"
        lines.append(line if language == "python" and not fence else "")
    return "\n".join(lines) + "\n" if any(lines) else ""
