/* SPDX-License-Identifier: MIT */
/*
 * times.h: the times on which two files, or the two sides of a connection, rely
 * together, in milliseconds, by the promise that they serve. A time that only
 * one file cares about, as a spin or a pause before a retry, stands there.
 */
#ifndef MOOI_TIMES_H
#define MOOI_TIMES_H

#include <stdint.h>

#include "mooactor.h"

#define MOOI_MS ((uint64_t)1000000) /* in nanoseconds */

/*
 * A vanished host is known within 3 s, a cable that is back after one second is
 * no loss: the kernel sends again what was lost after 0.2, 0.6 and 1.4 s.
 */

/* How often a link looks whether the other machine acknowledges. */
#define MOOI_TICK_CONTACT_MS 50
#define MOOI_TICK_BUSY_MS 250
#define MOOI_TICK_IDLE_MS 300
/* A look counts for no more than this: this process may have been stopped. */
#define MOOI_LOOK_MS 500
/* A machine that does not acknowledge for so long is gone. A ping leaves within
 * two ticks of a cut, so the cut is found within 3 s; over slow round trips,
 * with the longest patience, within 5 s. */
#define MOOI_SILENT_MS 1700
_Static_assert(MOOI_SILENT_MS + 3 * MOOI_TICK_IDLE_MS < 3000,
               "a cut is found within 3 s");
/* More of it where the kernel only probes, as it does less and less often. */
#define MOOI_PROBES_MS 800
/* The longest patience, for any round-trip time. */
#define MOOI_SILENT_MOST_MS 3000

/*
 * Contact succeeds through a cut and a stop, and fails with a reason in time.
 */

/* A proof of the key: the other side may hang up after this. It is shorter
 * while other addresses remain to be tried. */
#define MOOI_HANDSHAKE_MS 2000
#define MOOI_HANDSHAKE_SHORT_MS 700
/* Connecting: all addresses, all stripes authenticated. Other parts notice a
 * death, and sooner; so this is longer than a cut cable and a stopped process,
 * one after the other, which are no deaths. */
#define MOOI_CONNECT_MS 6000
_Static_assert(MOO_CONTACT_MS > MOOI_CONNECT_MS, "the owner gives up first");
/* The engine decides within MOOI_CONNECT_MS; this is for a slow machine. */
#define MOOI_AWAIT_MS (MOOI_CONNECT_MS + 2000)
/* The kernel of a machine that had a link before answers within this time, even
 * if the machine is busy, or its cable is back after one second. */
#define MOOI_ANSWER_MS 2000
/* A fabric: the silence that a read bears, and its first contact, which may
 * lose a message that a fabric sends again after four seconds. A dead owner is
 * noticed before, by its link. */
#define MOOI_FABRIC_SILENT_MS 4000
#define MOOI_FABRIC_CONTACT_MS 9000

/*
 * A lost link is mended, or all that waits for it ends. The owner calls, and
 * the importer waits for its call.
 */

/* An importer's patience. An owner that has called before knows the way, so its
 * next call succeeds or fails soon. One whose link was lost calls at once when
 * it knows: a little later than the importer, if its machine was silent. One
 * that hung up may have died. */
#define MOOI_CALL_AGAIN_MS 2500
#define MOOI_UNHEARD_MS 2000
#define MOOI_HUNG_UP_MS 1500
/* An owner whose machine was found silent may not know yet. Waits of successive
 * fetches must not add up: a moment is enough for a call that gets through, but
 * for so long after the loss a call is awaited at least for MOOI_UNHEARD_MS. */
#define MOOI_MOMENT_MS 500
#define MOOI_SUSPECT_MS 5000
/* An owner that has not called within this time of a loss will not: it finds
 * out a little later than the importer, and then connects. */
#define MOOI_FORGOTTEN_MS (MOOI_CONNECT_MS + 6000)
/* After a call that failed, all exports get its error for so long. A caller
 * with several waits in a row gets all their failures within one pause. */
#define MOOI_PAUSE_MS 3000
_Static_assert(MOOI_PAUSE_MS > MOOI_CALL_AGAIN_MS,
               "no importer waits longer for an owner whose call has failed");
/* A peer that hangs up on calls for so long after a loss does not want us. */
#define MOOI_HANGS_UP_MS 3000
_Static_assert(MOOI_HANGS_UP_MS > MOOI_HANDSHAKE_MS,
               "a handshake that was late has ended");

#endif
