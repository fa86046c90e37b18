/* SPDX-License-Identifier: MIT */
/*
 * inbox.c: received letters, and the threads that wait for them.
 *
 * Threads that wait elect a leader, which polls and receives for all (Schmidt
 * et al.: Leader/Followers, 2000). The others sleep, each on a word of its
 * own, until their result is there or the lead is free. So a reply reaches the
 * waiting thread without a hand-over between threads.
 *
 * Python code calls this. Between any two of its instructions a signal handler
 * may interrupt it, and leave it by an exception, a finalizer may enter again
 * from the same thread, and another thread may overtake it. So all state
 * between two calls is here, in the inbox:
 *
 *  1. A letter is in the list from its receipt until it is reported as
 *     handled. If that does not happen, the next leader handles it (again).
 *  2. If threads sleep, one leads, or one of those has been woken to lead:
 *     every way out of `wait` without the lead, and `leave`, ensures it
 *     (`pass_on`).
 *  3. The lead is kept from one call to the next, so that the leader handles
 *     what it received without a change of threads. But it binds nobody: a
 *     leader that does not return, because its thread runs a long signal
 *     handler or finalizer, is overtaken. A leader that only waits for the GIL
 *     is not: the overtaking thread has looked PATIENCE times, each time
 *     through Python, where the leader would have had its turn.
 *  4. A letter that was handled stays in memory while any turn may be reading
 *     one (`readers`).
 *
 * A turn is one wait of one thread. Its owner's frame holds it as an object
 * whose destructor is `leave`, which Python calls at every exit of the frame.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "mail/internal.h"

#define LOOK_NS 200000000u /* between two looks of a sleeper for the leader */
#define PATIENCE 6         /* it overtakes after so many vain looks */
#define MOST_LETTERS 64    /* received in one go */

struct mooi_letter {
    struct mooi_letter *next;
    uint64_t serial;
    mooi_zmq_msg message;
    int whole;   /* the identity, and at least one part more */
    char *joint; /* NULL, or the parts of a message that had several */
    size_t bytes; /* of `joint` */
};

/* The contents of a moo_turn. */
struct mooi_turn {
    const char *data;
    uint64_t bytes, serial;
    moo_inbox *inbox;
    struct mooi_turn *next, *prev;
    uint64_t seen; /* of `wakes` */
    uint32_t word; /* 0: asleep, or not woken since */
    uint8_t sleeps, reads, looks;
    uint64_t led_at_ns; /* the leader's, at the last look */
};
_Static_assert(sizeof(struct mooi_turn) <= sizeof(moo_turn), "moo_turn");

/* ---- forks ----
 *
 * A child of the process that opened an inbox has a copy of its memory and its
 * descriptors. Its locks may be held for ever by threads that were not copied,
 * and the descriptors are the parent's: a byte written to one wakes the parent
 * up, a message sent to a socket is the parent's message. So every function
 * here and in outbox.c does nothing in such a process, and a wait ends at once
 * with MOO_SHUT. Nothing is freed there either. libc tells us of each fork, so
 * any code may call it. */
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

/* ---- sleeping and waking ---- */

static void futex_wake(uint32_t *word)
{
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* -1, errno EINTR: a signal came. */
static int futex_wait(uint32_t *word, uint64_t ns)
{
    struct timespec limit = {(time_t)(ns / 1000000000u),
                             (long)(ns % 1000000000u)};

    return (int)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL,
                        0);
}

/* The lock is held. Invariant 2: if no thread leads, wake the one that slept
 * longest. An event loop sees new messages by itself, but not letters in the
 * list, nor messages that a leader left in the socket: those make nothing
 * readable any more. */
static void pass_on(moo_inbox *inbox)
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

static void join_sleepers(moo_inbox *inbox, struct mooi_turn *turn)
{
    turn->prev = inbox->last;
    turn->next = NULL;
    *(inbox->last ? &inbox->last->next : &inbox->first) = turn;
    inbox->last = turn;
    turn->sleeps = 1;
}

static void leave_sleepers(moo_inbox *inbox, struct mooi_turn *turn)
{
    if (!turn->sleeps)
        return;
    *(turn->prev ? &turn->prev->next : &inbox->first) = turn->next;
    *(turn->next ? &turn->next->prev : &inbox->last) = turn->prev;
    turn->sleeps = 0;
}

void moo_turn_wake(moo_turn *public)
{
    futex_wake(&((struct mooi_turn *)public)->word);
}

/* The lock is held. */
static void wake_poller(moo_inbox *inbox)
{
    uint64_t one = 1;

    if (inbox->polling && write(inbox->watched[1], &one, sizeof one) < 0)
        return; /* full: it wakes all the same */
}

