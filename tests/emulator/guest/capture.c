/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * capture OUT ROUNDS CONFIG...: run the workload on every CPU while the kernel's own intel_pt driver
 * traces whole CPUs, once for each CONFIG = NAME:user|kernel|both:HEX[:SYMBOL], HEX being the
 * event's config. With a kernel function's name only that function is traced.
 *
 * Writes for each NAME into OUT/NAME: cpuN.pt, the trace of CPU N; text-*, the executable memory that
 * ran; and images.tsv, which says FILE OFFSET SIZE ADDRESS of each, tab-separated, in hex.
 *
 * versions.tsv tells how the code at one address changes: ADDRESS SIZE COMMIT, and then a FILE for each
 * version. The first is there when a trace begins, and each execution of COMMIT brings the next, circling.
 *
 * capture --run ROUNDS: only run the workload on every CPU, without what perf can't follow, for others to trace.
 *
 * All of user mode must be this program and those of WORKLOAD_PROGRAMS, exec64 and exec32 beside it, which
 * must be static and not position-independent, so that one set of images serves all its processes.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

#define PAGE 4096UL
#define AUX_SIZE (32UL << 20)
/* Small enough that the driver's PMI handler runs now and then. */
#define AUX_WATERMARK (1UL << 20)
#define DATA_PAGES 9UL
#define MAX_CPUS 8

static const char *programs[WORKLOAD_PROGRAMS];

struct event {
	int fd;
	struct perf_event_mmap_page *page;
	uint8_t *aux;
};

static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, errno ? ": %s\n" : "\n", strerror(errno));
	exit(1);
}

static unsigned int pt_type(void)
{
	FILE *f = fopen("/sys/bus/event_source/devices/intel_pt/type", "r");
	unsigned int type;

	if (!f || fscanf(f, "%u", &type) != 1)
		die("no intel_pt in this kernel");
	fclose(f);
	return type;
}

static void event_open(struct event *e, int cpu, const char *what, uint64_t config)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = pt_type(),
		.config = config,
		.disabled = 1,
		.exclude_kernel = !strcmp(what, "user"),
		.exclude_user = !strcmp(what, "kernel"),
		.exclude_hv = 1,
		.aux_watermark = AUX_WATERMARK,
	};

	e->fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0);
	if (e->fd < 0)
		die("perf_event_open");
	e->page = mmap(NULL, DATA_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
	if (e->page == MAP_FAILED)
		die("mmap of the data pages");
	e->page->aux_offset = DATA_PAGES * PAGE;
	e->page->aux_size = AUX_SIZE;
	e->aux = mmap(NULL, AUX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, DATA_PAGES * PAGE);
	if (e->aux == MAP_FAILED)
		die("mmap of the AUX area");
}

static void event_close(struct event *e)
{
	munmap(e->aux, AUX_SIZE);
	munmap(e->page, DATA_PAGES * PAGE);
	close(e->fd);
}

static void write_file(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	const char *p = data;

	if (fd < 0)
		die("%s", path);
	while (len) {
		ssize_t n = write(fd, p, len);

		if (n <= 0)
			die("%s", path);
		p += n;
		len -= n;
	}
	close(fd);
}

static void write_trace(const struct event *e, const char *dir, int cpu)
{
	uint64_t head = __atomic_load_n(&e->page->aux_head, __ATOMIC_ACQUIRE);
	char path[256];

	if (head > AUX_SIZE)
		die("the AUX area is too small");
	snprintf(path, sizeof(path), "%s/cpu%d.pt", dir, cpu);
	write_file(path, e->aux, head);
	printf("%s: %" PRIu64 " bytes\n", path, head);
}

/* The user part of memory that this process and its children execute. */
static void write_user_text(const char *dir, FILE *table)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uint64_t from, to;
	char line[512], mode[5], path[256];
	int n = 0;

	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, mode) != 3 ||
		    mode[2] != 'x' || from >> 63)
			continue;
		snprintf(path, sizeof(path), "%s/text-user%d", dir, n);
		write_file(path, (void *)(uintptr_t)from, to - from);
		fprintf(table, "text-user%d\t0\t%" PRIx64 "\t%" PRIx64 "\n", n++, to - from, from);
	}
	fclose(maps);
}

