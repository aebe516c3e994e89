// SPDX-License-Identifier: BSD-2-Clause
#include "control/sideband.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control/machine.h"

struct ring {
	int fd;
	int cpu;
	bool switches;
	struct perf_event_mmap_page *page;	/* the ring itself follows */
};

struct ptw_sideband {
	struct ring *ring;
	uint64_t *id;
	size_t count;
	size_t ring_size;
	int epoll;
	uint64_t lost;
};

static int open_failed(int cpu, int error, struct ptw_error *err)
{
	switch (error) {
	case EACCES:
	case EPERM:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "the kernel does not let us follow processes (perf_event_open: %s); run as root, or give CAP_PERFMON",
				     strerror(error));
	case ENOSYS:
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "this kernel has no perf events (CONFIG_PERF_EVENTS), so processes can't be followed");
	case EMFILE:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "too many open files: one is needed for each CPU; raise `ulimit -n`");
	case ENOMEM:
		return ptw_error_set(err, PTW_EXIT_FAILED, "no memory to follow processes on CPU %d", cpu);
	default:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot follow processes on CPU %d (perf_event_open): %s", cpu,
				     strerror(error));
	}
}

static int open_ring(struct ptw_sideband *sideband, struct ring *ring, uint64_t *id, struct ptw_error *err)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_period = 1,
		.sample_type = PTW_SIDEBAND_SAMPLE_TYPE,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.ksymbol = 1,
		.text_poke = 1,
		.build_id = 1,
		.sample_id_all = 1,
		.context_switch = ring->switches,
		.watermark = 1,
		.wakeup_watermark = sideband->ring_size / 4,
	};
	struct epoll_event event = { .events = EPOLLIN };
	size_t page = sysconf(_SC_PAGESIZE);

	ring->fd = syscall(SYS_perf_event_open, &attr, -1, ring->cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (ring->fd < 0)
		return open_failed(ring->cpu, errno, err);
	ring->page = mmap(NULL, page + sideband->ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (ring->page == MAP_FAILED) {
		ring->page = NULL;
		return open_failed(ring->cpu, errno, err);
	}
	if (ioctl(ring->fd, PERF_EVENT_IOC_ID, id) || epoll_ctl(sideband->epoll, EPOLL_CTL_ADD, ring->fd, &event))
		return open_failed(ring->cpu, errno, err);
	return 0;
}

struct ptw_sideband *ptw_sideband_open(const struct ptw_sideband_request *request, struct ptw_error *err)
{
	struct ptw_sideband *sideband = calloc(1, sizeof(*sideband));
	uint8_t *online = NULL;
	size_t size, n = 0;
	int count = ptw_online_cpus(&online, &size);

	if (!sideband || count < 0) {
		if (count < 0)
			ptw_error_set(err, PTW_EXIT_FAILED,
				      "cannot read /sys/devices/system/cpu/online; is sysfs mounted on /sys?");
		else
			ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
		free(sideband);
		return NULL;
	}
	sideband->ring_size = request->ring_size ? request->ring_size : PTW_SIDEBAND_RING;
	sideband->ring = calloc(count, sizeof(*sideband->ring));
	sideband->id = calloc(count, sizeof(*sideband->id));
	sideband->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!sideband->ring || !sideband->id || sideband->epoll < 0) {
		ptw_error_set(err, PTW_EXIT_FAILED, "cannot follow processes: %s", strerror(errno));
		goto fail;
	}
	for (size_t cpu = 0; cpu < size * 8; cpu++) {
		struct ring *ring = &sideband->ring[n];

		if (!(online[cpu / 8] >> cpu % 8 & 1))
			continue;
		ring->cpu = cpu;
		ring->switches = request->switches &&
				 (!request->cpus || (cpu / 8 < request->cpus_size &&
						     request->cpus[cpu / 8] >> cpu % 8 & 1));
		ring->fd = -1;
		sideband->count = n + 1;
		if (open_ring(sideband, ring, &sideband->id[n++], err))
			goto fail;
	}
	free(online);
	return sideband;
fail:
	free(online);
	ptw_sideband_close(sideband);
	return NULL;
}

