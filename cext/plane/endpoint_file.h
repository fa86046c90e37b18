/* SPDX-License-Identifier: MIT */
/*
 * endpoint_file.h: endpoints as files in the plane's directory. All functions
 * may wait for a disk, but not for other processes.
 */
#ifndef MOOI_ENDPOINT_FILE_H
#define MOOI_ENDPOINT_FILE_H

#include "plane/endpoint.h"
#include "plane/plane.h"

/* Announce our endpoint. MOO_ESYS: see errno. */
moo_err mooi_endpoint_announce(moo_plane *plane);

/* Write our announced endpoint, whole or not at all. MOO_ESYS: see errno. */
moo_err mooi_endpoint_publish(moo_plane *plane,
                              const struct mooi_endpoint *endpoint);

/* Remove the endpoint, or its announcement. Harmless if there is neither. */
void mooi_endpoint_withdraw(moo_plane *plane);

/* Whether that process has announced an endpoint which is not there yet. */
int mooi_endpoint_is_coming(moo_plane *plane, uint64_t id);

/* MOO_ETIMEOUT: there is none (yet). MOO_EPROTO, MOO_EVERSION: it is not
 * valid. */
moo_err mooi_endpoint_find(moo_plane *plane, uint64_t id,
                           struct mooi_endpoint *out);

/* The identity of this host: a keyed hash of MOOACTOR_HOST_ID if that is set,
 * otherwise of the kernel's boot id and of the directory itself, so machines
 * differ, and so do containers that do not share the directory. MOO_ESYS: see
 * errno. */
moo_err mooi_host_identity(moo_plane *plane, uint8_t out[MOOI_HOST_BYTES]);

#endif
