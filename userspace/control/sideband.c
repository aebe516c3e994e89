// SPDX-License-Identifier: BSD-2-Clause
#include "control/sideband.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "control/machine.h"

struct ring {
	int fd;
	int cpu;
	bool switches;
	struct perf_event_mmap_page *page;	/* the ring itself follows; NULL: none now */
	uint64_t id;
	bool missed;		/* lost records; nobody asked yet, see ptw_sideband_missed() */
};

struct ptw_sideband {
	struct ring *ring;
	size_t count;
	size_t room;		/* rings that @ring has room for: CPUs may yet come */
	uint64_t *id;		/* also those of events that are gone */
	size_t ids;
	size_t ring_size;
	int epoll;
	int uevents;		/* tells that a CPU comes online; -1: nobody tells */
	uint64_t slept;		/* how long the machine was suspended until now */
	size_t check;		/* the CPU to look at next, in ptw_sideband_renew() */
	uint64_t checked;	/* when the first was looked at last (CLOCK_MONOTONIC) */
	uint64_t lost;
};

/* The kernel's own socket of uevents: its multicast group */
#define UEVENT_GROUP 1

/* At the latest after so long every CPU is looked at: a suspend that was broken off leaves no other sign. */
#define CHECK_NS 10000000000ULL

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

static void close_ring(struct ptw_sideband *sideband, struct ring *ring)
{
	if (ring->page)
		munmap(ring->page, sysconf(_SC_PAGESIZE) + sideband->ring_size);
	ring->page = NULL;
	if (ring->fd >= 0)
		close(ring->fd);
	ring->fd = -1;
}

static int open_ring(struct ptw_sideband *sideband, struct ring *ring, struct ptw_error *err)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_period = 1,
		.sample_type = PTW_SIDEBAND_SAMPLE_TYPE,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
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
	uint64_t *ids = reallocarray(sideband->id, sideband->ids + 1, sizeof(*ids));
	void *map;

	if (!ids)
		return open_failed(ring->cpu, ENOMEM, err);
	sideband->id = ids;
	ring->fd = syscall(SYS_perf_event_open, &attr, -1, ring->cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (ring->fd < 0)
		return open_failed(ring->cpu, errno, err);
	map = mmap(NULL, page + sideband->ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (map == MAP_FAILED)
		return open_failed(ring->cpu, errno, err);
	ring->page = map;
	if (ioctl(ring->fd, PERF_EVENT_IOC_ID, &ring->id) || epoll_ctl(sideband->epoll, EPOLL_CTL_ADD, ring->fd, &event))
		return open_failed(ring->cpu, errno, err);
	sideband->id[sideband->ids++] = ring->id;
	return 0;
}

/* ---- CPUs that come ---- */

/* Without it every round looks at every CPU: dearer, and as true. */
static void listen_for_cpus(struct ptw_sideband *sideband)
{
	struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = UEVENT_GROUP };
	struct epoll_event event = { .events = EPOLLIN };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);

	if (fd >= 0 && (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
			epoll_ctl(sideband->epoll, EPOLL_CTL_ADD, fd, &event))) {
		close(fd);
		fd = -1;
	}
	sideband->uevents = fd;
}

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec t = { 0 };

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/* How long the machine slept, to a tenth of a second: suspending takes all CPUs but one away, and no uevent tells. */
static uint64_t time_slept(void)
{
	uint64_t monotonic = nanoseconds(CLOCK_MONOTONIC);

	return (nanoseconds(CLOCK_BOOTTIME) - monotonic) / 100000000;
}

static bool cpus_may_have_come(struct ptw_sideband *sideband)
{
	static const char online[] = "online@/devices/system/cpu/";
	uint64_t slept = time_slept();
	bool come = slept != sideband->slept || sideband->uevents < 0 ||
		    nanoseconds(CLOCK_MONOTONIC) - sideband->checked >= CHECK_NS;
	char text[4096];
	ssize_t size;

	sideband->slept = slept;
	if (sideband->uevents < 0)
		return come;
	while ((size = recv(sideband->uevents, text, sizeof(text), 0)) > 0 || (size < 0 && errno == ENOBUFS))
		come |= size < 0 || ((size_t)size >= sizeof(online) && !memcmp(text, online, sizeof(online) - 1));
	return come;
}

/*
 * A CPU that goes offline takes its events out of its context, for good: they stay open, without error or hang-up, and
 * hear nothing any more. All that shows it is that the time during which the event was enabled stands still. Asking
 * interrupts that CPU, so it is not done each round.
 */
static bool is_deaf(const struct ring *ring)
{
	uint64_t first[2], second[2];

	return ring->fd < 0 || (read(ring->fd, first, sizeof(first)) == sizeof(first) &&
				read(ring->fd, second, sizeof(second)) == sizeof(second) && first[1] == second[1]);
}

