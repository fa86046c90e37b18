# SPDX-License-Identifier: MIT
"""The smallest program: a class, a process for it, calls in every form.

Run it: `python examples/hello.py`
"""

import asyncio
import os

import mooactor as moo
from mooactor import actor, method


@actor
class Greeter:
    """An ordinary class: `Greeter("Hello").greet("you")` works without a runtime."""

    def __init__(self, greeting: str) -> None:
        self.greeting = greeting
        self.served = 0

    @method
    def greet(self, name: str) -> str:
        self.served += 1
        return f"{self.greeting}, {name}!"

    def process(self) -> int:
        return os.getpid()

    async def count(self) -> int:
        return self.served


def main() -> None:
    assert Greeter("Hello").greet("unit test") == "Hello, unit test!"

    with moo.init():
        greeter = moo.spawn(Greeter, "Hello")  # a process of its own
        print(greeter.greet("world"))  # a plain call waits for the value

        ref = greeter.greet.remote("later")  # this one does not
        print("meanwhile here; then:", ref.get(timeout=5))

        print(f"{asyncio.run(greeter.count())} greetings served")  # async: awaitable
        greeter.greet.tell("whoever")  # one way: no answer, no error
        print("in another process:", greeter.process() != os.getpid())

        try:
            greeter.greet.remote(3, 4)  # type: ignore[arg-type, call-arg]
        except TypeError as error:
            print("refused before it was sent:", error)


if __name__ == "__main__":
    main()
