/* SPDX-License-Identifier: MIT */
/* choose.c: the choice among libfabric's fabrics. */
#include "transport/ofi/internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Those with hardware under them, the best first. Others are opened by name
 * only: over plain TCP our own transport is the better one. */
static const char *const hardware[] = {"verbs;ofi_rxm", "efa",  "cxi",  "opx",
                                       "psm3",          "psm2", "psm",  "ucx"};
#define HARDWARE (sizeof hardware / sizeof *hardware)
#define UNWANTED 1000000u

static int rank_of(const char *provider)
{
    for (size_t i = 0; i < HARDWARE; i++)
        if (!strcmp(provider, hardware[i]))
            return (int)i;
    return -1;
}

/* gcc 12 reports a leak of a name in a struct of libfabric's, but freeinfo
 * frees the name with the struct. */
#ifdef MOOI_ANALYZER
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

static struct fi_info *make_hints(const struct mooi_libfabric *library,
                                  const char *provider, int devices)
{
    struct fi_info *hints = library->dupinfo(NULL);

    if (!hints)
        return NULL;
    hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    /* Providers fill queues of the requested sizes with buffers. We receive
     * nothing, and have few operations under way. */
    hints->tx_attr->size = MOOI_FABRIC_PIECES;
    hints->rx_attr->size = 16;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
                                  FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                  FI_MR_ENDPOINT;
    if (devices) {
        hints->caps |= FI_HMEM;
        hints->domain_attr->mr_mode |= FI_MR_HMEM;
    }
    if (provider) {
        hints->fabric_attr->prov_name = strdup(provider);
        if (!hints->fabric_attr->prov_name) {
            library->freeinfo(hints);
            return NULL;
        }
    }
    return hints;
}

/* All fabrics on offer. Returns libfabric's result. */
static int list(const struct mooi_libfabric *library, const char *provider,
                int devices, struct fi_info **out)
{
    struct fi_info *hints = make_hints(library, provider, devices);
    uint32_t version = FI_VERSION(1, 17);
    int err;

    if (!hints)
        return -FI_ENOMEM;
    if (library->version() < version)
        version = library->version();
    err = library->getinfo(version, NULL, NULL, 0, hints, out);
    library->freeinfo(hints);
    return err;
}

/* ---- addresses ---- */

/* The numeric address that an entry would use; empty if it has none. */
static void address_of(const struct fi_info *info, char out[INET6_ADDRSTRLEN])
{
    const struct sockaddr *address = info->src_addr;
    const void *ip = NULL;

    out[0] = 0;
    if (!address || info->src_addrlen < sizeof(struct sockaddr_in) ||
        info->addr_format == FI_SOCKADDR_IB)
        return;
    if (address->sa_family == AF_INET)
        ip = &((const struct sockaddr_in *)info->src_addr)->sin_addr;
    else if (address->sa_family == AF_INET6 &&
             info->src_addrlen >= sizeof(struct sockaddr_in6))
        ip = &((const struct sockaddr_in6 *)info->src_addr)->sin6_addr;
    if (ip && !inet_ntop(address->sa_family, ip, out, INET6_ADDRSTRLEN))
        out[0] = 0;
}

static int is_loopback(const char *ip)
{
    return !strncmp(ip, "127.", 4) || !strcmp(ip, "::1");
}

/* The distance of an entry from the request; UNWANTED cannot be used. */
static unsigned distance(const struct fi_info *info,
                         const struct mooi_fabric_options *options)
{
    int stands_in = rank_of(info->fabric_attr->prov_name) < 0;
    const char *bind = options->bind;
    char ip[INET6_ADDRSTRLEN];

    address_of(info, ip);
    if (options->keyless)
        return 0;
    if (!strncmp(ip, "fe80:", 5)) /* means nothing to another host */
        return bind && !strcmp(bind, ip) ? 0 : UNWANTED;
    if (bind && strcmp(bind, "*"))
        return !strcmp(bind, ip) ? 0 : stands_in ? UNWANTED : 1;
    if (!stands_in)
        return 0;
    if (!bind)
        return is_loopback(ip) ? strchr(ip, ':') != NULL : UNWANTED;
    return is_loopback(ip) ? 2 : strchr(ip, ':') != NULL;
}

/* ---- the choice ---- */

static unsigned badness(const struct fi_info *info,
                        const struct mooi_fabric_options *options, int named)
{
    int rank = rank_of(info->fabric_attr->prov_name);

    if (rank < 0 && !named)
        return UNWANTED;
    if (info->ep_attr->type != FI_EP_RDM ||
        strlen(info->fabric_attr->prov_name) >= MOOI_FABRIC_PROVIDER_BYTES)
        return UNWANTED;
    return (unsigned)(rank < 0 ? 0 : rank) * 10 + distance(info, options);
}

static struct fi_info *best_of(struct fi_info *all,
                               const struct mooi_fabric_options *options,
                               int named)
{
    struct fi_info *best = NULL;
    unsigned least = UNWANTED;

    for (struct fi_info *info = all; info; info = info->next) {
        unsigned bad = badness(info, options, named);
        if (bad < least) {
            least = bad;
            best = info;
        }
    }
    return best;
}

static const char *domain_of(const struct fi_info *info)
{
    return info->domain_attr->name ? info->domain_attr->name : "";
}

