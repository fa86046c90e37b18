/* SPDX-License-Identifier: MIT */
/* socket_name.h: an address as the system calls take it. */
#ifndef MOOI_SOCKET_NAME_H
#define MOOI_SOCKET_NAME_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "transport/tcp/socket.h"

union mooi_socket_name {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Fill in *out; returns its length. */
socklen_t mooi_socket_name_of(const struct mooi_address *address,
                              union mooi_socket_name *out);

#endif