struct ptw_sideband *ptw_sideband_open(const struct ptw_sideband_request *request, struct ptw_error *err)
{
	struct ptw_sideband *sideband = calloc(1, sizeof(*sideband));
	uint8_t *online = NULL;
	size_t size, n = 0;
	int count = ptw_online_cpus(&online, &size), possible = sysconf(_SC_NPROCESSORS_CONF);

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
	sideband->room = count > possible ? count : possible;
	sideband->ring = calloc(sideband->room, sizeof(*sideband->ring));
	sideband->uevents = -1;
	sideband->check = SIZE_MAX;
	sideband->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!sideband->ring || sideband->epoll < 0) {
		ptw_error_set(err, PTW_EXIT_FAILED, "cannot follow processes: %s", strerror(errno));
		goto fail;
	}
	/* Before the events: who comes after is noticed. */
	sideband->slept = time_slept();
	sideband->checked = nanoseconds(CLOCK_MONOTONIC);
	listen_for_cpus(sideband);
	for (size_t cpu = 0; cpu < size * 8; cpu++) {
		struct ring *ring = &sideband->ring[n];

		if (!(online[cpu / 8] >> cpu % 8 & 1))
			continue;
		ring->cpu = cpu;
		ring->switches = request->switches &&
				 (!request->cpus || (cpu / 8 < request->cpus_size &&
						     request->cpus[cpu / 8] >> cpu % 8 & 1));
		ring->fd = -1;
		sideband->count = ++n;
		if (open_ring(sideband, ring, err))
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
	for (size_t i = 0; i < sideband->count; i++)
		close_ring(sideband, &sideband->ring[i]);
	if (sideband->uevents >= 0)
		close(sideband->uevents);
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
	*count = sideband->ids;
	return sideband->id;
}

uint64_t ptw_sideband_id(const struct ptw_sideband *sideband, uint32_t cpu)
{
	for (size_t i = 0; i < sideband->count; i++)
		if (sideband->ring[i].cpu == (int)cpu)
			return sideband->ring[i].id;
	return 0;
}

static void copy_out(const uint8_t *data, size_t size, uint64_t at, void *to, size_t length)
{
	size_t start = at & (size - 1), first = size - start < length ? size - start : length;

	memcpy(to, data + start, first);
	memcpy((uint8_t *)to + first, data, length - first);
}

/* Records are aligned to 8 bytes and so is the ring: a header never wraps, what follows it may. */
static void count_lost(struct ptw_sideband *sideband, struct ring *ring, const uint8_t *data, size_t size, uint64_t at,
		       uint64_t end)
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
		ring->missed = true;
	}
}

static int drain_ring(struct ptw_sideband *sideband, struct ring *ring, ptw_sideband_take *take, void *arg,
		      struct ptw_error *err)
{
	struct perf_event_mmap_page *page = ring->page;
	const uint8_t *data = (const uint8_t *)page + sysconf(_SC_PAGESIZE);
	size_t size = sideband->ring_size, start, first;
	uint64_t head, tail, length;

	if (!page)
		return 0;
	/* The kernel writes the records before it moves head. */
	head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	tail = page->data_tail;
	length = head - tail;
	if (!length)
		return 0;
	count_lost(sideband, ring, data, size, tail, head);
	start = tail & (size - 1);
	first = size - start < length ? size - start : length;
	if (take(arg, data + start, first, data, length - first, err))
		return -1;
	/* Only now may the kernel write over them. */
	__atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
	return 0;
}

int ptw_sideband_drain(struct ptw_sideband *sideband, ptw_sideband_take *take, void *arg, struct ptw_error *err)
{
	for (size_t i = 0; i < sideband->count; i++)
		if (drain_ring(sideband, &sideband->ring[i], take, arg, err))
			return -1;
	return 0;
}

static struct ring *find_ring(struct ptw_sideband *sideband, size_t cpu)
{
	struct ring *ring;

	for (size_t i = 0; i < sideband->count; i++)
		if (sideband->ring[i].cpu == (int)cpu)
			return &sideband->ring[i];
	if (sideband->count == sideband->room)
		return NULL;
	ring = &sideband->ring[sideband->count++];
	/* It is not traced: whoever is came before. */
	*ring = (struct ring){ .fd = -1, .cpu = cpu };
	return ring;
}

int ptw_sideband_renew(struct ptw_sideband *sideband, ptw_sideband_take *take, void *arg, int *cpu,
		       struct ptw_error *err)
{
	uint8_t *online = NULL;
	size_t size = 0;
	int ret = 0;

	if (cpus_may_have_come(sideband)) {
		sideband->check = 0;
		sideband->checked = nanoseconds(CLOCK_MONOTONIC);
	}
	if (sideband->check == SIZE_MAX || ptw_online_cpus(&online, &size) < 0)
		return 0;
	while (!ret && sideband->check < size * 8) {
		size_t n = sideband->check++;
		struct ring *ring;

		if (!(online[n / 8] >> n % 8 & 1))
			continue;
		ring = find_ring(sideband, n);
		if (!ring || !is_deaf(ring))
			continue;
		*cpu = n;
		ret = drain_ring(sideband, ring, take, arg, err);
		close_ring(sideband, ring);
		if (ret)
			break;
		ret = 1;
		if (open_ring(sideband, ring, err)) {
			/* Gone again: when it is back, that is told. */
			ret = errno == ENODEV ? 0 : -1;
			close_ring(sideband, ring);
		}
	}
	if (!ret)
		sideband->check = SIZE_MAX;
	free(online);
	return ret;
}

bool ptw_sideband_missed(struct ptw_sideband *sideband, uint32_t *cpu)
{
	for (size_t i = 0; i < sideband->count; i++) {
		if (!sideband->ring[i].missed)
			continue;
		sideband->ring[i].missed = false;
		*cpu = sideband->ring[i].cpu;
		return true;
	}
	return false;
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
