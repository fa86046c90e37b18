/* SPDX-License-Identifier: MIT */
/*
 * contact.c: an importer meets the owners that connected to it. There is no
 * thread for that: the first import from an owner accepts all waiting
 * connections.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "transport/shm/shm.h"

/* A connector that is one of ours sends HELLO at once. */
#define HELLO_TIMEOUT_MS 1000
/* While waiting for an owner's first contact, check so often if it lives. */
#define LOOK_MS 20

static int same_user(int fd)
{
    struct ucred who;
    socklen_t length = sizeof who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 &&
           who.uid == geteuid();
}

static moo_err check_hello(struct mooi_local *local,
                           const struct mooi_message *m)
{
    uint8_t proof[MOOI_MAC_BYTES];

    if (m->kind != MOOI_MSG_HELLO || m->u.hello.to != local->id)
        return MOO_EPROTO;
    mooi_hello_proof(local->key, m->u.hello.from, local->id, proof);
    return mooi_mac_equal(proof, m->u.hello.proof) ? MOO_OK : MOO_EAUTH;
}

static moo_err welcome(struct mooi_local *local, int socket, uint64_t id,
                       int ledger_fd, uint32_t entries)
{
    struct mooi_ledger *ledger;
    moo_err err = mooi_ledger_map(ledger_fd, entries, &ledger);

    if (err != MOO_OK)
        return err;
    pthread_mutex_lock(local->lock);
    if (mooi_owner_find(local, id) ||
        !mooi_owner_new(local, id, socket, ledger, entries))
        err = MOO_EPROTO;
    pthread_mutex_unlock(local->lock);
    if (err != MOO_OK)
        mooi_ledger_unmap(ledger, entries);
    return err;
}

/* Accept one connection and read its HELLO. A connector that does not prove
 * the key is hung up on, and its other bytes are not looked at. */
static void accept_one(struct mooi_local *local, int socket)
{
    struct mooi_message m;
    int fd = -1;
    moo_err err = MOO_EAUTH;

    if (same_user(socket))
        err = mooi_link_receive(socket, &m, &fd, HELLO_TIMEOUT_MS);
    if (err == MOO_OK)
        err = check_hello(local, &m);
    if (err == MOO_OK)
        err = welcome(local, socket, m.u.hello.from, fd, m.u.hello.entries);
    if (fd >= 0)
        close(fd);
    if (err != MOO_OK)
        close(socket);
}

static struct mooi_owner *find_and_pin(struct mooi_local *local, uint64_t id)
{
    struct mooi_owner *owner;

    pthread_mutex_lock(local->lock);
    owner = id == local->id ? mooi_owner_self(local)
                            : mooi_owner_find(local, id);
    if (owner)
        owner->live++;
    pthread_mutex_unlock(local->lock);
    return owner;
}

/* Accept all waiting connections. MOO_OK: there are no more. */
static moo_err accept_all(struct mooi_local *local)
{
    for (;;) {
        int socket = accept4(local->listener, NULL, NULL,
                             SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            mooi_link_make_room(socket);
            accept_one(local, socket);
        } else if (errno == EAGAIN) {
            return MOO_OK;
        } else if (errno == EINVAL || errno == EBADF) { /* shut down */
            return MOO_ECLOSED;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return MOO_ESYS;
        }
    }
}

/* Dead: the control plane said so, or its socket refuses. Messages that it
 * sent before are in our queue. */
static int is_dead(struct mooi_local *local, uint64_t id)
{
    int dead, socket;
    moo_err err;

    pthread_mutex_lock(local->lock);
    dead = local->is_dead(local->context, id);
    pthread_mutex_unlock(local->lock);
    if (dead)
        return 1;
    err = mooi_link_connect(local, id, &socket);
    if (err == MOO_OK)
        close(socket);
    return err == MOO_EPEER;
}

static moo_err accept_until(struct mooi_local *local, uint64_t id,
                            uint64_t end_ns, struct mooi_owner **out)
{
    struct pollfd wait = {.fd = local->listener, .events = POLLIN};
    int dead = 0;

    for (;;) {
        moo_err err = accept_all(local);
        *out = find_and_pin(local, id);
        if (*out || err != MOO_OK)
            return *out ? MOO_OK : err;
        if (dead)
            return MOO_EPEER;
        if (mooi_now_ns() >= end_ns)
            return MOO_ETIMEOUT;
        if (poll(&wait, 1, LOOK_MS) == 0)
            dead = is_dead(local, id);
    }
}

moo_err mooi_owner_pin(struct mooi_local *local, uint64_t id, int timeout_ms,
                       struct mooi_owner **out)
{
    uint64_t end = mooi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    moo_err err;

    *out = find_and_pin(local, id);
    if (*out)
        return MOO_OK;
    if (id == local->id)
        return MOO_ENOMEM;
    pthread_mutex_lock(&local->accepting);
    err = accept_until(local, id, end, out);
    pthread_mutex_unlock(&local->accepting);
    return err;
}
