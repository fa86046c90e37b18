/* SPDX-License-Identifier: MIT */
/*
 * spin.c: whether to spin for a message before sleeping.
 *
 * On an idle virtual machine, waking a sleeping thread costs up to 25 us, and a
 * short spin halves a round trip. If others want the core, a spin is wrong
 * twice: it takes the core from them, and it uses up this thread's share of
 * it, so that the scheduler pushes the thread aside, for a whole time slice,
 * just when its message comes. A yield counts as use of the share, too
 * (EEVDF).
 *
 * A long yield has given the core to a thread that computes; one to a thread
 * of libzmq takes some microseconds. So the first long yield ends the spin, and
 * if the next spin meets one too, there are no spins for a pause. A single one
 * means little: the machine below a virtual one takes the core away several
 * times a second. The pause doubles each time, and starts anew after a spin
 * without a long yield. The first spin after a pause is short.
 *
 * A call to another host and back takes 100 to 250 us, less what this end does
 * itself. A spin that ends just before the message comes is all cost.
 */
#include <sched.h>

#include "core/clock.h"
#include "mail/internal.h"

#define SPIN_NS 300000u
#define SHORT_SPIN_NS 10000u
#define LONG_YIELD_NS 150000u
#define LONG_WAIT_NS 1000000u
#define FIRST_PAUSE_NS 100000000u
#define LONGEST_PAUSE_NS 3000000000u

static void pause_spinning(struct mooi_spin *spin, uint64_t now)
{
    spin->pause_ns = spin->pause_ns ? 2 * spin->pause_ns : FIRST_PAUSE_NS;
    if (spin->pause_ns > LONGEST_PAUSE_NS)
        spin->pause_ns = LONGEST_PAUSE_NS;
    spin->not_before_ns = now + spin->pause_ns;
    spin->ns = SHORT_SPIN_NS;
}

int mooi_spin(moo_inbox *inbox, uint64_t until_ns, uint64_t *now_ns)
{
    struct mooi_spin *spin = &inbox->spin;
    uint64_t now = *now_ns, before, end;
    int found = 0, contended = 0;

    if (!spin->ns)
        spin->ns = SPIN_NS;
    if (now < spin->not_before_ns)
        return 0;
    end = now + spin->ns < until_ns ? now + spin->ns : until_ns;
    while (!(found = mooi_receive(inbox)) && !contended && now < end) {
        before = now;
        sched_yield();
        now = mooi_now_ns();
        contended = now - before > LONG_YIELD_NS;
    }
    if (!contended)
        spin->pause_ns = 0;
    else if (spin->contended)
        pause_spinning(spin, now);
    spin->contended = contended;
    *now_ns = now;
    return found;
}

void mooi_spin_note(moo_inbox *inbox, uint64_t waited_ns)
{
    struct mooi_spin *spin = &inbox->spin;

    if (waited_ns > LONG_WAIT_NS)
        spin->ns = spin->ns / 2 < SHORT_SPIN_NS ? SHORT_SPIN_NS : spin->ns / 2;
    else if (!spin->pause_ns)
        spin->ns = SPIN_NS;
}
