/* SPDX-License-Identifier: MIT */
#include "mooactor.h"

const char *moo_strerror(int err)
{
    switch (err) {
    case MOO_OK:
        return "success";
    case MOO_EINVAL:
        return "invalid argument";
    case MOO_ENOMEM:
        return "out of shared memory";
    case MOO_ECLOSED:
        return "already closed";
    case MOO_EPEER:
        return "the other process died or hung up";
    case MOO_ETIMEOUT:
        return "timed out";
    case MOO_EPROTO:
        return "malformed message from the other process";
    case MOO_EAUTH:
        return "the other process does not know the session key";
    case MOO_EVERSION:
        return "the other process speaks another version";
    case MOO_ESYS:
        return "a system call failed";
    case MOO_EFORK:
        return "used in a forked child";
    case MOO_ESTALE:
        return "the lease is gone";
    case MOO_EUNREACHABLE:
        return "no allowed transport leads to the other process";
    default:
        return "unknown error";
    }
}