/* The code of a program that the workload executes. */
static void write_program_text(const char *dir, FILE *table, const char *program, int n)
{
	int fd = open(program, O_RDONLY);
	char path[256], name[32];
	uint8_t *file;
	off_t size;

	size = lseek(fd, 0, SEEK_END);
	file = malloc(size);
	if (fd < 0 || pread(fd, file, size, 0) != size)
		die("%s", program);
	close(fd);
	snprintf(name, sizeof(name), "text-program%d", n);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	write_file(path, file, size);
	if (file[EI_CLASS] == ELFCLASS64) {
		const Elf64_Ehdr *eh = (const void *)file;
		const Elf64_Phdr *ph = (const void *)(file + eh->e_phoff);

		for (int i = 0; i < eh->e_phnum; i++)
			if (ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_X)
				fprintf(table, "%s\t%" PRIx64 "\t%" PRIx64 "\t%" PRIx64 "\n", name,
					ph[i].p_offset, ph[i].p_filesz, ph[i].p_vaddr);
	} else {
		const Elf32_Ehdr *eh = (const void *)file;
		const Elf32_Phdr *ph = (const void *)(file + eh->e_phoff);

		for (int i = 0; i < eh->e_phnum; i++)
			if (ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_X)
				fprintf(table, "%s\t%x\t%x\t%x\n", name, ph[i].p_offset, ph[i].p_filesz,
					ph[i].p_vaddr);
	}
	free(file);
}

static void write_versions(const char *dir)
{
	char path[256], name[32];
	FILE *table;

	snprintf(path, sizeof(path), "%s/versions.tsv", dir);
	table = fopen(path, "w");
	if (!table)
		die("%s", path);
	fprintf(table, "%" PRIxPTR "\t%x\t%" PRIxPTR "\n", (uintptr_t)SMC, SMC_SIZE, (uintptr_t)smc_commit);
	for (int i = 0; i < SMC_VERSIONS; i++) {
		snprintf(name, sizeof(name), "version%d", i);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		write_file(path, smc_versions[i], SMC_SIZE);
		fprintf(table, "%s\n", name);
	}
	fclose(table);
}

static uint64_t symbol(const char *name)
{
	FILE *f = fopen("/proc/kallsyms", "r");
	char line[512], found[256], type;
	uint64_t addr, ret = 0;

	while (!ret && fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64 " %c %255s", &addr, &type, found) == 3 &&
		    !strcmp(found, name))
			ret = addr;
	fclose(f);
	return ret;
}

/* Kernel memory from..to through /proc/kcore, whose segments say where it is in the file. */
static void write_kernel_range(const char *dir, FILE *table, const char *name, uint64_t from,
			       uint64_t to)
{
	int fd = open("/proc/kcore", O_RDONLY);
	Elf64_Ehdr eh;
	char path[256];
	uint8_t *buf;

	if (fd < 0 || pread(fd, &eh, sizeof(eh), 0) != sizeof(eh))
		die("/proc/kcore");
	for (int i = 0; i < eh.e_phnum; i++) {
		Elf64_Phdr ph;

		if (pread(fd, &ph, sizeof(ph), eh.e_phoff + i * sizeof(ph)) != sizeof(ph))
			die("/proc/kcore");
		if (ph.p_type != PT_LOAD || from < ph.p_vaddr || to > ph.p_vaddr + ph.p_memsz)
			continue;
		buf = malloc(to - from);
		for (uint64_t at = from; at < to;) {
			ssize_t n = pread(fd, buf + (at - from), to - at,
					  ph.p_offset + (at - ph.p_vaddr));

			if (n <= 0)
				die("/proc/kcore at %" PRIx64, at);
			at += n;
		}
		snprintf(path, sizeof(path), "%s/text-%s", dir, name);
		write_file(path, buf, to - from);
		fprintf(table, "text-%s\t0\t%" PRIx64 "\t%" PRIx64 "\n", name, to - from, from);
		free(buf);
		close(fd);
		return;
	}
	die("/proc/kcore has no %s", name);
}

static void write_module_text(const char *dir, FILE *table)
{
	FILE *f = fopen("/proc/modules", "r");
	char line[512], name[64];
	uint64_t size, addr;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %" SCNu64 " %*s %*s %*s %" SCNx64, name, &size, &addr) == 3)
			write_kernel_range(dir, table, name, addr, addr + ((size + PAGE - 1) & -PAGE));
	if (f)
		fclose(f);
}

