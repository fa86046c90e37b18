# SPDX-License-Identifier: MIT
"""The work of mkdocs beside its plugins; mkdocs.yml names this file as a hook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UPWARD = re.compile(r"\[([^]]+)\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)")
HELP = re.compile(r"<!-- help: *(\S*) *-->")


def help_of(command: str) -> str:
    """The output of `mooactor COMMAND --help`."""
    words = [sys.executable, "-m", "mooactor", *command.split(), "--help"]
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run(
        words, capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    ).stdout


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links to sources lead to the repository, if mkdocs.yml knows of one, and are text
    otherwise. A command's help stands where its page wants it."""
    folder = Path(config.docs_dir, page.file.src_path).parent

    def source(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = (folder / target).resolve()
        if path.is_relative_to(Path(config.docs_dir).resolve()):
            return link[0]
        if not config.repo_url:
            return text
        return f"[{text}]({config.repo_url}/blob/main/{path.relative_to(ROOT)})"

    markdown = UPWARD.sub(source, markdown)
    return HELP.sub(lambda found: f"```text\n{help_of(found[1])}```", markdown)
