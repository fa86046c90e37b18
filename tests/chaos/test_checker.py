# SPDX-License-Identifier: MIT
"""The checker of chaos runs accepts what keeps the promises, and nothing else.

`KEPT` is the history of a run in which every promise is kept. `BREAKS` has changes of
it that break one, with the rule that must find each; `EXCUSED` has those that are right
because of a fault. A line of either stands for an event, and begins with the seconds.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.chaos import checker, history
from tests.chaos.checker import check, report
from tests.chaos.client import digest
from tests.chaos.history import Event, History
from tests.chaos.rules import RULES
from tests.conftest import eventually

ROOT = Path(__file__).parents[2]

#: Of an actor A that is killed and restarted, of two under the name "one", B and C, and
#: of two learners of which the second is killed: they are the members 26 and 43.
KEPT = """
0.0 runner born role=runner actor= incarnation=0 pid=1
0.1 driver born role=driver actor= incarnation=0 pid=2
1.0 a.0 born role=a actor=A incarnation=0 pid=10
1.1 driver spawned actor=A name=a owned=true
1.2 driver watching watch=w actor=A
1.3 driver seen watch=w actor=A kind=Started incarnation=0
2.0 driver sent call=echo to=A client=x method=echo argument=7 expect=7 timeout=60
2.1 a.0 ran call=echo method=echo got=7
2.2 a.0 done call=echo value=7
2.3 driver ended call=echo how=value value=7
3.0 driver sent call=tell to=A client=x method=echo argument=8 tell=true
3.1 driver sent call=count to=A client=x method=count timeout=60
3.2 a.0 ran call=tell method=echo got=8
3.3 a.0 done call=tell value=8
3.4 a.0 ran call=count method=count
3.5 a.0 done call=count value=1
3.6 driver ended call=count how=value value=1
4.0 driver sent call=stream to=A client=x method=items items=2 timeout=60
4.1 a.0 ran call=stream method=items
4.2 driver item call=stream n=0 value=0
4.3 driver item call=stream n=1 value=1
4.4 a.0 done call=stream value=null
4.5 driver ended call=stream how=value value=null
5.0 driver sent call=fail to=A client=x method=fail timeout=60
5.1 a.0 ran call=fail method=fail
5.2 driver ended call=fail how=error error=ValueError
5.3 driver sent call=cancel to=A client=x method=nap cancels=true timeout=60
5.4 driver ended call=cancel how=error error=Cancelled
5.5 driver sent call=short to=A client=x method=nap timeout=0.01
5.6 driver ended call=short how=error error=CallTimeout delivered=null
6.0 a.0 made ref=ref value=red
6.1 driver reading read=look ref=ref
6.2 driver read read=look ref=ref how=value value=red
7.0 b.0 born role=b actor=B incarnation=0 pid=20
7.1 driver spawned actor=B name=one owned=true
7.2 driver looking look=first name=one
7.3 driver found look=first name=one actor=B
7.4 b.0 made ref=own value=1
7.5 driver removing actor=B how=stop
7.6 b.0 over
7.7 driver removed actor=B
7.8 c.0 born role=c actor=C incarnation=0 pid=30
7.9 driver spawned actor=C name=one owned=true
8.0 driver looking look=second name=one
8.1 driver found look=second name=one actor=C
8.2 c.0 made ref=another value=1
20.0 l.0 born role=l actor=1a incarnation=0 pid=40
20.05 m.0 born role=m actor=2b incarnation=0 pid=41
20.1 l.0 joining group=g
20.15 m.0 joining group=g
20.2 l.0 joined group=g
20.25 m.0 joined group=g
21.0 l.0 begins group=g op=l1 kind=sum token=1 slot=0
21.05 m.0 begins group=g op=m1 kind=sum token=2 slot=1
21.1 l.0 finished group=g op=l1 how=value got=[1,2] epoch=1 even=true members=[26,43]
21.25 m.0 finished group=g op=m1 how=value got=[1,2] epoch=1 even=true members=[26,43]
21.3 l.0 view group=g epoch=1 members=[26,43]
21.35 m.0 view group=g epoch=1 members=[26,43]
22.0 l.0 begins group=g op=l2 kind=broadcast token=3 slot=0
22.05 m.0 begins group=g op=m2 kind=broadcast token=4 slot=1
22.1 l.0 finished group=g op=l2 how=value got=[4] epoch=1 even=true members=[26,43]
22.25 m.0 finished group=g op=m2 how=value got=[4] epoch=1 even=true members=[26,43]
23.0 l.0 begins group=g op=l3 kind=sum token=5 slot=0
23.05 m.0 begins group=g op=m3 kind=sum token=6 slot=1
24.0 l.0 step group=t model=o version=0 digest=1 received=0 stale=0 healed=0
24.05 m.0 step group=t model=o version=0 digest=1 received=1 stale=0 healed=0
24.1 l.0 adds group=t token=50 at=0 samples=2 exact=false
24.15 m.0 adds group=t token=60 at=9 samples=1 exact=false
24.2 l.0 updates group=t model=o version=0 least=1 total=3 got={"0":50,"9":60}
24.25 m.0 updates group=t model=o version=0 least=1 total=3 got={"0":50,"9":60}
24.3 l.0 step group=t model=o version=1 digest=2 received=0 stale=0 healed=0
24.35 m.0 step group=t model=o version=1 digest=2 received=1 stale=0 healed=0
24.4 l.0 adds group=t token=51 at=1 samples=1 exact=false
24.5 l.0 updates group=t model=o version=1 least=1 total=1 got={"1":51}
24.6 l.0 step group=t model=o version=2 digest=3 received=0 stale=0 healed=0
25.0 runner fault kind=kill target=m pid=41
25.1 l.0 finished group=g op=l3 how=error error=PeerLost epoch=1 text=dead
25.2 l.0 begins group=g op=l4 kind=sum token=7 slot=0
25.3 l.0 finished group=g op=l4 how=value got=[7,0] epoch=2 even=true members=[26]
25.4 l.0 view group=g epoch=2 members=[26]
26.0 l.0 left-group group=g
26.1 l.0 over
50.0 driver sent call=lost to=A client=x method=nap timeout=60
50.1 a.0 ran call=lost method=nap
50.2 driver sent call=again to=A client=y method=count retries=2 timeout=60
50.3 driver sent call=never to=A client=y method=echo argument=9 timeout=60
50.4 runner fault kind=kill target=a pid=10
50.5 driver seen watch=w actor=A kind=Died incarnation=0
50.6 driver ended call=lost how=error error=ActorRestarted delivered=null
50.7 driver ended call=never how=error error=ActorRestarted delivered=false
50.8 a.1 born role=a actor=A incarnation=1 pid=11
50.9 driver seen watch=w actor=A kind=Restarted incarnation=1
51.0 a.1 ran call=again method=count
51.1 a.1 done call=again value=2
51.2 driver ended call=again how=value value=2
99.0 driver sent call=calm to=A client=x method=echo argument=1 expect=1 timeout=60
99.1 a.1 ran call=calm method=echo got=1
99.2 a.1 done call=calm value=1
99.3 driver ended call=calm how=value value=1
99.4 driver removing actor=A how=stop
99.5 a.1 over
99.6 driver seen watch=w actor=A kind=Stopped incarnation=1
99.7 driver unwatched watch=w actor=A
99.8 driver removed actor=A
99.9 driver closing
100.0 c.0 over
100.1 driver over
100.2 runner over
"""

#: A line "- TEXT" drops the event that has this text, "+ EVENT" adds one. "RULE: what"
#: begins a change.
BREAKS = """
ended once: a call never ends
- driver ended call=echo
ended once: a call ends twice
+ 2.4 driver ended call=echo how=value value=7
ended once: a tell has an end
+ 3.35 driver ended call=tell how=value value=8
at most once: a call runs twice in one process
+ 2.15 a.0 ran call=echo method=echo got=7
at most once: a call without retries runs in two processes
+ 50.95 a.1 ran call=lost method=nap
at most once: a call with two retries runs four times
+ 50.35 a.0 ran call=again method=count
+ 51.01 a.1 ran call=again method=count
+ 51.02 a.1 ran call=again method=count
at most once: a call with two retries runs twice in one process
+ 51.01 a.1 ran call=again method=count
at most once: a call runs in another actor
- a.0 ran call=echo
+ 8.2 c.0 ran call=echo method=echo got=7
order: two calls change places
- a.0 ran call=tell
+ 3.45 a.0 ran call=tell method=echo got=8
order: also in the next process
+ 50.95 a.1 ran call=never method=echo got=9
delivered: a call has a value and did not run
- a.0 ran call=echo
delivered: a call has an exception and did not run
- a.0 ran call=fail
delivered: a call that is said not to be delivered has run
+ 50.35 a.0 ran call=never method=echo got=9
delivered: a call that is said not to be delivered runs later
+ 51.5 a.1 ran call=never method=echo got=9
delivered: a call that is said to be delivered never ran
- driver ended call=short
+ 5.6 driver ended call=short how=error error=CallTimeout delivered=true
errors: a call fails though nobody had died
- driver ended call=calm
+ 99.3 driver ended call=calm how=error error=ActorDied delivered=null
errors: a call ends with a bug of ours
- driver ended call=lost
+ 50.6 driver ended call=lost how=error error=InternalError
errors: a call is cancelled by nobody
- driver ended call=echo
+ 2.3 driver ended call=echo how=error error=Cancelled
errors: a call hangs until its long deadline
- driver ended call=echo
+ 62.0 driver ended call=echo how=error error=CallTimeout delivered=null
errors: a method that raises nothing has raised
- driver ended call=echo
+ 2.3 driver ended call=echo how=error error=ValueError
deadlines: a call ends long after its deadline
- driver ended call=short
+ 30.0 driver ended call=short how=error error=CallTimeout delivered=null
tells: a tell gets lost
- a.0 ran call=tell
values: a caller gets another value than was returned
- driver ended call=echo
+ 2.3 driver ended call=echo how=value value=0
values: a method returns a wrong value
- driver ended call=echo
- a.0 done call=echo
+ 2.2 a.0 done call=echo value=0
+ 2.3 driver ended call=echo how=value value=0
values: a method gets a wrong argument
- a.0 ran call=echo
+ 2.1 a.0 ran call=echo method=echo got=0
streams: a stream lacks an item
- driver item call=stream n=1
streams: a stream has an item twice
+ 4.25 driver item call=stream n=0 value=0
streams: a stream has a wrong item
- driver item call=stream n=0
+ 4.2 driver item call=stream n=0 value=5
streams: a stream has an item after its end
- driver item call=stream n=1
+ 4.6 driver item call=stream n=1 value=1
counts: a count is given twice
- driver ended call=again
+ 51.2 driver ended call=again how=value value=1
counts: a count goes back
- driver ended call=again
+ 51.2 driver ended call=again how=value value=0
refs: a Ref has another value
- driver read read=look
+ 6.2 driver read read=look ref=ref how=value value=blue
refs: a Ref is lost though its maker lives
- driver read read=look
+ 6.2 driver read read=look ref=ref how=error error=ActorDied
refs: a Ref is read out of nothing
- a.0 made ref=ref
unique names: two actors have a name at a time
- b.0 made ref=own
- driver removing actor=B
+ 8.15 b.0 made ref=own value=1
+ 8.3 driver removing actor=B how=stop
lookups: a look-up finds nobody though there is a holder
- driver found look=second
+ 8.1 driver found look=second name=one actor=
lookups: a look-up finds one that was gone
- driver found look=second
+ 8.1 driver found look=second name=one actor=B
notices: a death is noticed twice
+ 50.55 driver seen watch=w actor=A kind=Died incarnation=0
notices: a life goes on after its last event
+ 99.65 driver seen watch=w actor=A kind=Started incarnation=1
missing notices: a watcher misses a death
- driver watching
+ 0.9 driver watching watch=w actor=A
- driver seen watch=w actor=A kind=Died
missing notices: a watcher never sees the end
- driver unwatched
false deaths: a process is replaced though nothing had happened
- runner fault kind=kill target=a
false deaths: a silence of its host should have done no harm
- runner fault kind=kill target=a
- a.0 born
+ 1.0 a.0 born role=a actor=A incarnation=0 pid=10 host=far
+ 46.0 runner fault kind=loss target=near until=60.0
+ 46.0 runner fault kind=cut target=far until=48.0
the dead: a process acts after its death was noticed
+ 50.55 a.0 made ref=late value=1
the dead: a process acts after its successor is born
- driver seen watch=w actor=A kind=Died
+ 50.85 a.0 made ref=late value=1
leftovers: a file is left
+ 100.15 runner left text=file
participants: one acts after its end
+ 99.55 a.1 made ref=late value=1
participants: one acts before its birth
+ 0.5 a.0 made ref=early value=1
participants: an incarnation has two processes
+ 1.05 again born role=a actor=A incarnation=0 pid=12
participants: a call was sent by nobody
- driver sent call=echo
one outcome: one has a result, and another an error
- m.0 finished group=g op=m1
+ 21.2 m.0 finished group=g op=m1 how=error error=PeerLost epoch=1 text=dead
one outcome: two have other results
- m.0 finished group=g op=m1
+ 21.2 m.0 finished group=g op=m1 how=value got=[0,2] epoch=1 even=true members=[43]
one outcome: one has a result before it dies, and another an error
+ 24.9 m.0 finished group=g op=m3 how=value got=[5,6] epoch=1 even=true members=[26,43]
one outcome: two say that others were lost
+ 24.9 m.0 finished group=g op=m3 how=error error=PeerLost epoch=1 text=gone
sums: an element differs from others
- m.0 finished group=g op=m1
+ 21.2 m.0 finished group=g op=m1 how=value got=[1,2] epoch=1 even=false members=[26,43]
sums: a contribution counts twice
- m.0 finished group=g op=m1
+ 21.2 m.0 finished group=g op=m1 how=value got=[1,4] epoch=1 even=true members=[26,43]
sums: a result has a part that is given later
- l.0 begins group=g op=l1
+ 21.15 l.0 begins group=g op=l1 kind=sum token=1 slot=0
sums: a member that is no participant is in the sum
- m.0 finished group=g op=m1
+ 21.2 m.0 finished group=g op=m1 how=value got=[1,2] epoch=1 even=true members=[43]
sums: a participant is not in the sum
- l.0 finished group=g op=l4
+ 25.3 l.0 finished group=g op=l4 how=value got=[7,0] epoch=2 even=true members=[26,43]
sums: a member's own part is not in its result
- m.0 finished group=g op=m1
+ 21.2 m.0 finished group=g op=m1 how=value got=[1,0] epoch=1 even=true members=[26]
sums: a sum has a part of a broadcast
- l.0 finished group=g op=l4
+ 25.3 l.0 finished group=g op=l4 how=value got=[7,4] epoch=2 even=true members=[26,43]
sums: a broadcast of nobody
- l.0 finished group=g op=l2
+ 22.1 l.0 finished group=g op=l2 how=value got=[9] epoch=1 even=true members=[26,43]
given once: a contribution of an operation that failed comes again in the next
- l.0 finished group=g op=l4
+ 25.3 l.0 finished group=g op=l4 how=value got=[7,2] epoch=2 even=true members=[26,43]
views: two members know others in one epoch
- m.0 view
+ 21.3 m.0 view group=g epoch=1 members=[43]
views: one who is no member knows the members
- l.0 view group=g epoch=2
+ 25.4 l.0 view group=g epoch=2 members=[43]
views: an operation succeeds outside of the view
+ 24.8 m.0 view group=g epoch=3 members=[26,43]
+ 24.9 m.0 finished group=g op=m3 how=value got=[0,6] epoch=3 even=true members=[43]
group errors: an operation fails though nobody is gone
- runner fault kind=kill target=m
- l.0 left-group
group errors: an operation takes too long
- l.0 finished group=g op=l3
+ 25.1 l.0 finished group=g op=l3 how=error error=CallTimeout text=late
group errors: two disagree
+ 24.9 m.0 gave-up group=g error=ValueError text=disagree
hangs: an operation ends late
- l.0 over
- l.0 finished group=g op=l4
+ 55.0 l.0 finished group=g op=l4 how=value got=[7,0] epoch=2 even=true members=[26]
hangs: an operation never ends
- l.0 finished group=g op=l4
hangs: nobody lets a newcomer in
- l.0 over
+ 26.5 l.0 joining group=t
+ 56.0 l.0 joined group=t
hangs: a round takes too long
- l.0 over
+ 56.0 l.0 step group=t model=o version=3 digest=4 received=0 stale=0 healed=0
one model: two have one version with other parameters
- m.0 step group=t model=o version=1
+ 24.3 m.0 step group=t model=o version=1 digest=7 received=1 stale=0 healed=0
one model: a member has diverged and is healed
- m.0 step group=t model=o version=1
+ 24.3 m.0 step group=t model=o version=1 digest=2 received=1 stale=0 healed=1
updates: two make other updates
- m.0 updates
+ 24.2 m.0 updates group=t model=o version=0 least=1 total=2 got={"0":50}
updates: a contribution is in one update twice
- l.0 updates group=t model=o version=1
+ 24.5 l.0 updates group=t model=o version=1 least=1 total=1 got={"1":102}
updates: a contribution is in two updates
- l.0 updates group=t model=o version=1
+ 24.5 l.0 updates group=t model=o version=1 least=1 total=3 got={"0":50,"1":51}
updates: the samples are not those of the contributions
- l.0 updates group=t model=o version=1
+ 24.5 l.0 updates group=t model=o version=1 least=1 total=2 got={"1":51}
updates: an update has less than the batch
- l.0 updates group=t model=o version=1
+ 24.5 l.0 updates group=t model=o version=1 least=2 total=1 got={"1":51}
updates: an exact batch has too much
- l.0 updates group=t model=o version=1
+ 24.5 l.0 updates group=t model=o version=1 least=0 most=1 total=2 got={"2":52}
+ 24.35 l.0 adds group=t token=52 at=2 samples=2 exact=false
kept contributions: a member's contribution is lost when another dies
+ 24.35 l.0 adds group=t token=52 at=3 samples=1 exact=false
"""

EXCUSED = """
a death whose host vanished: the process may go on there for a while
- runner fault kind=kill target=a
- a.0 born
+ 1.0 a.0 born role=a actor=A incarnation=0 pid=10 host=far
+ 47.0 runner fault kind=cut target=far until=54.0
+ 52.0 a.0 made ref=late value=1
a death on a host that was lost before its first process was born
- c.0 born
- c.0 made
- c.0 over
- driver spawned actor=C
+ 7.9 driver spawned actor=C name=one owned=true host=far
+ 8.05 runner fault kind=cut target=far until=15.0
+ 7.95 driver watching watch=v actor=C
+ 11.0 driver seen watch=v actor=C kind=Died incarnation=0
+ 100.0 driver unwatched watch=v actor=C
two silences with no time to recover between them
- runner fault kind=kill target=a
- a.0 born
+ 1.0 a.0 born role=a actor=A incarnation=0 pid=10 host=far
+ 46.0 runner fault kind=cut target=far until=47.5
+ 48.0 runner fault kind=stop target=agent until=49.0
a silence that is longer where packets get lost
- runner fault kind=kill target=a
- a.0 born
+ 1.0 a.0 born role=a actor=A incarnation=0 pid=10 host=far
+ 46.0 runner fault kind=loss target=far until=60.0
+ 46.0 runner fault kind=cut target=far until=48.0
a result with the part of a member that left in the middle
- m.0 finished group=g op=m1
+ 21.2 m.0 finished group=g op=m1 how=error error=RuntimeError text=left
+ 21.15 driver removing actor=2b how=stop
a member whose connections fail
- l.0 finished group=g op=l3
+ 25.1 l.0 finished group=g op=l3 how=error error=RuntimeError taken_out=true
contributions of a member that gets a newer state
+ 24.35 m.0 adds group=t token=62 at=9 samples=1 exact=false
+ 24.45 m.0 step group=t model=o version=1 digest=2 received=2 stale=1 healed=0
+ 24.5 m.0 adds group=t token=63 at=10 samples=1 exact=false
+ 24.7 m.0 updates group=t model=o version=2 least=1 total=1 got={"10":63}
a step whose sum is not known
+ 24.5 m.0 updates group=t model=o version=1 least=1 total=0 got={}
a call to an actor that was removed
+ 99.81 driver sent call=late to=A client=x method=echo argument=1 timeout=60
+ 99.82 driver ended call=late how=error error=ActorDied delivered=false
a tell that was lost with its actor
+ 50.35 driver sent call=told to=A client=y method=echo argument=1 tell=true
a Ref that is read after its maker died
+ 60.0 driver reading read=late ref=ref
+ 60.1 driver read read=late ref=ref how=error error=ActorDied
a call that ran before it was sent again
+ 50.35 a.0 ran call=again method=count
a call without an end of a caller that was killed
- driver over
- driver ended call=calm
a call that ended its process
- runner fault kind=kill target=a
- driver sent call=lost
- a.0 ran call=lost
+ 50.0 driver sent call=lost to=A client=x method=die timeout=60
+ 50.1 a.0 ran call=lost method=die
a stream that breaks off with its actor
- a.0 ran call=lost
- driver sent call=lost
+ 50.0 driver sent call=lost to=A client=x method=items items=5 timeout=60
+ 50.1 a.0 ran call=lost method=items
+ 50.2 driver item call=lost n=0 value=0
"""


def event(line: str) -> Event:
    t, who, what, *facts = line.split(" ")
    return Event(float(t), who, what, dict(map(fact, facts)))


def fact(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def changes(text: str) -> dict[str, list[str]]:
    """The lines of each change, by its title."""
    found: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        if line[:2] not in ("- ", "+ "):
            found[line] = lines = []
        else:
            lines.append(line)
    return found


def changed(lines: list[str]) -> list[Event]:
    """`KEPT` with a change."""
    kept = KEPT.strip().splitlines()
    for line in lines:
        if line.startswith("+"):
            kept.append(line[2:])
            continue
        (found,) = [one for one in kept if f"{line[2:]} " in f"{one} "]
        kept.remove(found)
    return sorted(map(event, kept), key=lambda one: one.t)


@pytest.mark.parametrize(
    "lines", [[], *changes(EXCUSED).values()], ids=["as it is", *changes(EXCUSED)]
)
def test_a_correct_history_has_no_violation(lines: list[str]) -> None:
    violations = check(changed(lines))
    assert not violations, report(violations)


@pytest.mark.parametrize(
    ("title", "lines"), changes(BREAKS).items(), ids=changes(BREAKS)
)
def test_a_broken_promise_is_found(title: str, lines: list[str]) -> None:
    found = {violation.rule for violation in check(changed(lines))}
    assert title.partition(":")[0] in found, f"the checker found only {found}"


def test_every_rule_is_tested_by_a_history_that_breaks_it() -> None:
    assert {title.partition(":")[0] for title in changes(BREAKS)} == set(RULES)


WRITER = """
import sys
from tests.chaos.history import History
history, n = History(sys.argv[1], "writer"), 0
while True:
    history.note("made", ref=n, value="x" * 200)
    n += 1
