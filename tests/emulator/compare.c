/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * compare [--overflows N] TRUTH CAPTURE-DIR/cpuN.pt...: decode the traces with libipt, one after the
 * other, and check that the executed instructions are those of TRUTH (see truth.c), address by address.
 *
 * One weakness of libipt is allowed for: a TIP.PGD without IP ends its flow at a MOV to CR3 already, if
 * there is one before the far branch with no TNT between them. This is so when only the kernel is traced
 * and it leaves for user mode with page table isolation. The instructions from there to the far branch
 * are missing in its flow; there they may be, at most EARLY_MAX of them, and are counted as early.
 *
 * With --overflows, libipt must report N overflows, and the truth have N marks of the places where they
 * resolved. At each, what libipt has up to there may miss the end of the truth up to the mark; these
 * instructions are counted as lost. Everywhere else the sequences are the same. Without it there must be
 * none.
 *
 * The images are those of images.tsv beside each trace, and those of versions.tsv for code that changes.
 * Prints one line of counts, and the first difference with its surroundings. Exit status: 0 equal, 1 not,
 * 2 usage or files.
 */
#include <inttypes.h>
#include <intel-pt.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_LIMIT (1ULL << 30)
#define CONTEXT 8
#define EARLY_MAX 16
/* Words of the truth that are no addresses. */
#define MARK_START 0
#define MARK_OVERFLOW 1

/* Code that changes: see capture.c. */
struct versions {
	uint64_t addr, size, commit;
	uint8_t *code[8];
	unsigned int n, at;
};

struct truth {
	uint64_t *ips;
	size_t n;
	size_t at;
	uint64_t traces;	/* TraceEn edges passed */
	struct versions *versions;	/* of the trace */
};

struct result {
	uint64_t equal, errors, overflows, off, lost, most_lost, user, kernel, async, exec_modes, early,
		 changes;
	bool differs;
	bool ended_at_mov_cr3;
};

static bool may_overflow;

static void *read_file(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	void *data;

	if (!f) {
		perror(path);
		exit(2);
	}
	fseek(f, 0, SEEK_END);
	*len = ftell(f);
	rewind(f);
	data = malloc(*len + 1);
	if (fread(data, 1, *len, f) != *len) {
		perror(path);
		exit(2);
	}
	fclose(f);
	return data;
}

static void add_section(struct pt_image *image, struct pt_image_section_cache *cache, const char *path,
			uint64_t offset, uint64_t size, uint64_t vaddr)
{
	int isid = pt_iscache_add_file(cache, path, offset, size, vaddr);

	if (isid < 0 || pt_image_add_cached(image, cache, isid, NULL) < 0) {
		fprintf(stderr, "%s: libipt refuses it\n", path);
		exit(2);
	}
}

static void add_images(struct pt_image *image, struct pt_image_section_cache *cache,
		       const char *trace, const struct versions *v)
{
	char dir[512], path[768], line[512], name[256];
	uint64_t offset, size, vaddr;
	FILE *f;

	snprintf(dir, sizeof(dir), "%s", trace);
	dirname(dir);
	snprintf(path, sizeof(path), "%s/images.tsv", dir);
	f = fopen(path, "r");
	if (!f) {
		perror(path);
		exit(2);
	}
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%255s %" SCNx64 " %" SCNx64 " %" SCNx64, name, &offset, &size,
			   &vaddr) != 4)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		/* Sections come before libipt's hook: leave out what changes. */
		if (v->n && v->addr == vaddr && size > v->size) {
			offset += v->size;
			vaddr += v->size;
			size -= v->size;
		}
		add_section(image, cache, path, offset, size, vaddr);
	}
	fclose(f);
}

static void read_versions(struct versions *v, const char *trace)
{
	char dir[512], path[768], line[128];
	size_t len;
	FILE *f;

	memset(v, 0, sizeof(*v));
	snprintf(dir, sizeof(dir), "%s", trace);
	dirname(dir);
	snprintf(path, sizeof(path), "%s/versions.tsv", dir);
	f = fopen(path, "r");
	if (!f)
		return;
	if (!fgets(line, sizeof(line), f) ||
	    sscanf(line, "%" SCNx64 " %" SCNx64 " %" SCNx64, &v->addr, &v->size, &v->commit) != 3) {
		fprintf(stderr, "%s: ADDRESS SIZE COMMIT expected\n", path);
		exit(2);
	}
	while (v->n < 8 && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		snprintf(path, sizeof(path), "%s/%s", dir, line);
		v->code[v->n++] = read_file(path, &len);
	}
	fclose(f);
}

