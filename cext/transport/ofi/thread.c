/* SPDX-License-Identifier: MIT */
/*
 * thread.c: the thread of a fabric. Providers make progress, also on others'
 * reads from us, only while a thread polls their queues. So it polls both
 * ports; after a while without events it sleeps on their descriptors. Ports
 * without descriptors are polled every millisecond.
 */
#include "transport/ofi/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/threads.h"

/* Polling for so long is cheaper than a sleep and a wake-up, unless there is
 * only one processor. */
#define SPIN_NS ((uint64_t)20 * 1000u)
/* The pause before another attempt when libfabric is full; only polling shows
 * that it has room. */
#define RETRY_MS 2
/* A queue may refuse to be slept on so often in a row. */
#define UNREADY_MAX 1000
#define LOOK_MS 1
/* The longest sleep, for providers that forget to signal. */
#define GUARD_MS 500
#define ENTRIES 16

/* ---- completions ---- */

static moo_err meaning_of(const struct mooi_fabric *fabric,
                          const struct fi_cq_err_entry *entry)
{
    const char *provider = fabric->info->fabric_attr->prov_name;

    switch (entry->err) {
    case FI_EACCES:
    case FI_EPERM:
    case FI_ENOKEY:
    case FI_EKEYREJECTED:
        return MOO_EPROTO;
    case FI_ENOMEM:
        return MOO_ENOMEM;
    default: /* 10 is verbs' "remote access error" */
        return !strncmp(provider, "verbs", 5) && entry->prov_errno == 10
                   ? MOO_EPROTO
                   : MOO_EPEER;
    }
}

static void take_error(struct mooi_fabric *fabric,
                       const struct mooi_fabric_port *port)
{
    struct fi_cq_err_entry entry = {0};
    struct mooi_fabric_piece *piece;
    char text[128];

    if (fi_cq_readerr(port->cq, &entry, 0) != 1)
        return;
    piece = entry.op_context;
    if (port != &fabric->reading || !piece)
        return; /* not of our operations: a reader hung up */
    if (!piece->read->doomed) {
        const char *said = fi_cq_strerror(port->cq, entry.prov_errno,
                                          entry.err_data, text, sizeof text);
        mooi_fabric_explain(piece->read->peer, "reading its memory",
                            said && *said ? said
                                          : fabric->library->strerror(entry.err));
    }
    mooi_fabric_completed(fabric, piece, meaning_of(fabric, &entry));
}

/* Returns whether there was a completion. */
static int poll_port(struct mooi_fabric *fabric,
                     const struct mooi_fabric_port *port)
{
    struct fi_cq_entry entries[ENTRIES];
    ssize_t count;

    if (!port->ep)
        return 0;
    count = fi_cq_read(port->cq, entries, ENTRIES);
    if (count == -FI_EAVAIL)
        take_error(fabric, port);
    for (ssize_t i = 0; i < count; i++)
        if (port == &fabric->reading)
            mooi_fabric_completed(fabric, entries[i].op_context, MOO_OK);
    return count > 0 || count == -FI_EAVAIL;
}

/* ---- sleeping ---- */

/* 1 if both ports can be slept on now. */
static int is_ready(struct mooi_fabric *fabric)
{
    struct fid *queues[2] = {&fabric->serving.cq->fid, NULL};
    int count = 1;

    if (fabric->reading.ep)
        queues[count++] = &fabric->reading.cq->fid;
    return fi_trywait(fabric->fabric, queues, count) == 0;
}

static void sleep_for(struct mooi_fabric *fabric, int timeout_ms)
{
    struct pollfd fds[3] = {{.fd = fabric->wake, .events = POLLIN},
                            {.fd = fabric->serving.fd, .events = POLLIN},
                            {.fd = -1, .events = POLLIN}};
    uint64_t count;

    if (fabric->reading.ep)
        fds[2].fd = fabric->reading.fd;
    if (poll(fds, 3, timeout_ms) > 0 && (fds[0].revents & POLLIN) &&
        read(fabric->wake, &count, sizeof count) < 0)
        return; /* it was read before */
}

static int may_sleep_long(const struct mooi_fabric *fabric)
{
    return fabric->serving.fd >= 0 &&
           (!fabric->reading.ep || fabric->reading.fd >= 0);
}

/* Sleep until an event, or for `due` nanoseconds. */
static void rest(struct mooi_fabric *fabric, uint64_t due, int stuck)
{
    int timeout_ms = stuck ? RETRY_MS : GUARD_MS;

    if (due < (uint64_t)timeout_ms * 1000000u)
        timeout_ms = (int)((due + 999999u) / 1000000u);
    if (!may_sleep_long(fabric)) {
        timeout_ms = LOOK_MS;
    } else if (!is_ready(fabric)) {
        if (++fabric->unready < UNREADY_MAX)
            return;
        timeout_ms = LOOK_MS;
    }
    fabric->unready = 0;
    pthread_mutex_lock(&fabric->lock);
    fabric->asleep = !fabric->knocked;
    pthread_mutex_unlock(&fabric->lock);
    if (fabric->asleep)
        sleep_for(fabric, timeout_ms);
    pthread_mutex_lock(&fabric->lock);
    fabric->asleep = 0;
    pthread_mutex_unlock(&fabric->lock);
}