"""


def test_a_killed_writer_loses_no_event(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT) as writer:
        path = tmp_path / "writer.history"
        assert eventually(lambda: path.exists() and path.stat().st_size > 100_000)
        writer.send_signal(signal.SIGKILL)
    with open(path, "ab") as file:
        file.write(b'[1.5,"ran",{"call')  # a line that it had no time to finish
    events = history.read(tmp_path)
    assert len(events) > 300
    assert [event.ref for event in events] == list(range(len(events)))


def test_histories_are_merged_in_the_order_of_time(tmp_path: Path) -> None:
    made = [History(str(tmp_path), who) for who in "ab"]
    for n in range(20):
        made[n % 2].note("made", ref=n, value=n)
    for one in made:
        one.close()
    assert [event.ref for event in history.read(tmp_path)] == list(range(20))


def test_the_checker_is_a_command_that_names_the_rule_and_shows_the_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history.write(tmp_path, changed([]))
    assert history.read(tmp_path) == changed([])
    assert checker.main(str(tmp_path)) == 0
    assert "no violation" in capsys.readouterr().out
    history.write(tmp_path, [event("200.0 late left text=socket")])
    assert checker.main(str(tmp_path)) == 1
    text = capsys.readouterr().out
    assert "[leftovers] left behind: socket" in text
    assert " late left text='socket'" in text


def test_arrays_differ_in_their_digests() -> None:
    ones = np.ones(4, np.float32)
    assert digest(ones) == digest(np.ones(4, np.float32))
    others = [np.ones(4), np.ones((2, 2), np.float32), np.ones(3, np.float32), -ones]
    assert len({digest(one) for one in [ones, *others]}) == 5
    assert digest([1, (ones,)]) == [1, [digest(ones)]]
