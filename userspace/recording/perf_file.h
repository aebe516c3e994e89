/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The perf.data file as this library writes and reads it: what <linux/perf_event.h> does not already define.
 *
 * A file is: the header; attributes (struct perf_event_attr and where its ids are); the data section, a
 * sequence of records that begin with struct perf_event_header; and behind the data section one (offset,
 * size) pair for each feature whose bit is set in the header, in the order of the bits. All in the byte order
 * of the recording machine.
 */
#ifndef PTWATCH_RECORDING_PERF_FILE_H
#define PTWATCH_RECORDING_PERF_FILE_H

#include <stdint.h>

#include <linux/perf_event.h>

#define PERF_FILE_MAGIC	0x32454c4946524550ULL	/* "PERFILE2" */

struct perf_file_range {
	uint64_t offset;
	uint64_t size;
};

struct perf_file_head {
	uint64_t magic;
	uint64_t size;			/* of this struct */
	uint64_t attr_size;		/* distance of the entries in @attrs */
	struct perf_file_range attrs;
	struct perf_file_range data;
	struct perf_file_range event_types;	/* unused */
	uint64_t features[4];		/* bitmap */
};

/*
 * What this library writes between the attributes and the data, where perf has nothing: the most important features a
 * second time, for readers of a file whose end is missing. Behind this struct is what else is behind the data section: a
 * range for each bit.
 */
struct perf_early_features {
	uint64_t magic;
	uint64_t features[4];
};

#define PERF_EARLY_MAGIC	0x594c524145575450ULL	/* "PTWEARLY" */

/* Features this library writes or reads, as bits of perf_file_head.features. */
enum {
	PERF_FEATURE_BUILD_ID = 2,
	PERF_FEATURE_OSRELEASE = 4,
	PERF_FEATURE_ARCH = 6,
	PERF_FEATURE_NRCPUS = 7,
	PERF_FEATURE_CPUID = 9,
	PERF_FEATURE_EVENT_DESC = 12,
	PERF_FEATURE_PMU_MAPPINGS = 16,
	PERF_FEATURE_AUXTRACE = 18,
	PERF_FEATURE_COMPRESSED = 27,
	PERF_FEATURES = 256,
};

/*
 * A feature's string: its length including padding, then the bytes; the padding is zeros up to this
 * boundary.
 */
#define PERF_STRING_ALIGN	64

/* Records that perf itself makes, beside the kernel's. */
enum {
	PERF_USER_RECORD = 64,
	PERF_USER_FINISHED_ROUND = 68,	/* see ptw_recording_end_round() */
	PERF_USER_AUXTRACE_INFO = 70,
	PERF_USER_AUXTRACE = 71,
	PERF_USER_HEADER_FEATURE = 80,
	PERF_USER_COMPRESSED = 81,
	PERF_USER_COMPRESSED2 = 83,
};

struct perf_auxtrace_info {
	struct perf_event_header header;
	uint32_t type;
	uint32_t reserved;
	uint64_t priv[];
};

#define PERF_AUXTRACE_INTEL_PT	1

/* What perf_auxtrace_info.priv holds for Intel PT. Older recordings are shorter. */
enum {
	PT_INFO_PMU_TYPE,
	PT_INFO_TIME_SHIFT,
	PT_INFO_TIME_MULT,
	PT_INFO_TIME_ZERO,
	PT_INFO_HAVE_TIME,		/* the three above convert TSC to time */
	PT_INFO_TSC_BIT,		/* the *_BIT entries are masks of the PMU's config */
	PT_INFO_NORETCOMP_BIT,
	PT_INFO_HAVE_SWITCH,		/* how context switches are recorded; 0: not */
	PT_INFO_SNAPSHOT,
	PT_INFO_PER_CPU,
	PT_INFO_MTC_BIT,
	PT_INFO_MTC_FREQ_BITS,
	PT_INFO_TSC_CTC_N,		/* CPUID leaf 0x15 EBX */
	PT_INFO_TSC_CTC_D,		/* CPUID leaf 0x15 EAX */
	PT_INFO_CYC_BIT,
	PT_INFO_MAX_RATIO,		/* maximum non-turbo ratio */
	PT_INFO_FILTER_LENGTH,		/* of the address filters that follow as text, padded to 8 */
	PT_INFO_COUNT,
};

/*
 * Behind the filters comes whether the CPU has event trace, and behind that a word of ours, which perf does not look at:
 * struct ptw_pt_params.through.
 */
#define PT_INFO_OURS		0x50545741594d0000ULL
#define PT_INFO_OURS_THROUGH	1

/* PT_INFO_HAVE_SWITCH: as PERF_RECORD_SWITCH_CPU_WIDE */
#define PT_SWITCHES_CPU_WIDE	3

/* A piece of AUX data: this record, then @size bytes that header.size does not count. */
struct perf_auxtrace {
	struct perf_event_header header;
	uint64_t size;
	uint64_t offset;
	uint64_t reference;
	uint32_t idx;
	uint32_t tid;
	uint32_t cpu;
	uint32_t reserved;
};

/* What ends every record of the kernel when sample_id_all is set, for SAMPLE_ID_TYPE. */
struct perf_sample_id {
	uint32_t pid;
	uint32_t tid;
	uint64_t time;
	uint32_t cpu;
	uint32_t reserved;
	uint64_t id;
};

/* perf's "host kernel" process id in an mmap record */
#define PERF_KERNEL_PID	(-1)

#define PT_CONFIG_PASS_THROUGH	1ULL	/* config bit 0: the branch bit means what it says */

#endif /* PTWATCH_RECORDING_PERF_FILE_H */
