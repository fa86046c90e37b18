# SPDX-License-Identifier: MIT
"""Mistakes: a type checker must report each marked line, and no other.

Checked, never run: see test_typing.py.
"""

import mooactor as moo
from tests.typing.model import Batch, Learner, Server

batch = Batch([1.0])
h = moo.spawn(Learner, 1e-4)
g = moo.on(Learner).group(8, 1e-4)

moo.spawn(Learner, "fast")  # mistake: constructor argument of a wrong type
moo.spawn(Learner, rate=1e-4)  # mistake: unknown constructor argument
moo.spawn(Server, 3)  # mistake: too many constructor arguments
moo.on(Learner).group(8, "fast")  # mistake: wrong type in a group's constructor
moo.on(Learner, colour="red")  # mistake: unknown placement option
h.step("batch")  # mistake: argument of a wrong type
h.step()  # mistake: missing argument
h.step.remote("batch")  # mistake: argument of a wrong type, in .remote
h.step.remote(batch, factor=2.0)  # mistake: unknown argument, in .remote
h.step.tell()  # mistake: missing argument, in .tell
h.step.options(patience=5)  # mistake: unknown option
h.step.options(num_returns="two")  # mistake: a number of values is a number
h.step.options(num_returns=2).remote("batch")  # mistake: argument of a wrong type
h.learn(batch)  # mistake: unknown method
h.version.remote()  # mistake: a bare method has no .remote; moo.submit has
moo.submit(h.version, 3)  # mistake: too many arguments, in submit
g.call(Learner.step, "batch")  # mistake: wrong type in a group's call
g.call(Learner.learn)  # mistake: unknown method in a group's call
g.call(Server.answer, "why")  # mistake: a method of another class
g.map(Learner.step, ["batch"])  # mistake: items of a wrong type
g.map(Server.answer, ["why"])  # mistake: map of a method of another class
g.map(Learner.step, [batch], width=3)  # mistake: unknown option of map
g[0].step(3)  # mistake: wrong type through an index
text: str = h.step(batch)  # mistake: the result is a float
number: int = moo.get(h.step.remote(batch))  # mistake: the value is a float
moo.child(Learner, "fast")  # mistake: wrong type in a child's constructor
moo.child(Learner).options(restart="sometimes")  # mistake: unknown policy
moo.spawn(moo.Supervisor, [], strategy="all")  # mistake: unknown strategy
moo.spawn(moo.Supervisor, [Learner])  # mistake: a class is no child