void ptw_sideband_close(struct ptw_sideband *sideband)
{
	if (!sideband)
		return;
	for (size_t i = 0; i < sideband->count; i++) {
		struct ring *ring = &sideband->ring[i];

		if (ring->page)
			munmap(ring->page, sysconf(_SC_PAGESIZE) + sideband->ring_size);
		if (ring->fd >= 0)
			close(ring->fd);
	}
	if (sideband->epoll >= 0)
		close(sideband->epoll);
	free(sideband->ring);
	free(sideband->id);
	free(sideband);
}

int ptw_sideband_fd(const struct ptw_sideband *sideband)
{
	return sideband->epoll;
}

const uint64_t *ptw_sideband_ids(const struct ptw_sideband *sideband, size_t *count)
{
	*count = sideband->count;
	return sideband->id;
}

uint64_t ptw_sideband_id(const struct ptw_sideband *sideband, uint32_t cpu)
{
	for (size_t i = 0; i < sideband->count; i++)
		if (sideband->ring[i].cpu == (int)cpu)
			return sideband->id[i];
	return 0;
}

static void copy_out(const uint8_t *data, size_t size, uint64_t at, void *to, size_t length)
{
	size_t start = at & (size - 1), first = size - start < length ? size - start : length;

	memcpy(to, data + start, first);
	memcpy((uint8_t *)to + first, data, length - first);
}

/* Records are aligned to 8 bytes and so is the ring: a header never wraps, what follows it may. */
static void count_lost(struct ptw_sideband *sideband, const uint8_t *data, size_t size, uint64_t at, uint64_t end)
{
	struct perf_event_header header;
	uint64_t lost;

	for (; at < end; at += header.size) {
		copy_out(data, size, at, &header, sizeof(header));
		if (header.size < sizeof(header))
			return;
		if (header.type != PERF_RECORD_LOST || header.size < sizeof(header) + 16)
			continue;
		copy_out(data, size, at + sizeof(header) + 8, &lost, sizeof(lost));
		sideband->lost += lost;
	}
}

int ptw_sideband_drain(struct ptw_sideband *sideband,
		       int (*take)(void *arg, const void *first, size_t first_size, const void *second,
				   size_t second_size, struct ptw_error *err),
		       void *arg, struct ptw_error *err)
{
	size_t size = sideband->ring_size;

	for (size_t i = 0; i < sideband->count; i++) {
		struct perf_event_mmap_page *page = sideband->ring[i].page;
		const uint8_t *data = (const uint8_t *)page + sysconf(_SC_PAGESIZE);
		/* The kernel writes the records before it moves head. */
		uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
		uint64_t tail = page->data_tail, length = head - tail;
		size_t start = tail & (size - 1), first;

		if (!length)
			continue;
		count_lost(sideband, data, size, tail, head);
		first = size - start < length ? size - start : length;
		if (take(arg, data + start, first, data, length - first, err))
			return -1;
		/* Only now may the kernel write over them. */
		__atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
	}
	return 0;
}

uint64_t ptw_sideband_lost(const struct ptw_sideband *sideband)
{
	return sideband->lost;
}

void ptw_sideband_visit(const struct ptw_sideband *sideband)
{
	size_t size = CPU_ALLOC_SIZE(sideband->count ? sideband->ring[sideband->count - 1].cpu + 1 : 1);
	cpu_set_t *old, *one;

	/* The kernel wants room for as many CPUs as it could have. */
	if (size < 1024)
		size = 1024;
	old = calloc(1, size);
	one = calloc(1, size);
	if (old && one && !sched_getaffinity(0, size, old)) {
		for (size_t i = 0; i < sideband->count; i++) {
			if (!sideband->ring[i].switches)
				continue;
			CPU_ZERO_S(size, one);
			CPU_SET_S(sideband->ring[i].cpu, size, one);
			sched_setaffinity(0, size, one);
		}
		sched_setaffinity(0, size, old);
	}
	free(old);
	free(one);
}
