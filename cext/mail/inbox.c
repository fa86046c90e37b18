/* SPDX-License-Identifier: MIT */
/*
 * inbox.c: one process's inbox, from its opening to its end.
 *
 * Python code calls the inbox. Between any two of its instructions a signal
 * handler may interrupt it, and leave it by an exception, a finalizer may enter
 * again from the same thread, and another thread may overtake it. So all state
 * between two calls is in the inbox. letters.c says what holds of the letters
 * in it, turns.c what holds of the threads that wait for them.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mail/internal.h"

/* ---- forks ----
 *
 * A child of the process that opened an inbox has a copy of its memory and its
 * descriptors. Its locks may be held for ever by threads that were not copied,
 * and the descriptors are the parent's: a byte written to one wakes the parent
 * up, a message sent to a socket is the parent's message. So every public
 * function of this folder does nothing in such a process, and a wait ends at
 * once with MOO_SHUT. Nothing is freed there either. libc tells us of each
 * fork, so any code may call it. */
static atomic_uint forks;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

int mooi_inbox_is_ours(const moo_inbox *inbox)
{
    return inbox->forks == atomic_load_explicit(&forks, memory_order_relaxed);
}

/* ---- waking those that wait ---- */

void mooi_wake_poller(moo_inbox *inbox)
{
    uint64_t one = 1;

    if (inbox->polling && write(inbox->watched[1], &one, sizeof one) < 0)
        return; /* full: it wakes all the same */
}

static void futex_wake(uint32_t *word)
{
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void moo_turn_wake(moo_turn *public)
{
    futex_wake(&((struct mooi_turn *)public)->word);
}

/* Invariant 1 of turns.c: if no thread leads, wake the one that slept longest.
 * An event loop sees new messages by itself, but not letters in the list, nor
 * messages that a leader left in the socket: those make nothing readable any
 * more. */
void mooi_pass_on(moo_inbox *inbox)
{
    uint64_t one = 1;

    if (inbox->leader)
        return;
    if (inbox->first)
        futex_wake(&inbox->first->word);
    if ((inbox->head || !inbox->drained) && inbox->loops &&
        write(inbox->loops_fd, &one, sizeof one) < 0)
        return; /* full: it is readable all the same */
}

void mooi_wake_sleepers(moo_inbox *inbox)
{
    for (struct mooi_turn *turn = inbox->first; turn; turn = turn->next)
        futex_wake(&turn->word);
}

/* ---- its life ---- */

moo_err moo_inbox_open(uintptr_t socket, const int *others, int count,
                       uintptr_t signalled, moo_inbox **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    moo_inbox *inbox;
    size_t bytes = sizeof(int);
    int wake;

    pthread_once(&once, watch_forks);
    if (count < 0 || count > 2)
        return MOO_EINVAL;
    inbox = calloc(1, sizeof *inbox);
    if (!inbox)
        return MOO_ENOMEM;
    inbox->socket = (void *)socket;
    inbox->forks = atomic_load(&forks);
    inbox->holds = 1;
    inbox->signalled = (pthread_t)signalled;
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    inbox->loops_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0 || inbox->loops_fd < 0 ||
        mooi_zmq.getsockopt(inbox->socket, MOOI_ZMQ_FD, &inbox->watched[0],
                            &bytes)) {
        int why = errno;
        if (wake >= 0)
            close(wake);
        if (inbox->loops_fd >= 0)
            close(inbox->loops_fd);
        free(inbox);
        errno = why;
        return MOO_ESYS;
    }
    inbox->watched[1] = wake;
    for (int i = 0; i < count; i++)
        inbox->watched[2 + i] = others[i];
    inbox->count = 2 + count;
    pthread_mutex_init(&inbox->lock, NULL);
    pthread_mutex_init(&inbox->sending, NULL);
    pthread_cond_init(&inbox->left, NULL);
    *out = inbox;
    return MOO_OK;
}

void moo_inbox_wake(moo_inbox *inbox)
{
    if (!mooi_inbox_is_ours(inbox))
        return;
    pthread_mutex_lock(&inbox->lock);
    inbox->wakes++;
    mooi_wake_poller(inbox);
    pthread_mutex_unlock(&inbox->lock);
}

moo_err moo_inbox_put(moo_inbox *inbox, const char *data, size_t bytes)
{
    struct mooi_letter *letter;
    moo_err err = MOO_ECLOSED;

    if (!mooi_inbox_is_ours(inbox))
        return err;
    letter = mooi_letter_of(data, bytes);
    if (!letter)
        return MOO_ENOMEM;
    pthread_mutex_lock(&inbox->lock);
    if (!inbox->closed) {
        mooi_append(inbox, letter);
        letter = NULL;
        err = MOO_OK;
        mooi_wake_poller(inbox);
        mooi_pass_on(inbox);
    }
    pthread_mutex_unlock(&inbox->lock);
    mooi_free_letters(letter);
    return err;
}

int moo_inbox_settled(moo_inbox *inbox)
{
    struct pollfd polled[4];
    struct mooi_turn *turn;
    int settled;

    if (!mooi_inbox_is_ours(inbox))
        return 1;
    pthread_mutex_lock(&inbox->lock);
    for (int i = 0; i < inbox->count; i++)
        polled[i] = (struct pollfd){inbox->watched[i], POLLIN, 0};
    settled = !inbox->polling ||
              (!inbox->head && !poll(polled, (nfds_t)inbox->count, 0));
    for (turn = inbox->first; turn; turn = turn->next)
        settled &= !__atomic_load_n(&turn->word, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&inbox->lock);
    return settled;
}

const uint64_t *moo_inbox_taken(const moo_inbox *inbox)
{
    return (const uint64_t *)&inbox->taken;
}

int moo_inbox_led(moo_inbox *inbox)
{
    return atomic_load_explicit(&inbox->leader, memory_order_relaxed) != NULL;
}

int moo_inbox_loops(moo_inbox *inbox, int change)
{
    if (!mooi_inbox_is_ours(inbox))
        return inbox->loops_fd;
    pthread_mutex_lock(&inbox->lock);
    inbox->loops += change;
    pthread_mutex_unlock(&inbox->lock);
    return inbox->loops_fd;
}

void moo_inbox_close(moo_inbox *inbox)
{
    if (!mooi_inbox_is_ours(inbox))
        return;
    pthread_mutex_lock(&inbox->lock);
    if (inbox->closed) {
        pthread_mutex_unlock(&inbox->lock);
        return;
    }
    inbox->closed = 1;
    mooi_wake_poller(inbox);
    mooi_wake_sleepers(inbox);
    while (inbox->polling)
        pthread_cond_wait(&inbox->left, &inbox->lock);
    mooi_drop_letters(inbox);
    inbox->socket = NULL;
    close(inbox->watched[1]);
    close(inbox->loops_fd);
    inbox->loops = 0;
    pthread_mutex_unlock(&inbox->lock);
}

void moo_inbox_free(moo_inbox *inbox)
{
    if (!mooi_inbox_is_ours(inbox) || atomic_fetch_sub(&inbox->holds, 1) > 1)
        return; /* an outbox is still there */
    moo_inbox_close(inbox);
    mooi_free_letters(inbox->popped);
    pthread_mutex_destroy(&inbox->lock);
    pthread_mutex_destroy(&inbox->sending);
    pthread_cond_destroy(&inbox->left);
    free(inbox);
}
