# SPDX-License-Identifier: MIT
"""`Failure`: why a command cannot do its work."""


class Failure(Exception):
    """Its text is one sentence and the next step; `code` is the exit code.

    2: the command could not begin, for its arguments or its surroundings.
    1: it began, and did not do what was asked for.
    """

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code