void moo_inbox_wake(moo_inbox *inbox)
{
    if (!mooi_inbox_is_ours(inbox))
        return;
    pthread_mutex_lock(&inbox->lock);
    inbox->wakes++;
    wake_poller(inbox);
    pthread_mutex_unlock(&inbox->lock);
}

/* ---- receiving; by the leader ---- */

/* Append a part to those before it. 0: no memory. */
static int join(struct mooi_letter *letter)
{
    size_t more = mooi_zmq.msg_size(&letter->message);
    char *larger = realloc(letter->joint, letter->bytes + more + 1);

    if (!larger)
        return 0;
    if (more)
        memcpy(larger + letter->bytes, mooi_zmq.msg_data(&letter->message),
               more);
    letter->joint = larger;
    letter->bytes += more;
    return 1;
}

/* The next part of a message that came, or -1. */
static int receive_part(moo_inbox *inbox, mooi_zmq_msg *part)
{
    int received;

    do
        received =
            mooi_zmq.msg_recv(part, inbox->socket, MOOI_ZMQ_DONTWAIT);
    while (received < 0 && mooi_zmq.error() == EINTR);
    return received;
}

static struct mooi_letter *receive_one(moo_inbox *inbox)
{
    struct mooi_letter *letter = calloc(1, sizeof *letter);
    int received, parts = 0, more = 1, joined = 1;

    if (!letter)
        return NULL;
    mooi_zmq.msg_init(&letter->message);
    while (more) { /* the connection's identity; then the letter itself */
        received = receive_part(inbox, &letter->message);
        if (received < 0)
            break;
        parts++;
        more = mooi_zmq.msg_more(&letter->message);
        if (parts > 2 || (parts == 2 && more))
            joined = joined && join(letter);
    }
    if (!parts) {
        inbox->drained = mooi_zmq.error() == EAGAIN;
        mooi_zmq.msg_close(&letter->message);
        free(letter);
        return NULL;
    }
    letter->whole = parts >= 2 && !more && joined;
    return letter;
}

/* The lock is held. */
static void append(moo_inbox *inbox, struct mooi_letter *letter)
{
    letter->next = NULL;
    letter->serial = ++inbox->serial;
    *(inbox->tail ? &inbox->tail->next : &inbox->head) = letter;
    inbox->tail = letter;
}

int mooi_receive(moo_inbox *inbox)
{
    struct mooi_letter *letter;
    int count = 0;

    inbox->drained = 0;
    while (count < MOST_LETTERS && (letter = receive_one(inbox))) {
        count++;
        pthread_mutex_lock(&inbox->lock);
        append(inbox, letter);
        pthread_mutex_unlock(&inbox->lock);
    }
    return count > 0;
}

/* ---- the lock is held ---- */

static void free_letters(struct mooi_letter *letter)
{
    while (letter) {
        struct mooi_letter *next = letter->next;
        mooi_zmq.msg_close(&letter->message);
        free(letter->joint);
        free(letter);
        letter = next;
    }
}

/* This turn does not look at its letter any more. */
static void stop_reading(moo_inbox *inbox, struct mooi_turn *turn)
{
    if (turn->reads) {
        turn->reads = 0;
        inbox->readers--;
    }
    if (!inbox->readers && inbox->popped) {
        free_letters(inbox->popped);
        inbox->popped = NULL;
    }
}

static int read_first(moo_inbox *inbox, struct mooi_turn *turn)
{
    struct mooi_letter *letter = inbox->head;

    if (!letter)
        return 0;
    turn->serial = letter->serial;
    if (!letter->whole) {
        turn->data = "";
        turn->bytes = 0;
    } else if (letter->joint) {
        turn->data = letter->joint;
        turn->bytes = letter->bytes;
    } else {
        turn->data = mooi_zmq.msg_data(&letter->message);
        turn->bytes = mooi_zmq.msg_size(&letter->message);
    }
    turn->reads = 1;
    inbox->readers++;
    return 1;
}

/* Whether this thread may lead: no other does, or it is overtaken. */
static int may_lead(moo_inbox *inbox, struct mooi_turn *turn)
{
    if (!inbox->leader)
        return 1;
    if (inbox->polling)
        return 0;
    return pthread_equal(inbox->leader_thread, pthread_self()) ||
           turn->looks >= PATIENCE;
}

