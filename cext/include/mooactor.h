/* SPDX-License-Identifier: MIT */
/*
 * mooactor.h: the whole C interface of mooactor.
 *
 * cext/build.py cuts everything between the two cdef markers below and hands
 * it to cffi, so that part holds plain declarations only: no #include, no
 * macro but `#define NAME integer`, no inline function.
 *
 * Unless a contract says otherwise, a function may be called from any thread,
 * does not block, and after an error leaves its arguments as they were.
 * Results are moo_err; values come back through out-parameters.
 */
#ifndef MOOACTOR_H
#define MOOACTOR_H

#include <stddef.h>
#include <stdint.h>

/* cdef: begin */

/* ---- errors ---- */

/* What a function reports. MOO_OK is 0, every other value is negative. */
typedef enum {
    MOO_OK = 0,
    MOO_EINVAL = -1,   /* an argument no correct caller passes */
    MOO_ENOMEM = -2,   /* the limit of shared memory, or the system's */
    MOO_ECLOSED = -3,  /* this plane or group was closed */
    MOO_EPEER = -4,    /* the other process died or hung up */
    MOO_ETIMEOUT = -5, /* the deadline passed first */
    MOO_EPROTO = -6,   /* bytes that no correct peer sends */
    MOO_EAUTH = -7,    /* the other side does not know the session key */
    MOO_EVERSION = -8, /* the other side speaks another version */
    MOO_ESYS = -9,     /* a system call failed: errno holds the reason */
    MOO_EFORK = -10,   /* used in a forked child, which does not own it */
    MOO_ESTALE = -11   /* a lease that was revoked or used up before */
} moo_err;

/* A constant English phrase for `err`; never NULL, never to be freed. */
const char *moo_strerror(int err);

/* ---- collectives ---- */

/* cdef: end */

#endif