static void write_images(const char *dir)
{
	char path[256];
	FILE *table;

	snprintf(path, sizeof(path), "%s/images.tsv", dir);
	table = fopen(path, "w");
	if (!table)
		die("%s", path);
	write_user_text(dir, table);
	for (int i = 0; i < WORKLOAD_PROGRAMS; i++)
		write_program_text(dir, table, programs[i], i);
	write_versions(dir);
	write_kernel_range(dir, table, "kernel", symbol("_stext"), symbol("_etext"));
	write_module_text(dir, table);
	fclose(table);
}

/* Trace one function of the kernel only: up to the next symbol. */
static void set_range(const struct event *e, const char *function)
{
	uint64_t start = symbol(function), end = UINT64_MAX, addr;
	FILE *f = fopen("/proc/kallsyms", "r");
	char line[512], filter[128];

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64, &addr) == 1 && addr > start && addr < end)
			end = addr;
	fclose(f);
	snprintf(filter, sizeof(filter), "filter 0x%" PRIx64 "/0x%" PRIx64, start, end - start);
	if (!start || ioctl(e->fd, PERF_EVENT_IOC_SET_FILTER, filter))
		die("%s: %s", function, filter);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("CPU %d", cpu);
}

static void run_everywhere(int cpus, unsigned int rounds, bool all)
{
	for (int cpu = 0; cpu < cpus; cpu++) {
		if (fork())
			continue;
		pin(cpu);
		workload_run(rounds, all);
		_exit(0);
	}
	for (int cpu = 0; cpu < cpus; cpu++) {
		int status;

		wait(&status);
		if (status)
			die("the workload ended with status %#x", status);
	}
}

static void capture(const char *out, char *config, int cpus, unsigned int rounds)
{
	struct event events[MAX_CPUS];
	char dir[128];
	char *name = strtok(config, ":"), *what = strtok(NULL, ":"), *hex = strtok(NULL, ":");
	char *function = strtok(NULL, ":");

	if (!hex)
		die("NAME:WHAT:HEX wanted");
	snprintf(dir, sizeof(dir), "%s/%s", out, name);
	mkdir(dir, 0777);
	for (int i = 0; i < cpus; i++) {
		event_open(&events[i], i, what, strtoull(hex, NULL, 16));
		if (function)
			set_range(&events[i], function);
	}
	/* The kernel patches itself on first use of this and that: let it, before. */
	run_everywhere(cpus, 1, true);
	sleep(1);
	for (int i = 0; i < cpus; i++)
		ioctl(events[i].fd, PERF_EVENT_IOC_ENABLE, 0);
	run_everywhere(cpus, rounds, true);
	for (int i = 0; i < cpus; i++)
		ioctl(events[i].fd, PERF_EVENT_IOC_DISABLE, 0);
	/* While the events are open: closing them patches the kernel, too. */
	write_images(dir);
	for (int i = 0; i < cpus; i++) {
		write_trace(&events[i], dir, i);
		event_close(&events[i]);
	}
}

static const char *beside(const char *program, const char *name)
{
	const char *slash = strrchr(program, '/');
	char *path;

	if (asprintf(&path, "%.*s%s", slash ? (int)(slash + 1 - program) : 0, program, name) < 0)
		exit(1);
	return path;
}

int main(int argc, char **argv)
{
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (argc < 4 && !(argc == 3 && !strcmp(argv[1], "--run"))) {
		fprintf(stderr, "usage: capture OUT ROUNDS NAME:user|kernel|both:HEX[:SYMBOL]...\n"
			"       capture --run ROUNDS\n");
		return 2;
	}
	/* Once more without address randomisation: the vDSO must be where it will be written from. */
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) {
		personality(ADDR_NO_RANDOMIZE);
		execv("/proc/self/exe", argv);
		die("exec");
	}
	programs[0] = beside(argv[0], "exec64");
	programs[1] = beside(argv[0], "exec32");
	workload_setup(programs);
	if (argc == 3) {
		run_everywhere(cpus, atoi(argv[2]), false);
		return 0;
	}
	for (int i = 3; i < argc; i++)
		capture(argv[1], argv[i], cpus < MAX_CPUS ? cpus : MAX_CPUS, atoi(argv[2]));
	return 0;
}