/* libipt's hook for memory that is in no section. */
static int read_version(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
	const struct versions *v = context;
	uint64_t left;

	(void)asid;
	if (!v->n || ip < v->addr || ip - v->addr >= v->size)
		return -pte_nomap;
	left = v->size - (ip - v->addr);
	if (size > left)
		size = left;
	memcpy(buffer, v->code[v->at] + (ip - v->addr), size);
	return size;
}

/* The next truth, 0 at its end. */
static uint64_t next_truth(struct truth *t)
{
	while (t->at < t->n && t->ips[t->at] == MARK_START) {
		t->traces++;
		t->at++;
	}
	return t->at < t->n ? t->ips[t->at++] : 0;
}

static void show_difference(struct pt_insn_decoder *d, const struct truth *t, uint64_t decoded)
{
	uint64_t offset = 0;

	pt_insn_get_offset(d, &offset);
	printf("first difference at truth word %zu, trace offset %#" PRIx64 ":\n", t->at - 1, offset);
	for (size_t i = t->at > CONTEXT ? t->at - CONTEXT : 0; i < t->at + CONTEXT && i < t->n; i++)
		printf("  truth %016" PRIx64 "%s\n", t->ips[i], i == t->at - 1 ? "  <-- here" : "");
	printf("  decoded %016" PRIx64 "\n", decoded);
	for (int i = 0; i < CONTEXT; i++) {
		struct pt_insn insn;
		struct pt_event ev;
		int status = pt_insn_next(d, &insn, sizeof(insn));

		while (status >= 0 && status & pts_event_pending) {
			status = pt_insn_event(d, &ev, sizeof(ev));
			if (status >= 0)
				printf("  event %d\n", ev.type);
		}
		if (status < 0) {
			printf("  %s\n", pt_errstr(pt_errcode(status)));
			break;
		}
		printf("  decoded %016" PRIx64 "\n", insn.ip);
	}
}

static bool is_mov_to_cr3(const struct pt_insn *insn)
{
	const uint8_t *p = insn->raw;

	if ((*p & 0xf0) == 0x40)
		p++;
	return p[0] == 0x0f && p[1] == 0x22 && ((p[2] >> 3) & 7) == 3;
}

/* After an early end at MOV to CR3: whether the truth comes to ip soon. */
static bool catch_up(struct truth *t, struct result *r, uint64_t ip)
{
	for (size_t i = 0; i < EARLY_MAX && t->at + i < t->n; i++) {
		if (t->ips[t->at + i] != ip)
			continue;
		r->early += i + 1;
		t->at += i + 1;
		return true;
	}
	return false;
}

/* The instruction at ip was executed: it may be the one that follows a change of the code. */
static void count_change(struct versions *v, uint64_t ip, struct result *r)
{
	if (!v->n || ip != v->commit)
		return;
	v->at = (v->at + 1) % v->n;
	r->changes++;
}

/* The rest of the truth up to where an overflow resolved is lost. False if there is no such place. */
static bool skip_lost(struct truth *t, struct result *r)
{
	uint64_t lost = 0;

	while (t->at < t->n && t->ips[t->at] != MARK_OVERFLOW) {
		/* Each trace before the last of them has ended with all its overflows resolved. */
		if (t->ips[t->at] == MARK_START && lost)
			return false;
		if (t->ips[t->at] == MARK_START) {
			t->traces++;
		} else {
			count_change(t->versions, t->ips[t->at], r);
			lost++;
		}
		t->at++;
	}
	if (t->at == t->n)
		return false;
	t->at++;
	r->lost += lost;
	if (lost > r->most_lost)
		r->most_lost = lost;
	return true;
}

static void on_overflow(struct pt_insn_decoder *d, const struct pt_event *ev, struct truth *t,
			struct result *r)
{
	uint64_t offset = 0;

	r->overflows++;
	r->off += ev->ip_suppressed;
	r->ended_at_mov_cr3 = false;
	if (!may_overflow || skip_lost(t, r))
		return;
	pt_insn_get_offset(d, &offset);
	printf("an overflow at trace offset %#" PRIx64 ", but none resolved after truth word %zu\n", offset,
	       t->at);
	r->differs = true;
}

static int drain_events(struct pt_insn_decoder *d, int status, const struct pt_insn *last,
			struct truth *t, struct result *r)
{
	struct pt_event ev;