/* A sleeper has looked: 1 if the leader was not here since the last time. */
static int missed(moo_inbox *inbox, struct mooi_turn *turn)
{
    int away = inbox->leader && !inbox->polling &&
               turn->led_at_ns == inbox->led_at_ns;

    turn->looks = away ? turn->looks + 1 : 0;
    turn->led_at_ns = inbox->led_at_ns;
    return away;
}

static void lead(moo_inbox *inbox, struct mooi_turn *turn, uint64_t now)
{
    inbox->leader = turn;
    inbox->leader_thread = pthread_self();
    inbox->led_at_ns = now;
}

/* Sleep until something is readable, and receive it. MOO_OTHER: one of the
 * other descriptors is. MOO_LOOK: a signal came. */
static int sleep_in_poll(moo_inbox *inbox, uint64_t until, uint64_t now)
{
    struct pollfd polled[4];
    uint64_t wake;
    int64_t left_ms = -1;
    int ready, other = 0;

    if (until != UINT64_MAX) {
        left_ms = now < until ? (int64_t)((until - now) / 1000000u) + 1 : 0;
        if (left_ms > 3600000)
            left_ms = 3600000;
    }
    for (int i = 0; i < inbox->count; i++)
        polled[i] = (struct pollfd){inbox->watched[i], POLLIN, 0};
    ready = poll(polled, (nfds_t)inbox->count, (int)left_ms);
    if (ready <= 0)
        return ready < 0 ? MOO_LOOK : 0;
    for (int i = 2; i < inbox->count; i++)
        other |= polled[i].revents;
    if (polled[1].revents && read(inbox->watched[1], &wake, sizeof wake) < 0)
        other |= 0; /* another has read it */
    if (polled[0].revents)
        mooi_receive(inbox);
    return other ? MOO_OTHER : 0;
}

/* Poll until `until`; the lock is let go meanwhile. Only poll's result for the
 * other descriptors counts: received letters are in the list.
 *
 * libzmq makes its descriptor readable when a message arrives at a socket
 * whose last receive found nothing; otherwise it need not. So before this
 * sleeps, a receive must find nothing; the last receive may have done so. */
static int poll_inbox(moo_inbox *inbox, uint64_t until, uint64_t now)
{
    uint64_t began = now;
    int event = 0, found = 0;

    inbox->polling = 1; /* a completion from here on writes to `wake` */
    pthread_mutex_unlock(&inbox->lock);
    if (!inbox->drained || now >= until)
        found = mooi_receive(inbox);
    if (!found && now < until) {
        moo_inbox_flush(inbox); /* the awaited result may depend on it */
        if (!mooi_spin(inbox, until, &now))
            event = sleep_in_poll(inbox, until, now);
    }
    pthread_mutex_lock(&inbox->lock);
    inbox->polling = 0;
    if (inbox->closed)
        pthread_cond_broadcast(&inbox->left);
    inbox->led_at_ns = mooi_now_ns();
    if (inbox->head)
        mooi_spin_note(inbox, inbox->led_at_ns - began);
    if (event == MOO_LOOK && inbox->head) /* otherwise Python must run the
                                           * handler */
        event = 0;
    return event;
}

static int wait_as_leader(moo_inbox *inbox, struct mooi_turn *turn,
                          uint64_t until, uint64_t now)
{
    int event = 0;

    if (!inbox->head)
        event = poll_inbox(inbox, until, now);
    if (inbox->closed)
        return MOO_SHUT;
    if (read_first(inbox, turn))
        return event == MOO_OTHER ? MOO_MAIL_AND_OTHER : MOO_MAIL;
    if (event == MOO_LOOK) /* a signal handler may take its time */
        inbox->leader = NULL;
    return event;
}

/* 0: nothing yet. */
static int wait_asleep(moo_inbox *inbox, struct mooi_turn *turn, uint64_t until,
                       uint64_t now)
{
    uint64_t most = until - now < LOOK_NS ? until - now : LOOK_NS;
    int slept;

    join_sleepers(inbox, turn);
    pthread_mutex_unlock(&inbox->lock);
    slept = futex_wait(&turn->word, most) && errno == EINTR ? -1 : 0;
    pthread_mutex_lock(&inbox->lock);
    leave_sleepers(inbox, turn);
    if (most == LOOK_NS && mooi_now_ns() - now >= LOOK_NS &&
        missed(inbox, turn))
        return MOO_LOOK;
    return slept < 0 ? MOO_LOOK : 0;
}

/* ---- it is not ---- */

