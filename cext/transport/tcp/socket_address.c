/* SPDX-License-Identifier: MIT */
/* socket_address.c: addresses, and those of a listener. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "transport/tcp/socket_name.h"

void mooi_address_print(const struct mooi_address *address,
                        char text[MOOI_ADDRESS_TEXT])
{
    char ip[INET6_ADDRSTRLEN] = "?";

    inet_ntop(address->family == 6 ? AF_INET6 : AF_INET, address->ip, ip,
              sizeof ip);
    snprintf(text, MOOI_ADDRESS_TEXT,
             address->family == 6 ? "[%s]:%u" : "%s:%u", ip,
             (unsigned)address->port);
}

moo_err mooi_address_parse(const char *text, uint16_t port,
                           struct mooi_address *out)
{
    struct mooi_address address = {.port = port};

    if (inet_pton(AF_INET, text, address.ip) == 1)
        address.family = 4;
    else if (inet_pton(AF_INET6, text, address.ip) == 1)
        address.family = 6;
    else
        return MOO_EINVAL;
    *out = address;
    return MOO_OK;
}

socklen_t mooi_socket_name_of(const struct mooi_address *address,
                              union mooi_socket_name *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == 4) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(address->port);
        memcpy(&out->v4.sin_addr, address->ip, 4);
        return sizeof out->v4;
    }
    out->v6.sin6_family = AF_INET6;
    out->v6.sin6_port = htons(address->port);
    memcpy(&out->v6.sin6_addr, address->ip, 16);
    return sizeof out->v6;
}

static int from_name(const struct sockaddr *name, struct mooi_address *out)
{
    union mooi_socket_name copy;

    memset(out, 0, sizeof *out);
    if (name->sa_family == AF_INET) {
        memcpy(&copy.v4, name, sizeof copy.v4);
        out->family = 4;
        out->port = ntohs(copy.v4.sin_port);
        memcpy(out->ip, &copy.v4.sin_addr, 4);
        return 1;
    }
    if (name->sa_family == AF_INET6) {
        memcpy(&copy.v6, name, sizeof copy.v6);
        out->family = 6;
        out->port = ntohs(copy.v6.sin6_port);
        memcpy(out->ip, &copy.v6.sin6_addr, 16);
        return 1;
    }
    return 0;
}

/* ---- what others can connect to ---- */

static int is_unspecified(const struct mooi_address *address)
{
    static const uint8_t zeros[16];

    return !memcmp(address->ip, zeros, 16);
}

static int is_link_local(const struct mooi_address *address)
{
    return address->family == 4
               ? address->ip[0] == 169 && address->ip[1] == 254
               : address->ip[0] == 0xfe && (address->ip[1] & 0xc0) == 0x80;
}

/* One pass over the interfaces: those of one family, on lo or elsewhere. */
static size_t pick(const struct ifaddrs *all, int family, int on_lo,
                   uint16_t port, struct mooi_address *out, size_t room)
{
    size_t count = 0;

    for (const struct ifaddrs *i = all; i && count < room; i = i->ifa_next) {
        struct mooi_address address;
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
            !(i->ifa_flags & IFF_LOOPBACK) != !on_lo ||
            !from_name(i->ifa_addr, &address) || address.family != family ||
            is_link_local(&address))
            continue;
        address.port = port;
        out[count++] = address;
    }
    return count;
}

static int takes_v4(int listener)
{
    int only_v6 = 1;
    socklen_t length = sizeof only_v6;

    getsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, &length);
    return !only_v6;
}

size_t mooi_socket_addresses(int listener, struct mooi_address *out,
                             size_t room)
{
    union mooi_socket_name name;
    socklen_t length = sizeof name;
    struct mooi_address own;
    struct ifaddrs *all;
    size_t count = 0;

    if (!room || getsockname(listener, &name.any, &length) ||
        !from_name(&name.any, &own))
        return 0;
    if (!is_unspecified(&own)) {
        out[0] = own;
        return 1;
    }
    if (getifaddrs(&all))
        return 0;
    for (int on_lo = 0; on_lo < 2 && !count; on_lo++) {
        if (own.family == 4 || takes_v4(listener))
            count = pick(all, 4, on_lo, own.port, out, room);
        if (own.family == 6)
            count += pick(all, 6, on_lo, own.port, out + count, room - count);
    }
    freeifaddrs(all);
    return count;
}
