/* SPDX-License-Identifier: MIT */
/* ofi.c: whether this build has a fabric, and the error if not. */
#include "transport/ofi.h"

#include <stdio.h>

#ifdef MOOI_NO_FABRIC
const struct mooi_ofi *const mooi_ofi = NULL;
#else
extern const struct mooi_ofi mooi_ofi_by_libfabric;
const struct mooi_ofi *const mooi_ofi = &mooi_ofi_by_libfabric;
#endif

static moo_err refuse(char *why, size_t room)
{
    snprintf(why, room, "built without libfabric headers; install "
                        "libfabric-dev and build mooactor again "
                        "(`mooactor doctor` has the command)");
    return MOO_EUNREACHABLE;
}

moo_err mooi_ofi_open(const struct mooi_fabric_options *options,
                      struct mooi_fabric **out, char *why, size_t room)
{
    return mooi_ofi ? mooi_ofi->open(options, out, why, room)
                    : refuse(why, room);
}

moo_err moo_fabric_probe(char *text, size_t room)
{
    return mooi_ofi ? mooi_ofi->probe(text, room) : refuse(text, room);
}