	while (status >= 0 && status & pts_event_pending) {
		status = pt_insn_event(d, &ev, sizeof(ev));
		if (status < 0)
			break;
		if (ev.type == ptev_overflow)
			on_overflow(d, &ev, t, r);
		r->async += ev.type == ptev_async_branch || ev.type == ptev_async_disabled;
		r->exec_modes += ev.type == ptev_exec_mode;
		if (ev.type == ptev_disabled && ev.ip_suppressed && is_mov_to_cr3(last))
			r->ended_at_mov_cr3 = true;
	}
	return status;
}

static void compare_trace(struct pt_insn_decoder *d, struct truth *t, struct result *r)
{
	int status = pt_insn_sync_forward(d);
	struct pt_insn insn = { 0 };

	while (status >= 0) {
		status = drain_events(d, status, &insn, t, r);
		if (r->differs)
			return;
		if (status < 0)
			break;
		memset(&insn, 0, sizeof(insn));
		status = pt_insn_next(d, &insn, sizeof(insn));
		if (insn.iclass == ptic_error && status < 0)
			break;
		if (insn.ip != next_truth(t) && !(r->ended_at_mov_cr3 && catch_up(t, r, insn.ip))) {
			r->differs = true;
			show_difference(d, t, insn.ip);
			return;
		}
		count_change(t->versions, insn.ip, r);
		r->equal++;
		r->ended_at_mov_cr3 = false;
		if (insn.ip >> 63)
			r->kernel++;
		else
			r->user++;
	}
	if (status != -pte_eos) {
		uint64_t offset = 0;

		pt_insn_get_offset(d, &offset);
		r->errors++;
		printf("decode error at trace offset %#" PRIx64 ", truth word %zu: %s\n", offset, t->at,
		       pt_errstr(pt_errcode(status)));
	}
}

int main(int argc, char **argv)
{
	struct pt_image_section_cache *cache = pt_iscache_alloc(NULL);
	struct truth t = { 0 };
	struct result r = { 0 };
	uint64_t expected = 0;
	size_t len;

	if (argc > 2 && !strcmp(argv[1], "--overflows")) {
		may_overflow = true;
		expected = strtoull(argv[2], NULL, 10);
		argv += 2;
		argc -= 2;
	}
	if (argc < 3) {
		fprintf(stderr, "usage: compare [--overflows N] TRUTH TRACE...\n");
		return 2;
	}
	t.ips = read_file(argv[1], &len);
	t.n = len / 8;
	pt_iscache_set_limit(cache, CACHE_LIMIT);
	for (int i = 2; i < argc && !r.errors && !r.differs; i++) {
		struct pt_image *image = pt_image_alloc(NULL);
		struct versions versions;
		struct pt_insn_decoder *d;
		struct pt_config config;
		uint8_t *trace = read_file(argv[i], &len);

		pt_config_init(&config);
		config.begin = trace;
		config.end = trace + len;
		config.cpu.vendor = pcv_intel;
		config.cpu.family = 6;
		config.cpu.model = 85;
		config.cpu.stepping = 4;
		pt_cpu_errata(&config.errata, &config.cpu);
		read_versions(&versions, argv[i]);
		add_images(image, cache, argv[i], &versions);
		pt_image_set_callback(image, read_version, &versions);
		d = pt_insn_alloc_decoder(&config);
		pt_insn_set_image(d, image);
		t.versions = &versions;
		compare_trace(d, &t, &r);
		pt_insn_free_decoder(d);
		pt_image_free(image);
		free(trace);
	}
	if (!r.errors && !r.differs && next_truth(&t)) {
		r.differs = true;
		printf("the truth goes on at word %zu: %016" PRIx64 "\n", t.at - 1, t.ips[t.at - 1]);
	}
	printf("equal=%" PRIu64 " user=%" PRIu64 " kernel=%" PRIu64 " differs=%d errors=%" PRIu64
	       " overflows=%" PRIu64 " interruptions=%" PRIu64 " modes=%" PRIu64 " early=%" PRIu64
	       " changes=%" PRIu64 " traces=%" PRIu64 " lost=%" PRIu64 " most=%" PRIu64 " off=%" PRIu64 "\n", r.equal, r.user,
	       r.kernel, r.differs, r.errors, r.overflows, r.async, r.exec_modes, r.early, r.changes, t.traces, r.lost,
	       r.most_lost, r.off);
	return r.differs || r.errors || r.overflows != expected;
}
