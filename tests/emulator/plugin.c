/* SPDX-License-Identifier: BSD-2-Clause */
/* The plugin: arguments, and what is instrumented with what. */
#include "vcpu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int qemu_plugin_version = PLUGIN_API_VERSION;

struct options opts = {
	.compress_ret = true,
};

struct qemu_plugin_scoreboard *board;
/* A fraction of TOPA_EARLY_INT, but a PSB must fit. */
#define SINGLE_ENTRY_LIMIT 32

static struct vcpu *vcpus[MAX_VCPUS];
static unsigned int n_vcpus;
static GMutex init_lock;

struct vcpu *vcpu_get(unsigned int index)
{
	return vcpus[index];
}

unsigned int vcpu_count(void)
{
	return n_vcpus;
}

static void on_vcpu_init(unsigned int index, void *opaque)
{
	struct vcpu *v;

	(void)opaque;
	if (index >= MAX_VCPUS) {
		fprintf(stderr, "intel_pt: at most %d CPUs\n", MAX_VCPUS);
		exit(1);
	}
	v = g_new0(struct vcpu, 1);
	v->index = index;
	v->scratch = g_byte_array_new();
	v->mem.read = (int (*)(void *, uint64_t, void *, size_t))guest_read_phys;
	v->mem.write = (int (*)(void *, uint64_t, const void *, size_t))guest_write_phys;
	v->mem.opaque = v;
	v->topa.mem = &v->mem;
	v->topa.phys_bits = opts.model->phys_bits;
	v->topa.single_entry = !(opts.model->pt_ecx & PT_CAP_TOPA_MULTI);
	v->rtit.output_mask = 0x7f;
	v->writer.output = trace_output;
	/* There the interrupt for a region comes before its end, which must not have been passed already. */
	if (v->topa.single_entry)
		v->writer.limit = SINGLE_ENTRY_LIMIT;
	v->writer.stamp = clock_stamp;
	v->writer.opaque = v;
	v->writer.overflow = opts.overflow;
	v->writer.cut_cyc = opts.errata & ERRATUM_SKD007;
	truth_vcpu_init(v);
	instrument_vcpu_init(v);

	g_mutex_lock(&init_lock);
	vcpus[index] = v;
	n_vcpus = MAX(n_vcpus, index + 1);
	if (!index && !guest_find_regs())
		exit(1);
	/* The scoreboard may have moved as it grew; nothing is running yet. */
	for (unsigned int i = 0; i < n_vcpus; i++)
		if (vcpus[i])
			vcpus[i]->hot = qemu_plugin_scoreboard_find(board, i);
	v->pmu.deadline = ALARM_MAX;
	set_alarm(v, ALARM_MAX);
	if (opts.drill)
		trace_drill(v);
	g_mutex_unlock(&init_lock);
}

static void at_exit(void *opaque)
{
	(void)opaque;
	truth_exit();
	if (!opts.stats && !opts.verify)
		return;
	for (unsigned int i = 0; i < n_vcpus; i++) {
		struct vcpu *v = vcpus[i];

		fprintf(stderr, "intel_pt: cpu%u: instructions user %" PRIu64 " kernel %" PRIu64
			", packet bytes %" PRIu64 ", PMIs %" PRIu64 ", overflows %" PRIu64 "\n", i,
			executed_at(v, 0), executed_at(v, 1), v->writer.total, v->n_pmi,
			v->n_overflows);
		fprintf(stderr, "intel_pt: cpu%u: traced blocks %" PRIu64 ", rip reads %" PRIu64
			", wrong predictions %" PRIu64 ", impossible branches %" PRIu64 "\n", i,
			v->n_blocks, v->n_rip_reads, v->n_rip_wrong, v->n_flow_wrong);
	}
}

static void usage(void)
{
	printf("intel_pt: arguments:\n"
	       "  model=NAME             what the CPU enumerates, with its -cpu, to which ,-x2apic,level=0x16 belongs:\n");
	model_list(stdout);
	printf(
		"  truth=DIR              write each traced instruction's address to DIR/cpuN.ips\n"
		"  log=on|off             print trace starts, stops and PMIs\n"
		"  stats=on|off           print counts at exit\n"
		"  verify=on|off          check the flow tracking while it runs (slow)\n"
		"  drill=on|off           do all the work of a trace from the start, for nobody to see (model=none)\n"
		"  long-tnt=on|off        long TNT packets\n"
		"  compress-ret=on|off    RET compression (default on)\n"
		"  overflow=N|off         overflow of the internal buffer each N bytes, 128 or more\n"
		"  errata=NAME+NAME|none  have errata: bdm70 skd007 skd010 skl014 skl168 apl11 apl12\n"
		"  help=on                this list\n");
}

