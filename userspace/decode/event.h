/* SPDX-License-Identifier: BSD-2-Clause */
/* What a trace tells besides branches. */
#ifndef PTWATCH_DECODE_EVENT_H
#define PTWATCH_DECODE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

enum ptw_event_type {
	PTW_EVENT_ENABLED, /* tracing begins at .ip; .value: 1 when it resumes where it was disabled */
	PTW_EVENT_DISABLED, /* tracing ended; .ip: where the CPU went */
	PTW_EVENT_ASYNC_DISABLED, /* the same at .from, by an interrupt or exception */
	PTW_EVENT_ASYNC_BRANCH, /* interrupt or exception: .from, which did not execute, to .ip */
	PTW_EVENT_PAGING, /* CR3 is .value */
	PTW_EVENT_OVERFLOW, /* the CPU dropped packets; tracing resumes at .ip */
	PTW_EVENT_EXEC_MODE, /* .value-bit mode at .ip */
	PTW_EVENT_TSX, /* .value: bit 0 in a transaction, bit 1 aborted */
	PTW_EVENT_STOP, /* TraceStop */
	PTW_EVENT_VMCS, /* base address in .value */
	PTW_EVENT_EXSTOP, /* execution stopped at .ip */
	PTW_EVENT_MWAIT, /* .value: ext << 32 | hints */
	PTW_EVENT_PWRE, /* .value: C-state << 4 | sub state */
	PTW_EVENT_PWRX, /* .value: deepest << 4 | last C-state */
	PTW_EVENT_PTWRITE, /* .value by the instruction at .ip */
	PTW_EVENT_CBR, /* .value: core:bus ratio */
	PTW_EVENT_MNT, /* .value */
	PTW_EVENT_INTERRUPT, /* event trace: vector in .value at .ip */
	PTW_EVENT_IRET,
	PTW_EVENT_SMI,
	PTW_EVENT_RSM,
	PTW_EVENT_SIPI,
	PTW_EVENT_INIT,
	PTW_EVENT_VMENTRY,
	PTW_EVENT_VMEXIT,
	PTW_EVENT_SHUTDOWN,
	PTW_EVENT_UINTR,
	PTW_EVENT_UIRET,
	PTW_EVENT_IFLAGS,
	PTW_EVENT_SWINTR,
	PTW_EVENT_SYSCALL,
	PTW_EVENT_TRIGGER,
	PTW_EVENT_OTHER, /* the library knows more than we do */
};

struct ptw_event {
	enum ptw_event_type type;
	bool has_ip;		/* @ip is known; it may be filtered out or suppressed */
	bool status_update;	/* a PSB repeats the state; nothing happened */
	uint64_t ip;
	uint64_t from;
	uint64_t value;
};

/** ptw_event_name() - "enabled", "overflow", … */
const char *ptw_event_name(enum ptw_event_type type);

#endif /* PTWATCH_DECODE_EVENT_H */
