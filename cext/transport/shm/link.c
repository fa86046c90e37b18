/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fd.h"
#include "transport/shm/shm.h"

#define BACKLOG 1024

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static void attach(struct msghdr *header, union control *control, int fd)
{
    struct cmsghdr *c;

    memset(control, 0, sizeof *control);
    header->msg_control = control->bytes;
    header->msg_controllen = sizeof control->bytes;
    c = CMSG_FIRSTHDR(header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
}

moo_err mooi_link_send(int socket, const struct mooi_message *message, int fd)
{
    uint8_t bytes[MOOI_MESSAGE_BYTES];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;
    ssize_t sent;

    mooi_message_pack(message, bytes);
    if (fd >= 0)
        attach(&header, &control, fd);
    do
        sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)sizeof bytes)
        return MOO_OK;
    switch (errno) {
    case EAGAIN:
    case ENOBUFS:
    case ETOOMANYREFS: /* too many descriptors under way */
        return MOO_ETIMEOUT;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return MOO_EPEER;
    default:
        return MOO_ESYS;
    }
}

/* The one descriptor of a message; surplus ones are closed. */
static int detach(struct msghdr *header)
{
    int found = -1;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c;
         c = CMSG_NXTHDR(header, c)) {
        size_t count;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (found < 0)
                found = fd;
            else
                close(fd);
        }
    }
    return found;
}

static moo_err wait_readable(int socket, int timeout_ms)
{
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    uint64_t end = mooi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    int ready;

    do {
        uint64_t now = mooi_now_ns();
        int left = now < end ? (int)((end - now + 999999u) / 1000000u) : 0;
        ready = poll(&wait, 1, left);
    } while (ready < 0 && errno == EINTR);
    if (ready > 0)
        return MOO_OK;
    return ready == 0 ? MOO_ETIMEOUT : MOO_ESYS;
}

moo_err mooi_link_receive(int socket, struct mooi_message *out, int *fd,
                          int timeout_ms)
{
    uint8_t bytes[MOOI_MESSAGE_BYTES + 1]; /* one more: longer ones show */
    union control control;
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    ssize_t got;
    moo_err err;

    *fd = -1;
    if (timeout_ms > 0) {
        err = wait_readable(socket, timeout_ms);
        if (err != MOO_OK)
            return err;
    }
    do
        got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return MOO_EPEER;
    if (got < 0)
        return errno == EAGAIN       ? MOO_ETIMEOUT
               : errno == ECONNRESET ? MOO_EPEER
                                     : MOO_ESYS;
    *fd = detach(&header);
    err = mooi_message_parse(bytes, (size_t)got, out);
    if (err == MOO_OK && (header.msg_flags & MSG_CTRUNC)) {
        errno = EMFILE;
        err = MOO_ESYS;
    }
    if (err != MOO_OK)
        mooi_close_fd(fd);
    return err;
}

/* By way of /proc, so that the length of the directory's name and a later
 * chdir do not matter. */
static moo_err address_of(struct mooi_local *local, const char *name,
                          struct sockaddr_un *out)
{
    int length;

    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    length = snprintf(out->sun_path, sizeof out->sun_path,
                      "/proc/self/fd/%d/%s", local->directory, name);
    return length < (int)sizeof out->sun_path ? MOO_OK : MOO_EINVAL;
}

/* Between this number and the limit there is room for one contact's
 * descriptors. */
#define ROOM (MOOI_MAX_SLABS + 8)

void mooi_link_make_room(int fd)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) ||
        (rlim_t)fd + ROOM < limit.rlim_cur || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur =
        limit.rlim_max > 2 * limit.rlim_cur ? 2 * limit.rlim_cur + ROOM
                                            : limit.rlim_max;
    if (limit.rlim_cur > limit.rlim_max)
        limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* a hint: without it, EMFILE comes */
}

static int new_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0)
        mooi_link_make_room(fd);
    return fd;
}

moo_err mooi_link_connect(struct mooi_local *local, uint64_t id, int *out)
{
    char name[MOOI_NAME_BYTES];
    struct sockaddr_un address;
    int fd, reason;

    mooi_socket_name(local->key, id, name);
    if (address_of(local, name, &address) != MOO_OK)
        return MOO_EINVAL;
    fd = new_socket();
    if (fd < 0)
        return MOO_ESYS;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
        *out = fd;
        return MOO_OK;
    }
    reason = errno;
    close(fd);
    errno = reason;
    if (reason == ENOENT || reason == EAGAIN)
        return MOO_ETIMEOUT;
    return reason == ECONNREFUSED ? MOO_EPEER : MOO_ESYS;
}

/* Bound under another name first: a process that finds the final name can
 * connect, and a refusal always means that the listener is gone. */
static moo_err bind_and_publish(struct mooi_local *local, int fd)
{
    char name[MOOI_NAME_BYTES], early[MOOI_NAME_BYTES + 4];
    struct sockaddr_un address;

    mooi_socket_name(local->key, local->id, name);
    snprintf(early, sizeof early, "%s.new", name);
    if (address_of(local, early, &address) != MOO_OK)
        return MOO_EINVAL;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(fd, BACKLOG) < 0 ||
        renameat(local->directory, early, local->directory, name) < 0)
        return MOO_ESYS;
    return MOO_OK;
}

moo_err mooi_link_listen(struct mooi_local *local, int *out)
{
    int fd = new_socket(), reason;
    moo_err err;

    if (fd < 0)
        return MOO_ESYS;
    err = bind_and_publish(local, fd);
    if (err != MOO_OK) {
        reason = errno;
        close(fd);
        errno = reason;
        return err;
    }
    *out = fd;
    return MOO_OK;
}
