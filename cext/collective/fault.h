/* SPDX-License-Identifier: MIT */
/*
 * fault.h: the points at which the tests let a member die. Other builds have
 * none of it.
 */
#ifndef MOOI_FAULT_H
#define MOOI_FAULT_H

#ifdef MOOI_FAULTS
/* NULL, or what is called at each point. */
extern void (*mooi_fault)(const char *point);
#define MOOI_FAULT(POINT) (mooi_fault ? mooi_fault(POINT) : (void)0)
#else
#define MOOI_FAULT(POINT) ((void)0)
#endif

#endif
