/* SPDX-License-Identifier: MIT */
/*
 * children.h: other processes of a test, and how they are talked to.
 */
#ifndef CHILDREN_H
#define CHILDREN_H

#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/socket.h>

#include "check.h"

/* The other process is this program again, in another role: a child of a mere
 * fork would begin with whatever locks the engine's thread, or a sanitizer, held
 * at that moment. */
static inline pid_t start(const char *role, uint64_t id, int *socket)
{
    char id_text[24], socket_text[12];
    char *arguments[] = {(char *)"child", (char *)role, id_text,
                         socket_text, NULL};
    int ends[2];
    pid_t child;

    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    CHECK(!fcntl(ends[1], F_SETFD, 0));
    snprintf(id_text, sizeof id_text, "%llu", (unsigned long long)id);
    snprintf(socket_text, sizeof socket_text, "%d", ends[1]);
    CHECK(!posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments,
                       environ));
    close(ends[1]);
    *socket = ends[0];
    return child;
}

static inline void say(int socket, const void *data, size_t bytes)
{
    CHECK(send(socket, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
}

static inline void hear(int socket, void *data, size_t bytes)
{
    CHECK(recv(socket, data, bytes, 0) == (ssize_t)bytes);
}

/* Be that other process, `arguments` being main's; dead after `seconds`. */
static inline int play(char **arguments, unsigned seconds,
                       void (*owner)(int, uint64_t),
                       void (*importer)(int, uint64_t))
{
    uint64_t id = strtoull(arguments[2], NULL, 10);
    int socket = atoi(arguments[3]);

    CHECK(!fcntl(socket, F_SETFD, FD_CLOEXEC));
    alarm(seconds);
    (strcmp(arguments[1], "owner") ? importer : owner)(socket, id);
    return 0;
}

#endif