static int is_same(const struct fi_info *one, const struct fi_info *other)
{
    char ip[2][INET6_ADDRSTRLEN];

    address_of(one, ip[0]);
    address_of(other, ip[1]);
    return one->ep_attr->type == other->ep_attr->type &&
           !strcmp(one->fabric_attr->prov_name,
                   other->fabric_attr->prov_name) &&
           !strcmp(domain_of(one), domain_of(other)) && !strcmp(ip[0], ip[1]);
}

/* The same fabric for memory of devices as well; NULL: that is not offered.
 * The caller's. */
static struct fi_info *for_devices(const struct mooi_libfabric *library,
                                   const struct fi_info *chosen)
{
    struct fi_info *all = NULL, *found;

    if (list(library, chosen->fabric_attr->prov_name, 1, &all))
        return NULL;
    for (found = all; found; found = found->next)
        if (is_same(found, chosen) && (found->caps & FI_HMEM))
            break;
    if (found)
        found = library->dupinfo(found);
    library->freeinfo(all);
    return found;
}

/* Replace the chosen entry by it, if it is wanted. */
static moo_err add_devices(const struct mooi_libfabric *library,
                           const struct mooi_fabric_options *options,
                           struct fi_info **info, char *why, size_t room)
{
    struct fi_info *better = NULL;

    if (options->devices != MOO_DEVICES_NO)
        better = for_devices(library, *info);
    if (!better && options->devices == MOO_DEVICES_REQUIRED) {
        snprintf(why, room, "%s of libfabric %u.%u offers no memory of GPUs "
                            "(FI_HMEM)", (*info)->fabric_attr->prov_name,
                 FI_MAJOR(library->version()), FI_MINOR(library->version()));
        library->freeinfo(*info);
        return MOO_EUNREACHABLE;
    }
    if (better) {
        library->freeinfo(*info);
        *info = better;
    }
    return MOO_OK;
}

static const char *name_of(const struct mooi_fabric_options *options)
{
    const char *name = options->provider;

    if (!name)
        name = getenv("MOOACTOR_FABRIC");
    return name && *name ? name : NULL;
}

static moo_err say_none(const struct mooi_libfabric *library, const char *name,
                        const char *bind, int err, char *why, size_t room)
{
    uint32_t version = library->version();

    if (name)
        snprintf(why, room, "libfabric %u.%u has no usable %s%s%s: %s",
                 FI_MAJOR(version), FI_MINOR(version), name,
                 bind ? " at " : "", bind ? bind : "",
                 err ? library->strerror(-err) : "no such address");
    else
        snprintf(why, room,
                 "libfabric %u.%u offers no RDMA: this machine has no device "
                 "for it (see ibv_devices), or the library lacks the provider "
                 "(see fi_info)", FI_MAJOR(version), FI_MINOR(version));
    return MOO_EUNREACHABLE;
}

moo_err mooi_fabric_choose(const struct mooi_libfabric *library,
                           const struct mooi_fabric_options *options,
                           struct fi_info **out, char *why, size_t room)
{
    const char *name = name_of(options);
    struct fi_info *all = NULL, *best;
    int err;

    if (name && !options->keyless &&
        (!strcmp(name, "shm") || !strcmp(name, "sockets"))) {
        snprintf(why, room, "libfabric's %s is not used, because it does "
                            "not check keys: choose another provider", name);
        return MOO_EUNREACHABLE;
    }
    err = list(library, name, 0, &all);
    best = err ? NULL : best_of(all, options, name != NULL);
    *out = best ? library->dupinfo(best) : NULL;
    if (all)
        library->freeinfo(all);
    if (!best)
        return say_none(library, name, options->bind, err, why, room);
    if (!*out)
        return MOO_ENOMEM;
    return add_devices(library, options, out, why, room);
}

/* ---- the probe ---- */

/* Append to `text`, cut at `room`. */
static void add(char *text, size_t room, const char *more)
{
    size_t used = strlen(text);

    snprintf(text + used, room - used, "%s", more);
}

static void add_entry(char *text, size_t room, const struct fi_info *info)
{
    char ip[INET6_ADDRSTRLEN], line[256];

    address_of(info, ip);
    snprintf(line, sizeof line, "\n%s: %s%s%s", info->fabric_attr->prov_name,
             domain_of(info),
             *ip ? ", " : "", ip);
    if (!strstr(text, line))
        add(text, room, line);
}

moo_err mooi_fabric_probe(char *text, size_t room)
{
    const struct mooi_fabric_options any = {.bind = "*"};
    const struct mooi_libfabric *library;
    struct fi_info *best, *better, *all = NULL;
    char why[MOOI_FABRIC_WHY_BYTES];
    moo_err err = mooi_libfabric(&library, text, room);

    if (err != MOO_OK)
        return err;
    snprintf(text, room, "libfabric %u.%u (%s)", FI_MAJOR(library->version()),
             FI_MINOR(library->version()), library->path);
    err = mooi_fabric_choose(library, &any, &best, why, sizeof why);
    if (err != MOO_OK) {
        add(text, room, "\n");
        add(text, room, why);
        return err;
    }
    add_entry(text, room, best);
    better = for_devices(library, best);
    add(text, room, better ? ", memory of GPUs, too" : ", not memory of GPUs");
    if (better)
        library->freeinfo(better);
    if (!list(library, NULL, 0, &all)) {
        for (struct fi_info *info = all; info; info = info->next)
            if (rank_of(info->fabric_attr->prov_name) >= 0)
                add_entry(text, room, info);
        library->freeinfo(all);
    }
    library->freeinfo(best);
    return MOO_OK;
}
