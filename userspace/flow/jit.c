// SPDX-License-Identifier: BSD-2-Clause
#include "flow/jit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/unaligned.h"
#include "flow/stream.h"

#define MAGIC		0x4a695444U	/* as the machine that wrote it has it in memory: x86 is little endian */
#define HEAD_SIZE	40
#define ARCH_TIMESTAMP	1		/* in the head's flags: times are the CPU's TSC */
#define RECORD_SIZE	16
#define LOADS_LIMIT	(1u << 18)

enum record_id { CODE_LOAD, CODE_MOVE, DEBUG_INFO, CODE_CLOSE };

bool jit_is_dump(const char *name)
{
	const char *base = strrchr(name, '/');
	char tail;
	int pid;

	return sscanf(base ? base + 1 : name, "jit-%d.dum%c", &pid, &tail) == 2 && tail == 'p' &&
	       !strcmp(name + strlen(name) - 5, ".dump");
}

static bool is_clocked(const uint8_t *head, const struct ptw_pt_params *params)
{
	return get64(head + 32) & ARCH_TIMESTAMP && params->have_time && params->time_mult;
}

static bool is_unclocked_file(const char *path, const struct ptw_pt_params *params)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint8_t head[HEAD_SIZE];
	bool whole;

	if (fd < 0)
		return false;
	whole = pread(fd, head, sizeof(head), 0) == sizeof(head);
	close(fd);
	return whole && get32(head) == MAGIC && !is_clocked(head, params);
}

char *ptw_jitdump_unclocked(const struct ptw_recording *recording)
{
	for (size_t i = 0; i < recording->side_count; i++) {
		struct ptw_side_detail detail;
		char *path;

		ptw_recording_passed(recording, i);
		if (recording->side[i].type != PTW_SIDE_MMAP)
			continue;
		ptw_side_detail(&recording->side[i], &detail);
		path = jit_is_dump(detail.name) ? ptw_recording_beside(recording, detail.name) : NULL;
		if (path && is_unclocked_file(path, &recording->params))
			return path;
		free(path);
	}
	return NULL;
}

/* pid, tid, vma, address, size, number: 40 bytes; then the name and the code */
static bool take_load(const uint8_t *data, uint64_t at, uint64_t size, struct jit_load *load)
{
	const uint8_t *p = data + at + RECORD_SIZE, *end;
	uint64_t left = size - RECORD_SIZE;

	if (left < 40)
		return false;
	load->addr = get64(p + 16);
	load->size = get64(p + 24);
	load->index = get64(p + 32);
	load->name = (const char *)p + 40;
	end = memchr(p + 40, 0, left - 40);
	if (!end)
		return false;
	load->offset = end + 1 - data;
	return load->size && load->size <= at + size - load->offset && load->addr + load->size > load->addr;
}

/* pid, tid, vma, old address, new address, size, number */
static bool take_move(const uint8_t *data, uint64_t at, uint64_t size, const struct jit_load *loads, size_t count,
		      struct jit_load *load)
{
	const uint8_t *p = data + at + RECORD_SIZE;

	if (size - RECORD_SIZE < 48)
		return false;
	while (count--) {
		if (loads[count].index != get64(p + 40) || loads[count].addr != get64(p + 16))
			continue;
		load->addr = get64(p + 24);
		load->size = loads[count].size;
		load->offset = loads[count].offset;
		load->index = loads[count].index;
		load->name = loads[count].name;
		return load->addr + load->size > load->addr;
	}
	return false;
}

long jit_read(const uint8_t *data, uint64_t size, const struct ptw_pt_params *params, struct jit_load **out)
{
	struct jit_load *loads = NULL;
	bool clocked;
	long count = 0;

	*out = NULL;
	if (size < HEAD_SIZE || get32(data) != MAGIC || get32(data + 8) < HEAD_SIZE)
		return 0;
	clocked = is_clocked(data, params);
	for (uint64_t at = get32(data + 8), n; at <= size && size - at >= RECORD_SIZE && count < LOADS_LIMIT; at += n) {
		struct jit_load load = { .time = JIT_TIME_UNKNOWN };
		uint32_t id = get32(data + at);

		n = get32(data + at + 4);
		if (n < RECORD_SIZE || n > size - at || id == CODE_CLOSE)
			break;
		if (clocked)
			load.time = ptw_tsc_to_ns(params, get64(data + at + 8));
		if (!(id == CODE_LOAD && take_load(data, at, n, &load)) &&
		    !(id == CODE_MOVE && take_move(data, at, n, loads, count, &load)))
			continue;
		if (!(count & (count - 1))) {
			struct jit_load *grown = reallocarray(loads, count ? 2 * count : 1, sizeof(*grown));

			if (!grown) {
				free(loads);
				return -1;
			}
			loads = grown;
		}
		loads[count++] = load;
	}
	*out = loads;
	return count;
}
