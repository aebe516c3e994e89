/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Follows the packets that nearly all of a trace consists of along paths that were walked before, several
 * times faster than instruction by instruction. It understands no errors, errata or rare packets: whenever
 * something is not plain, it says so, and libipt (flow/slow.h) does that stretch from its PSB on. Private to
 * flow/.
 */
#ifndef PTWATCH_FLOW_ENGINE_H
#define PTWATCH_FLOW_ENGINE_H

#include "flow/runs.h"
#include "flow/sink.h"

/** struct engine_who - which process ran when, as far as its code is concerned */
struct engine_who {
	struct ptw_code *code;
	struct flow_runs runs;
	uint64_t switch_to;	/* function that switches stacks; 0: unknown */
};

enum engine_status {
	ENGINE_MORE,	/* the sink has enough for now */
	ENGINE_END,	/* all is done */
	ENGINE_DOUBT,	/* libipt should do this from engine.psb on */
};

#define ENGINE_CALLS	64	/* as deep as the CPU compresses returns */

struct engine {
	const struct ptw_pt_params *params;
	const uint8_t *data;	/* of the whole trace */
	size_t at;		/* the next packet */
	size_t end;		/* where the job ends: at a PSB or the end of the trace */
	size_t size;		/* of the trace */
	bool begins;		/* at the start of the story: say that tracing begins */

	size_t psb;		/* the last one */
	uint64_t psb_insns;	/* sink.insns there */
	struct flow_runs psb_runs;	/* who.runs there */

	struct path *path;	/* where the CPU is; NULL: tracing is off */
	unsigned int pos;	/* instructions of it that were executed */
	bool resumes;		/* between runs: at @resume_ip */
	uint64_t resume_ip;
	unsigned int bits;
	uint64_t last_ip;	/* for the compression of addresses */
	uint64_t calls[ENGINE_CALLS];
	unsigned int call_top, call_count;

	bool filtered;		/* address ranges may end tracing anywhere */
	bool have_fup;		/* @fup is where an asynchronous event happened; its TIP comes next */
	uint64_t fup;
	bool have_ptw;		/* @ptw waits for its FUP */
	uint64_t ptw;
	unsigned int new_bits;	/* with the next TIP; 0: as they are */
	bool have_cr3;		/* with the next TIP: */
	uint64_t cr3;

	/* Time */
	bool have_tsc, have_ctc, have_mtc, cyc_running;
	uint64_t base;		/* TSC at the last timing packet that tells more than CYC */
	uint64_t ctc_base;	/* TSC at the CTC of TMA */
	uint32_t ctc;		/* of TMA */
	uint64_t ctc_ticks;	/* since then */
	uint8_t mtc;
	uint64_t cycles;	/* since @base */
	double tsc_per_cycle;	/* 0: unknown */
	uint64_t next_change;	/* ns: code changes then */
	struct engine_who who;
};

/** engine_who_now() - set @walk to the process that runs at @time (ns). To be called on the way to user code. */
void engine_who_now(struct engine_who *who, struct walk *walk, bool timed, uint64_t time);

void engine_start(struct engine *engine, size_t psb, size_t end);

/** engine_run() - until the sink has @room records (or that many times 64 bytes of text) */
enum engine_status engine_run(struct engine *engine, struct sink *sink, size_t room);

/** engine_psb_ip() - address in the FUP of the PSB+ at @psb. Return: false: there is none. */
bool engine_psb_ip(const uint8_t *data, size_t size, size_t psb, uint64_t *ip);

/** engine_psb_tsc() - the time in the PSB+ at @psb. Return: false: there is none. */
bool engine_psb_tsc(const uint8_t *data, size_t size, size_t psb, uint64_t *tsc);

/** engine_cyc_size() - of the CYC at @p, and its @value; 0: it is too long, is cut off, or hides an OVF */
size_t engine_cyc_size(const uint8_t *p, size_t left, uint64_t *value);

/** engine_long_size() - of the packet at @p whose head has two bytes; 0: there is no such packet */
size_t engine_long_size(const uint8_t *p, size_t left);

/** engine_ip_size() - of a packet with an address, by its @compression (IPBytes); 0: there is no such packet */
size_t engine_ip_size(unsigned int compression);

/** engine_ip() - the address whose bytes are at @p, behind the address @last */
uint64_t engine_ip(uint64_t last, unsigned int compression, const uint8_t *p);

#endif /* PTWATCH_FLOW_ENGINE_H */