/* ---- the inbox ---- */

static void stop_read(struct mooi_fabric *fabric, struct mooi_fabric_stop *stop)
{
    struct mooi_fabric_read *read = fabric->ring.next;

    while (read != &fabric->ring && read->want.cookie != stop->cookie)
        read = read->next;
    if (read != &fabric->ring && !read->stop) {
        read->stop = stop;
        return;
    }
    stop->result = MOO_ESTALE;
    stop->done = 1;
    pthread_cond_broadcast(&fabric->stopped);
}

static void take_reads(struct mooi_fabric *fabric, uint64_t now)
{
    struct mooi_fabric_read *head = &fabric->inbox.reads;

    while (head->next != head) {
        struct mooi_fabric_read *read = head->next;
        mooi_fabric_reads_remove(read);
        mooi_fabric_reads_append(&fabric->ring, read);
        read->heard_ns = now;
        read->peer->reads++;
        if (!read->want.bytes)
            mooi_fabric_end(fabric, read);
    }
}

/* Returns whether the fabric is being closed. */
static int take_inbox(struct mooi_fabric *fabric, uint64_t now)
{
    int closing;

    pthread_mutex_lock(&fabric->lock);
    fabric->knocked = 0;
    take_reads(fabric, now);
    while (fabric->inbox.stops) {
        struct mooi_fabric_stop *stop = fabric->inbox.stops;
        fabric->inbox.stops = stop->next;
        stop_read(fabric, stop);
    }
    while (fabric->inbox.gone) {
        struct mooi_fabric_peer *peer = fabric->inbox.gone;
        fabric->inbox.gone = peer->next;
        peer->gone = 1;
        peer->next = fabric->gone;
        fabric->gone = peer;
    }
    closing = fabric->closing;
    pthread_mutex_unlock(&fabric->lock);
    return closing;
}

/* ---- the thread ---- */

static int call_back(struct mooi_fabric *fabric)
{
    struct mooi_fabric_read *head = &fabric->ended;
    int any = 0;

    for (; head->next != head; any = 1) {
        struct mooi_fabric_read *read = head->next;
        mooi_fabric_reads_remove(read);
        errno = read->reason;
        read->want.done(read->want.cookie, read->result);
        free(read);
    }
    return any;
}

/* When this returns 1 no thread waits for an answer, or ever will again. */
static int finished(struct mooi_fabric *fabric)
{
    int empty;

    pthread_mutex_lock(&fabric->lock);
    empty = !fabric->knocked && fabric->ring.next == &fabric->ring;
    if (empty)
        fabric->closed = 1;
    pthread_mutex_unlock(&fabric->lock);
    return empty;
}

static void *run(void *argument)
{
    struct mooi_fabric *fabric = argument;

    for (;;) {
        uint64_t now = fabric->now_ns = mooi_now_ns(), due;
        int closing = take_inbox(fabric, now);
        int stuck = mooi_fabric_post(fabric);
        int acted = poll_port(fabric, &fabric->reading);
        acted |= poll_port(fabric, &fabric->serving);
        due = mooi_fabric_expire(fabric, now, closing);
        acted |= call_back(fabric);
        mooi_fabric_free_gone(fabric);
        if (closing && finished(fabric))
            return NULL;
        if (acted)
            fabric->acted_ns = now;
        else if (!due || now - fabric->acted_ns >= fabric->spin_ns)
            rest(fabric, due, stuck);
    }
}

moo_err mooi_fabric_thread_start(struct mooi_fabric *fabric)
{
    moo_err err;

    fabric->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fabric->wake < 0)
        return MOO_ESYS;
    fabric->spin_ns = mooi_processors() > 1 ? SPIN_NS : 0;
    err = mooi_thread_create(&fabric->thread, run, fabric);
    if (err != MOO_OK)
        close(fabric->wake);
    return err;
}

void mooi_fabric_thread_wake(struct mooi_fabric *fabric)
{
    uint64_t one = 1;

    fabric->knocked = 1;
    if (fabric->asleep && write(fabric->wake, &one, sizeof one) < 0)
        return; /* it is full of wake-ups already */
}

void mooi_fabric_thread_stop(struct mooi_fabric *fabric)
{
    pthread_mutex_lock(&fabric->lock);
    fabric->closing = 1;
    mooi_fabric_thread_wake(fabric);
    pthread_mutex_unlock(&fabric->lock);
    pthread_join(fabric->thread, NULL);
    close(fabric->wake);
}
