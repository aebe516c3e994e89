/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code cut into paths: from an address to the next instruction after which only the trace tells where the CPU
 * went. Direct jumps and calls are followed. A path is walked once and then kept, with links to the paths
 * that come after it. Private to flow/.
 */
#ifndef PTWATCH_FLOW_WALK_H
#define PTWATCH_FLOW_WALK_H

#include "flow/code.h"

/* How a path ends, and what decides how it goes on */
enum path_end {
	PATH_COND,	/* conditional jump: TNT */
	PATH_RETURN,	/* near return: TNT (compressed) or TIP */
	PATH_CALL,	/* indirect call: TIP */
	PATH_JUMP,	/* indirect jump: TIP */
	PATH_FAR_CALL,	/* SYSCALL, INT n, …: TIP */
	PATH_FAR_RETURN,
	PATH_FAR_JUMP,
	PATH_LONG,	/* nothing: it was cut off for its length and goes on at .next */
	PATH_LOOP,	/* nothing ever: it comes back to itself */
	PATH_NOWHERE,	/* there is no code at .next, or none that can be understood */
};

/* What is of interest about an instruction besides its address */
enum path_insn_kind {
	INSN_PLAIN,
	INSN_CALL,	/* direct; the path goes on at its target */
	INSN_CALL_NEXT,	/* the same to the next instruction, which no return ever comes back to */
	INSN_JUMP,
	INSN_JUMP_OUT,	/* direct, to another function */
	INSN_CR3,	/* MOV to CR3 */
	INSN_PTWRITE,
	INSN_END,	/* the last one, see enum path_end */
};

struct path_insn {
	int32_t at;	/* address, from the path's */
	uint8_t size;
	uint8_t kind;	/* enum path_insn_kind */
	uint16_t unused;
};

struct path {
	uint64_t ip;
	uint64_t last;		/* address of the last instruction */
	uint64_t next;		/* behind it; of PATH_LONG and PATH_NOWHERE where it goes on */
	uint64_t target;	/* of PATH_COND */
	struct path *taken, *fall;	/* what is at @target and @next, once known */
	const struct ptw_symbol *symbol, *last_symbol;	/* functions at @ip and @last */
	char *text;		/* a line with the address of each instruction, once wanted */
	uint8_t *code;		/* of each instruction its size, then its bytes, once wanted: @code_size bytes */
	uint32_t code_size;
	uint32_t space;
	uint16_t count;		/* of instructions; 0 only with PATH_NOWHERE */
	uint8_t end;		/* enum path_end */
	uint8_t bits;
	uint8_t taken_out;	/* PATH_COND: the target is another function */
	uint8_t inner;		/* how many direct branches are inside */
	bool calls;		/* some of them are calls or lead out of the function */
	uint16_t *branch;	/* which instructions they are, @inner of them */
	struct path_insn insn[];
};

struct walk;

/** walk_new() - paths through @view's code; NULL: out of memory */
struct walk *walk_new(struct code_view *view);
void walk_free(struct walk *walk);

/** walk_space() - the code is another's; no path is gone */
void walk_space(struct walk *walk, struct code_space *space, uint64_t time);

/** walk_time() - the code is of another time. Return: paths are gone, or no longer what is at their address. */
bool walk_time(struct walk *walk, uint64_t time);

/** walk_next_change() - code stays as it is until then */
uint64_t walk_next_change(const struct walk *walk);

/** walk_path() - the path from @ip; NULL: out of memory. It stays until walk_time() or walk_trim() say other. */
struct path *walk_path(struct walk *walk, uint64_t ip, unsigned int bits);

/** walk_trim() - forget all paths if they have become too many. Return: whether they are gone. */
bool walk_trim(struct walk *walk);

/**
 * walk_doubt() - why libipt follows the code at @ip and a walk does not
 * @branch: the walk takes it for a branch; else for no instruction
 *
 * Return: a text, which stays as long as the code does.
 */
const char *walk_doubt(struct walk *walk, uint64_t ip, bool branch);

/** path_text() - see path.text; NULL: out of memory */
const char *path_text(struct walk *walk, struct path *path);

/** path_code() - see path.code, while the walk is in the path's process; NULL: out of memory */
const uint8_t *path_code(struct walk *walk, struct path *path);

static inline uint64_t path_ip(const struct path *path, unsigned int i)
{
	uint64_t ip = path->ip + (int64_t)path->insn[i].at;

	return path->bits == 64 ? ip : (uint32_t)ip;
}

/* Where the direct branch that is instruction @i, one of path.branch, leads */
static inline uint64_t path_branch_target(const struct path *path, unsigned int i)
{
	return i + 1u < path->count ? path_ip(path, i + 1) : path->next;
}

#endif /* PTWATCH_FLOW_WALK_H */
