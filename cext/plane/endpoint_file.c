/* SPDX-License-Identifier: MIT */
/* endpoint_file.c: endpoints in the session's directory, and the identity of
 * this host. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plane/endpoint_file.h"

#define NAME (MOOI_NAME_BYTES + 12)

/* As the socket's name, with another ending. */
static void endpoint_name(moo_plane *plane, uint64_t id, const char *ending,
                          char out[NAME])
{
    char name[MOOI_NAME_BYTES];
    char *dot;

    mooi_socket_name(plane->key, id, name);
    dot = strrchr(name, '.');
    if (dot)
        *dot = 0;
    snprintf(out, NAME, "%s%s", name, ending);
}

static moo_err write_all(int fd, const uint8_t *bytes, size_t length)
{
    ssize_t written;

    do
        written = write(fd, bytes, length);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)length)
        return MOO_OK;
    if (written >= 0)
        errno = ENOSPC;
    return MOO_ESYS;
}

/* Open it for writing, under the temporary name of an incomplete endpoint. */
static int open_early(moo_plane *plane, int flags)
{
    char early[NAME];

    endpoint_name(plane, plane->id, ".new", early);
    return openat(plane->local.directory, early,
                  O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
}

moo_err mooi_endpoint_announce(moo_plane *plane)
{
    int fd = open_early(plane, O_CREAT | O_EXCL);

    if (fd < 0)
        return MOO_ESYS;
    close(fd);
    return MOO_OK;
}

int mooi_endpoint_is_coming(moo_plane *plane, uint64_t id)
{
    char early[NAME];

    endpoint_name(plane, id, ".new", early);
    return faccessat(plane->local.directory, early, F_OK,
                     AT_SYMLINK_NOFOLLOW) == 0;
}

/* Written under another name first: a reader finds a whole endpoint or
 * none. */
moo_err mooi_endpoint_publish(moo_plane *plane,
                              const struct mooi_endpoint *endpoint)
{
    uint8_t bytes[MOO_ENDPOINT_BYTES];
    size_t length = mooi_endpoint_pack(endpoint, bytes);
    char name[NAME], early[NAME];
    moo_err err;
    int fd = open_early(plane, 0);

    if (fd < 0)
        return MOO_ESYS;
    err = write_all(fd, bytes, length);
    if (close(fd) < 0 && err == MOO_OK)
        err = MOO_ESYS;
    endpoint_name(plane, plane->id, ".endpoint", name);
    endpoint_name(plane, plane->id, ".new", early);
    if (err == MOO_OK &&
        renameat(plane->local.directory, early, plane->local.directory,
                 name) < 0)
        err = MOO_ESYS;
    return err;
}

void mooi_endpoint_withdraw(moo_plane *plane)
{
    char name[NAME];

    endpoint_name(plane, plane->id, ".endpoint", name);
    unlinkat(plane->local.directory, name, 0);
    endpoint_name(plane, plane->id, ".new", name);
    unlinkat(plane->local.directory, name, 0);
}

static moo_err read_endpoint(int fd, struct mooi_endpoint *out)
{
    uint8_t bytes[MOO_ENDPOINT_BYTES + 1]; /* one more: longer ones show */
    struct stat status;
    ssize_t length;

    if (fstat(fd, &status) < 0)
        return MOO_ESYS;
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
        return MOO_EPROTO;
    do
        length = read(fd, bytes, sizeof bytes);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return MOO_ESYS;
    return mooi_endpoint_parse(bytes, (size_t)length, out);
}

moo_err mooi_endpoint_find(moo_plane *plane, uint64_t id,
                           struct mooi_endpoint *out)
{
    char name[NAME];
    moo_err err;
    int fd;

    endpoint_name(plane, id, ".endpoint", name);
    fd = openat(plane->local.directory, name,
                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? MOO_ETIMEOUT : MOO_ESYS;
    err = read_endpoint(fd, out);
    close(fd);
    if (err == MOO_OK && out->process != id)
        err = MOO_EPROTO;
    return err;
}

static moo_err boot_id(char *out, size_t room)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length;
    int reason;

    if (fd < 0)
        return MOO_ESYS;
    length = read(fd, out, room - 1);
    reason = errno;
    close(fd);
    errno = reason;
    if (length <= 0)
        return MOO_ESYS;
    out[length] = 0;
    out[strcspn(out, "\n")] = 0;
    return MOO_OK;
}

moo_err mooi_host_identity(moo_plane *plane, uint8_t out[MOOI_HOST_BYTES])
{
    const char *named = getenv("MOOACTOR_HOST_ID");
    char text[256] = "moo host ", boot[64];
    struct stat status;
    moo_err err;

    if (named && *named) {
        snprintf(text, sizeof text, "moo host named %s", named);
    } else {
        err = boot_id(boot, sizeof boot);
        if (err == MOO_OK && fstat(plane->local.directory, &status) < 0)
            err = MOO_ESYS;
        if (err != MOO_OK)
            return err;
        snprintf(text, sizeof text, "moo host %s %llx %llx", boot,
                 (unsigned long long)status.st_dev,
                 (unsigned long long)status.st_ino);
    }
    mooi_mac(plane->key, text, strlen(text), out);
    return MOO_OK;
}
