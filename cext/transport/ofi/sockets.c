/* SPDX-License-Identifier: MIT */
/*
 * sockets.c: the sockets of a provider that uses them. libfabric does not tell
 * which they are, but they have its addresses.
 */
#include "transport/ofi/internal.h"

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef int get_address(int fd, struct sockaddr *address, socklen_t *length);

/* 1 if that end of a socket has this address. */
static int has_address(int fd, get_address *of, const uint8_t *name,
                       size_t bytes)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;

    memset(&address, 0, sizeof address);
    return of(fd, (struct sockaddr *)&address, &length) == 0 &&
           length == bytes && !memcmp(&address, name, bytes);
}

/* The next open descriptor; -1: there are no more. */
static int next_open(DIR *open_files)
{
    struct dirent *entry = readdir(open_files);

    return entry ? atoi(entry->d_name) : -1;
}

/* Discard the received bytes. After a shutdown none are added. */
static void empty(int fd)
{
    char nowhere[16 << 10];

    while (recv(fd, nowhere, sizeof nowhere, MSG_DONTWAIT) > 0)
        continue;
}

int mooi_fabric_hang_up(const struct mooi_fabric_peer *peer)
{
    DIR *open_files = opendir("/proc/self/fd");
    int count = 0, fd;

    if (!open_files)
        return 0;
    while ((fd = next_open(open_files)) >= 0) {
        if (!has_address(fd, getpeername, peer->name, peer->name_bytes) ||
            shutdown(fd, SHUT_RDWR))
            continue;
        empty(fd);
        count++;
    }
    closedir(open_files);
    return count;
}

/* ---- what libfabric leaves open ---- */

struct mooi_fabric_socket {
    struct mooi_fabric_socket *next;
    int fd;
    uint64_t cookie; /* the kernel never gives it to another socket */
};

/* Returns 0 if it is no socket, and where there are no cookies. */
static uint64_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t length = sizeof cookie;

    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) ? 0 : cookie;
}

struct mooi_fabric_socket *mooi_fabric_served(const struct mooi_fabric *fabric)
{
    DIR *open_files = opendir("/proc/self/fd");
    struct mooi_fabric_socket *all = NULL;
    int fd;

    if (!open_files)
        return NULL;
    while ((fd = next_open(open_files)) >= 0) {
        struct mooi_fabric_socket *one;
        if (!has_address(fd, getsockname, fabric->name, fabric->name_bytes))
            continue;
        one = malloc(sizeof *one);
        if (!one)
            break;
        *one = (struct mooi_fabric_socket){all, fd, cookie_of(fd)};
        all = one;
    }
    closedir(open_files);
    return all;
}

void mooi_fabric_close_left(struct mooi_fabric_socket *all)
{
    while (all) {
        struct mooi_fabric_socket *one = all;
        all = one->next;
        if (one->cookie && cookie_of(one->fd) == one->cookie)
            close(one->fd);
        free(one);
    }
}
