// SPDX-License-Identifier: BSD-2-Clause
#include "control/kernel_memory.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More processes than the largest pid_max; a walk that is longer has left the list. */
#define WALK_LIMIT	(4U << 20)
#define WALKS		16

struct ptw_kernel_memory {
	int fd;
	Elf64_Phdr *segment;
	size_t segments;
};

struct ptw_kernel_memory *ptw_kernel_memory_open(const char *path, struct ptw_error *err)
{
	struct ptw_kernel_memory *memory = calloc(1, sizeof(*memory));
	const char *name = path ? path : "/proc/kcore";
	Elf64_Ehdr header;
	size_t size;

	if (!memory) {
		ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
		return NULL;
	}
	memory->fd = open(name, O_RDONLY | O_CLOEXEC);
	if (memory->fd < 0) {
		if (errno == EPERM)
			ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				      "%s can't be read (kernel lockdown or a missing CAP_SYS_RAWIO); give the address instead: TYPE.FIELD@0xADDR",
				      name);
		else
			ptw_error_set(err, errno == ENOENT ? PTW_EXIT_UNSUPPORTED : PTW_EXIT_FAILED,
				      "%s can't be read: %s; give the address instead: TYPE.FIELD@0xADDR", name, strerror(errno));
		goto fail;
	}
	if (pread(memory->fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_phentsize != sizeof(Elf64_Phdr) || !header.e_phnum) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s is not an ELF core of this machine", name);
		goto fail;
	}
	size = header.e_phnum * sizeof(Elf64_Phdr);
	memory->segment = malloc(size);
	if (!memory->segment || pread(memory->fd, memory->segment, size, header.e_phoff) != (ssize_t)size) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s is cut short", name);
		goto fail;
	}
	memory->segments = header.e_phnum;
	return memory;
fail:
	ptw_kernel_memory_close(memory);
	return NULL;
}

void ptw_kernel_memory_close(struct ptw_kernel_memory *memory)
{
	if (!memory)
		return;
	if (memory->fd >= 0)
		close(memory->fd);
	free(memory->segment);
	free(memory);
}

int ptw_kernel_memory_read(const struct ptw_kernel_memory *memory, uint64_t address, void *buf, size_t size)
{
	for (size_t i = 0; i < memory->segments; i++) {
		const Elf64_Phdr *s = &memory->segment[i];

		if (s->p_type != PT_LOAD || address < s->p_vaddr || address - s->p_vaddr >= s->p_memsz ||
		    size > s->p_memsz - (address - s->p_vaddr))
			continue;
		return pread(memory->fd, buf, size, (off_t)(s->p_offset + (address - s->p_vaddr))) == (ssize_t)size ? 0 : -1;
	}
	return -1;
}

/* ---- tasks ---- */

struct task_layout {
	struct ptw_field tasks, pid, tgid, signal, thread_node, thread_head;
};

/* Lists of the kernel: a ring of struct list_head, of which next is the first field. */
struct walk {
	const struct ptw_kernel_memory *memory;
	const struct task_layout *layout;
	uint64_t head;		/* where the ring begins and ends */
	uint64_t link;		/* offset of the list_head in task_struct */
};

static int read_id(const struct walk *walk, uint64_t task, const struct ptw_field *field, pid_t *id)
{
	int32_t value;

	if (ptw_kernel_memory_read(walk->memory, task + field->offset, &value, sizeof(value)))
		return -1;
	*id = value;
	return 0;
}

/* Return: 1: found; 0: it is not there; -1: the list changed under us. */
static int find_in_ring(const struct walk *walk, pid_t wanted, uint64_t *task)
{
	uint64_t at = walk->head;
	pid_t id;

	for (unsigned int i = 0; i < WALK_LIMIT; i++) {
		if (ptw_kernel_memory_read(walk->memory, at, &at, sizeof(at)))
			return -1;
		if (at == walk->head)
			return 0;
		/* The kernel's addresses have the top bit; a poisoned pointer of a removed entry does not. */
		if (!(at >> 63))
			return -1;
		if (read_id(walk, at - walk->link, &walk->layout->pid, &id))
			return -1;
		if (id == wanted) {
			*task = at - walk->link;
			return 1;
		}
	}
	return -1;
}

static int find_task(const struct ptw_kernel_memory *memory, const struct task_layout *layout, uint64_t init_task,
		     pid_t tid, pid_t tgid, uint64_t *task)
{
	struct walk processes = { .memory = memory, .layout = layout };
	struct walk threads = processes;
	uint64_t leader, signal;
	pid_t id;
	int found;

	processes.link = layout->tasks.offset;
	processes.head = init_task + layout->tasks.offset;
	found = find_in_ring(&processes, tgid, &leader);
	if (found != 1)
		return found;
	if (tid == tgid) {
		*task = leader;
	} else {
		if (ptw_kernel_memory_read(memory, leader + layout->signal.offset, &signal, sizeof(signal)))
			return -1;
		threads.link = layout->thread_node.offset;
		threads.head = signal + layout->thread_head.offset;
		found = find_in_ring(&threads, tid, task);
		if (found != 1)
			return found;
	}
	/* What is found must be what it is said to be. */
	if (read_id(&processes, *task, &layout->pid, &id) || id != tid || read_id(&processes, *task, &layout->tgid, &id) ||
	    id != tgid)
		return -1;
	return 1;
}

int ptw_kernel_task(const struct ptw_kernel_memory *memory, const struct ptw_symbols *symbols,
		    const struct ptw_types *types, pid_t tid, pid_t tgid, uint64_t *address,
		    struct ptw_error *err)
{
	struct task_layout layout;
	const struct { const char *path; struct ptw_field *field; uint64_t size; } fields[] = {
		{ "task_struct.tasks", &layout.tasks, 16 },
		{ "task_struct.pid", &layout.pid, 4 },
		{ "task_struct.tgid", &layout.tgid, 4 },
		{ "task_struct.signal", &layout.signal, 8 },
		{ "task_struct.thread_node", &layout.thread_node, 16 },
		{ "signal_struct.thread_head", &layout.thread_head, 16 },
	};
	uint64_t init_task;
	int found = 0;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (ptw_types_field(types, fields[i].path, fields[i].field, err))
			return -1;
		if (fields[i].field->size != fields[i].size)
			return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
					     "%s has %llu bytes in this kernel, not %llu; give the address instead: TYPE.FIELD@0xADDR",
					     fields[i].path, (unsigned long long)fields[i].field->size,
					     (unsigned long long)fields[i].size);
	}
	if (ptw_symbols_resolve(symbols, "vmlinux:init_task", &init_task, NULL, err))
		return -1;
	for (int i = 0; i < WALKS && found != 1; i++)
		found = find_task(memory, &layout, init_task, tid, tgid, address);
	if (found == 1)
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "the task_struct of thread %d is not to be found%s", tid,
			     found ? ", the kernel's lists changed too fast; try again" : "; has it ended?");
}
