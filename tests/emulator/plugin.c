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

static struct qemu_plugin_scoreboard *board;
static struct vcpu *vcpus[MAX_VCPUS];
static unsigned int n_vcpus;
static GMutex init_lock;

#define HOT(field) ((qemu_plugin_u64){ board, offsetof(struct hot, field) })

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
	v->rtit.output_mask = 0x7f;
	v->writer.output = trace_output;
	v->writer.stamp = clock_stamp;
	v->writer.opaque = v;
	v->writer.overflow = opts.overflow;
	truth_vcpu_init(v);

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
	g_mutex_unlock(&init_lock);
}

static void on_block(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpus[index];

	if (v->patch.pending)
		patch_apply(v);
	if (executed(v) >= v->pmu.deadline)
		pmu_sync(v);
	if (v->tracing)
		branch_on_block(v, opaque);
	if (!v->tracing)
		set_alarm(v, v->pmu.deadline - executed(v));
}

static void on_insn_after(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpus[index];

	(void)opaque;
	if (v->patch.pending)
		patch_apply(v);
}

/*
 * Instructions are counted as they begin. If the one at `from` had begun and faulted, it is counted
 * again when it is repeated, so take it off. An instruction whose fetch faults had not begun.
 */
static void uncount_faulted(struct vcpu *v, uint64_t from)
{
	const uint64_t fetch = 1 << 4;	/* of the page fault error code */

	/* Without an error code it is a trap or software's INT in all cases that matter. */
	if (!guest_frame_has_error(v))
		return;
	if (guest_frame(v, -1) & fetch && guest_reg(v, GUEST_CR2) - from < 16)
		return;
	v->clock_base[from >> 63]--;
}

static void on_discon(unsigned int index, int type, uint64_t from, uint64_t to, void *opaque)
{
	struct vcpu *v = vcpus[index];

	(void)opaque;
	if (type == DISCON_EXCEPTION) {
		v->exception = true;
		return;
	}
	if (v->gp_pending) {
		v->gp_pending = false;
		guest_set_reg(v, GUEST_RCX, v->gp_rcx);
	}
	if (v->patch.pending) {
		/* If the instruction itself faulted, its registers are what they were. */
		if ((from & 0xfff) == v->patch.page_off)
			v->patch.pending = false;
		else
			patch_apply(v);
	}
	if (v->exception) {
		v->exception = false;
		uncount_faulted(v, from);
	}
	truth_on_discon(v, from);
	if (v->tracing)
		branch_on_discon(v, from, to);
}

static void intercept(struct qemu_plugin_insn *insn, const struct insn *d, uint64_t vaddr,
		      const struct block *b)
{
	void *at = (void *)(uintptr_t)vaddr;
	struct skip *skip;

	switch (d->kind) {
	case INSN_CPUID:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, cpuid_on_insn, REGS_WRITE, at);
		break;
	case INSN_RDMSR:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, msr_on_rdmsr, REGS_WRITE, at);
		break;
	case INSN_WRMSR:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, msr_on_wrmsr, REGS_WRITE, at);
		break;
	case INSN_RDPMC:
		skip = g_new(struct skip, 1);
		skip->block_start = b->start;
		skip->next = vaddr + d->len;
		qemu_plugin_register_vcpu_insn_exec_cb(insn, msr_on_rdpmc, REGS_WRITE_PC, skip);
		break;
	case INSN_MOV_TO_CR3:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, branch_on_mov_cr3, REGS_READ,
						       (void *)(uintptr_t)d->reg);
		break;
	case INSN_LGDT:
		qemu_plugin_register_vcpu_mem_cb(insn, guest_on_lgdt, REGS_READ, MEM_READ, NULL);
		break;
	default:
		break;
	}
}

static void on_translate(struct qemu_plugin_tb *tb, void *opaque)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	struct block *b = g_malloc0(sizeof(*b) + n * sizeof(b->off[0]));
	qemu_plugin_u64 clock = HOT(clock);
	uint64_t vaddr = 0, uncounted = 0;
	bool patched = false;
	struct insn d = { 0 };

	(void)opaque;
	b->start = qemu_plugin_tb_vaddr(tb);
	b->n = n;
	clock.offset += 8 * (b->start >> 63);
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_block, REGS_WRITE, COND_GT, clock, CLOCK_ALARM,
						  b);
	truth_translate(tb, HOT(truth));
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t bytes[16];

		insn_decode(bytes, qemu_plugin_insn_data(insn, bytes, sizeof(bytes)), &d);
		vaddr = qemu_plugin_insn_vaddr(insn);
		b->off[i] = vaddr - b->start;
		if (patched)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_insn_after, REGS_WRITE, NULL);
		/*
		 * Only an instruction that can fault or leave the block needs a count of its own;
		 * plain ones are counted together with the next such one.
		 */
		uncounted++;
		if (!d.plain || i == n - 1) {
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, OP_ADD, clock,
									    uncounted);
			uncounted = 0;
		}
		intercept(insn, &d, vaddr, b);
		patched = d.kind == INSN_CPUID || d.kind == INSN_RDMSR;
	}
	b->end = vaddr + d.len;
	if (n && (insn_is_branch(d.kind) || d.kind == INSN_SOFT_INT)) {
		b->last = d;
		b->last_off = vaddr - b->start;
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			qemu_plugin_tb_get_insn(tb, n - 1), OP_STORE, HOT(branched), (uintptr_t)b);
	}
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
	       "  model=NAME             what the CPU enumerates:\n");
	model_list(stdout);
	printf(
		"  truth=DIR              write each traced instruction's address to DIR/cpuN.ips\n"
		"  log=on|off             print trace starts, stops and PMIs\n"
		"  stats=on|off           print counts at exit\n"
		"  verify=on|off          check the flow tracking while it runs (slow)\n"
		"  long-tnt=on|off        long TNT packets\n"
		"  compress-ret=on|off    RET compression (default on)\n"
		"  overflow=N|off         overflow of the internal buffer each N bytes, 128 or more\n"
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
	    (!strcmp(arg, "long-tnt") && parse_switch(value, &opts.long_tnt)) ||
	    (!strcmp(arg, "compress-ret") && parse_switch(value, &opts.compress_ret)) ||
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
	if (!clock_init()) {
		fprintf(stderr, "intel_pt: this QEMU doesn't export cpus_get_elapsed_ticks\n");
		return -1;
	}
	if (!truth_init())
		return -1;
	board = qemu_plugin_scoreboard_new(sizeof(struct hot));
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu_init, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate, NULL);
	qemu_plugin_register_vcpu_discon_cb(id, DISCON_INTERRUPT | DISCON_EXCEPTION, on_discon, NULL);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return 0;
}