moo_err moo_inbox_put(moo_inbox *inbox, const char *data, size_t bytes)
{
    struct mooi_letter *letter;
    moo_err err = MOO_ECLOSED;

    if (!mooi_inbox_is_ours(inbox))
        return err;
    letter = calloc(1, sizeof *letter);
    if (!letter || mooi_zmq.msg_init_size(&letter->message, bytes)) {
        free(letter);
        return MOO_ENOMEM;
    }
    memcpy(mooi_zmq.msg_data(&letter->message), data, bytes);
    letter->whole = 1;
    pthread_mutex_lock(&inbox->lock);
    if (!inbox->closed) {
        append(inbox, letter);
        letter = NULL;
        err = MOO_OK;
        wake_poller(inbox);
        pass_on(inbox);
    }
    pthread_mutex_unlock(&inbox->lock);
    if (letter) {
        mooi_zmq.msg_close(&letter->message);
        free(letter);
    }
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

int moo_turn_wait(moo_inbox *inbox, moo_turn *public, int64_t timeout_us,
                  int woken)
{
    struct mooi_turn *turn = (struct mooi_turn *)public;
    uint64_t now = mooi_now_ns(), until = UINT64_MAX;
    int event = 0, late = MOO_LATE;

    if (!mooi_inbox_is_ours(inbox))
        return MOO_SHUT;
    if ((timeout_us < 0 || timeout_us > MOO_SIGNAL_US) &&
        pthread_equal(inbox->signalled, pthread_self())) {
        timeout_us = MOO_SIGNAL_US;
        late = MOO_LOOK;
    }
    if (timeout_us >= 0)
        until = now + (uint64_t)timeout_us * 1000u;
    pthread_mutex_lock(&inbox->lock);
    turn->inbox = inbox;
    stop_reading(inbox, turn);
    while (!event) {
        int look = __atomic_exchange_n(&turn->word, 0, __ATOMIC_SEQ_CST);
        if (inbox->closed) {
            event = MOO_SHUT;
        } else if (may_lead(inbox, turn)) {
            look |= inbox->wakes != turn->seen;
            lead(inbox, turn, now);
            event = look ? MOO_LOOK : wait_as_leader(inbox, turn, until, now);
        } else if (look) {
            event = MOO_LOOK;
        } else if (!woken) {
            event = MOO_LED;
        } else if (now < until) {
            event = wait_asleep(inbox, turn, until, now);
        }
        if (!event && (now = mooi_now_ns()) >= until && !turn->word)
            event = late;
    }
    turn->seen = inbox->wakes;
    pass_on(inbox);
    pthread_mutex_unlock(&inbox->lock);
    return event;
}

int moo_turn_handled(moo_turn *public)
{
    struct mooi_turn *turn = (struct mooi_turn *)public;
    moo_inbox *inbox = turn->inbox;
    struct mooi_letter *letter;
    int more;

    if (!mooi_inbox_is_ours(inbox))
        return 0;
    pthread_mutex_lock(&inbox->lock);
    letter = inbox->head;
    turn->seen += turn->seen == inbox->wakes; /* this thread looks anyway */
    inbox->wakes++;
    wake_poller(inbox);
    if (letter && letter->serial == turn->serial) {
        inbox->taken = letter->serial;
        inbox->head = letter->next;
        if (!inbox->head)
            inbox->tail = NULL;
        letter->next = inbox->popped;
        inbox->popped = letter;
    }
    stop_reading(inbox, turn);
    more = read_first(inbox, turn);
    if (inbox->leader == turn)
        inbox->led_at_ns = mooi_now_ns();
    pthread_mutex_unlock(&inbox->lock);
    return more;
}

const uint64_t *moo_inbox_taken(const moo_inbox *inbox)
{
    return (const uint64_t *)&inbox->taken;
}

void moo_turn_leave(moo_turn *public)
{
    struct mooi_turn *turn = (struct mooi_turn *)public;
    moo_inbox *inbox = turn->inbox;

    if (!inbox || !mooi_inbox_is_ours(inbox))
        return;
    pthread_mutex_lock(&inbox->lock);
    turn->inbox = NULL;
    stop_reading(inbox, turn);
    if (inbox->leader == turn)
        inbox->leader = NULL;
    pass_on(inbox);
    pthread_mutex_unlock(&inbox->lock);
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
    wake_poller(inbox);
    for (struct mooi_turn *turn = inbox->first; turn; turn = turn->next)
        futex_wake(&turn->word);
    while (inbox->polling)
        pthread_cond_wait(&inbox->left, &inbox->lock);
    free_letters(inbox->head);
    inbox->head = inbox->tail = NULL;
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
    free_letters(inbox->popped);
    pthread_mutex_destroy(&inbox->lock);
    pthread_mutex_destroy(&inbox->sending);
    pthread_cond_destroy(&inbox->left);
    free(inbox);
}
