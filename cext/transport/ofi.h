/* SPDX-License-Identifier: MIT */
/*
 * ofi.h: RDMA through libfabric, as the layers above see it: a table. It is
 * absent if the build did not find libfabric's headers; then no file of ofi/
 * is part of the build. Every owner of a fabric has the table.
 */
#ifndef MOOI_OFI_H
#define MOOI_OFI_H

#include "transport/ofi/fabric.h"

struct mooi_network_ops;

/* Contracts are in ofi/fabric.h, each with mooi_fabric_ before its
 * name; `register_memory` is mooi_fabric_register, a keyword of C. */
struct mooi_ofi {
    const struct mooi_network_ops *network;

    moo_err (*probe)(char *text, size_t room); /* moo_fabric_probe */
    moo_err (*open)(const struct mooi_fabric_options *options,
                    struct mooi_fabric **out, char *why, size_t room);
    void (*close)(struct mooi_fabric *fabric);
    const char *(*provider)(const struct mooi_fabric *fabric);
    size_t (*name)(const struct mooi_fabric *fabric,
                   uint8_t out[MOOI_FABRIC_NAME_BYTES]);
    int (*takes_devices)(const struct mooi_fabric *fabric);
    const char *(*strerror)(const struct mooi_fabric *fabric, int err);

    moo_err (*register_memory)(struct mooi_fabric *fabric, void *base,
                               size_t bytes, int access, int kind, int device,
                               struct mooi_fabric_region **out);
    void (*unregister)(struct mooi_fabric_region *region);
    uint64_t (*key)(const struct mooi_fabric_region *region);
    uint64_t (*base)(const struct mooi_fabric_region *region);
    int (*wants_regions)(const struct mooi_fabric *fabric);

    moo_err (*connect)(struct mooi_fabric *fabric, const uint8_t *name,
                       size_t bytes, struct mooi_fabric_peer **out);
    void (*forget)(struct mooi_fabric_peer *peer);
    moo_err (*read)(struct mooi_fabric_peer *peer,
                    const struct mooi_fabric_want *want);
    moo_err (*cancel)(struct mooi_fabric *fabric, const void *cookie);
};

extern const struct mooi_ofi *const mooi_ofi; /* NULL: it is absent */

/* As mooi_fabric_open, also where the table is absent: MOO_EUNREACHABLE. */
moo_err mooi_ofi_open(const struct mooi_fabric_options *options,
                      struct mooi_fabric **out, char *why, size_t room);

#endif
