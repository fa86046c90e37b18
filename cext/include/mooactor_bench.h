/* SPDX-License-Identifier: MIT */
/*
 * mooactor_bench.h: functions for `make bench-all` only. They are bound, as
 * mooactor.h is, in builds with libfabric.
 */
#ifndef MOOACTOR_BENCH_H
#define MOOACTOR_BENCH_H

#include "mooactor.h"

/* cdef: begin */

/* ---- libfabric without us: the base line of reads over a fabric ---- */

typedef struct moo_bare moo_bare;
#define MOO_BARE_OFFER_BYTES 512

/* An endpoint and `bytes` of touched memory, to be read by another or to read
 * into. `provider`: NULL or as in moo_serve_options. One thread at a time.
 * MOO_EUNREACHABLE: there is no such fabric here, or it refuses: why[0, room)
 * says the reason. MOO_ENOMEM. */
moo_err moo_bare_open(const char *provider, size_t bytes, moo_bare **out,
                      char *why, size_t room);

/* The address and key for the reader: MOO_BARE_OFFER_BYTES. */
moo_err moo_bare_offer(moo_bare *bare, uint8_t *out);

/* Serve reads, without a pause, until `fd` is readable or hung up. */
moo_err moo_bare_serve(moo_bare *bare, int fd);

/* Read all of the offered memory into the same place of this endpoint's, with
 * at most 64 reads of `piece` bytes under way (0: as large as the fabric
 * takes). Polls without a pause, for `timeout_ms` at most. All calls must have
 * the same offer. MOO_EPROTO: it is none, or of less memory. MOO_EPEER,
 * MOO_ETIMEOUT: it failed; then only moo_bare_close is left. */
moo_err moo_bare_read(moo_bare *bare, const uint8_t *offer, size_t piece,
                      int timeout_ms);

/* After a failed read, memory that libfabric may still use stays until the
 * process ends. */
void moo_bare_close(moo_bare *bare);

/* cdef: end */

#endif
