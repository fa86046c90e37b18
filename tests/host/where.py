# SPDX-License-Identifier: MIT
"""`Where`: an actor class of the tests over several hosts."""

import os
import threading

import numpy as np

import mooactor as moo


class Where:
    """Says where it is, and remembers."""

    def __init__(self, value=0):
        self.value = value

    def pid(self):
        return os.getpid()

    def host(self):
        return os.environ["MOOACTOR_HOST_ID"]

    def add(self, amount):
        self.value += amount
        return self.value

    def say(self, text):
        print(text)

    def ask(self, other):
        return other.host()

    def echo(self, value):
        return value

    def keep(self):
        return moo.put(np.ones(1_000_000))

    def sleep(self, seconds):
        """A call that takes so long, unless its process is killed before."""
        threading.Event().wait(seconds)


def on(host, **options):
    return moo.on(Where, host=host, **options)