static bool parse_switch(const char *value, bool *to)
{
	*to = !strcmp(value, "on");
	return *to || !strcmp(value, "off");
}

/* So many that an OVF, its FUP and a PSB+ get through as a whole. */
#define OVERFLOW_MIN 128

static bool parse_overflow(const char *value)
{
	char *end;

	opts.overflow = 0;
	if (!strcmp(value, "off"))
		return true;
	if (!g_ascii_isdigit(*value))
		return false;
	opts.overflow = strtoull(value, &end, 10);
	return !*end && opts.overflow >= OVERFLOW_MIN;
}

static const struct {
	const char *name;
	unsigned int bit;
} errata[] = {
	{ "bdm70", ERRATUM_BDM70 }, { "skd007", ERRATUM_SKD007 }, { "skd010", ERRATUM_SKD010 },
	{ "skl014", ERRATUM_SKL014 }, { "skl168", ERRATUM_SKL168 }, { "apl11", ERRATUM_APL11 },
	{ "apl12", ERRATUM_APL12 },
};

/* NAME+NAME... */
static bool parse_errata(const char *value)
{
	g_auto(GStrv) names = g_strsplit(value, "+", 0);

	opts.errata = 0;
	if (!strcmp(value, "none"))
		return true;
	for (char **name = names; *name; name++) {
		size_t i = 0;

		while (i < G_N_ELEMENTS(errata) && strcmp(errata[i].name, *name))
			i++;
		if (i == G_N_ELEMENTS(errata))
			return false;
		opts.errata |= errata[i].bit;
	}
	return true;
}

/* One KEY=VALUE. */
static bool parse(char *arg)
{
	char *value = strchr(arg, '=');
	bool help;

	if (!value) {
		fprintf(stderr, "intel_pt: %s: KEY=VALUE wanted; help=on lists the keys\n", arg);
		return false;
	}
	*value++ = 0;
	if (!strcmp(arg, "model")) {
		opts.model = model_find(value);
		if (opts.model)
			return true;
		fprintf(stderr, "intel_pt: model=%s: no such model; there are: %s\n", value,
			model_names());
		return false;
	}
	if (!strcmp(arg, "truth") && *value) {
		opts.truth_dir = g_strdup(value);
		return true;
	}
	if ((!strcmp(arg, "log") && parse_switch(value, &opts.log)) ||
	    (!strcmp(arg, "stats") && parse_switch(value, &opts.stats)) ||
	    (!strcmp(arg, "verify") && parse_switch(value, &opts.verify)) ||
	    (!strcmp(arg, "drill") && parse_switch(value, &opts.drill)) ||
	    (!strcmp(arg, "long-tnt") && parse_switch(value, &opts.long_tnt)) ||
	    (!strcmp(arg, "compress-ret") && parse_switch(value, &opts.compress_ret)) ||
	    (!strcmp(arg, "errata") && parse_errata(value)) ||
	    (!strcmp(arg, "overflow") && parse_overflow(value)))
		return true;
	if (!strcmp(arg, "help") && parse_switch(value, &help) && help) {
		usage();
		exit(0);
	}
	fprintf(stderr, "intel_pt: %s=%s: no such argument or value; help=on lists them\n", arg, value);
	return false;
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct plugin_info *info, int argc,
				      char **argv)
{
	if (info->version.min > PLUGIN_API_VERSION || info->version.cur < PLUGIN_API_VERSION) {
		fprintf(stderr, "intel_pt: this QEMU has plugin API %d..%d; %d is needed (QEMU 11.1)\n",
			info->version.min, info->version.cur, PLUGIN_API_VERSION);
		return -1;
	}
	if (!info->system_emulation || strcmp(info->target_name, "x86_64")) {
		fprintf(stderr, "intel_pt: qemu-system-x86_64 is needed, not %s\n",
			info->target_name);
		return -1;
	}
	opts.model = model_default();
	for (int i = 0; i < argc; i++)
		if (!parse(argv[i]))
			return -1;
	if (!internal_init())
		return -1;
	if (!truth_init())
		return -1;
	board = qemu_plugin_scoreboard_new(sizeof(struct hot));
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu_init, NULL);
	blocks_init(id);
	instrument_init(id);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return 0;
}
