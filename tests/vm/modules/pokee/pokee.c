// SPDX-License-Identifier: GPL-2.0
/*
 * pokee - touches memory on demand, in every way a test wants to see reported
 *
 *	echo "KIND CPU COUNT [VALUE]" >/proc/pokee
 *
 * does on CPU, and before the write returns, exactly COUNT accesses of KIND:
 *
 *	store		store VALUE, VALUE + 1, … to pokee_word[0]
 *	same		store VALUE each time
 *	byte		store the low byte of VALUE + i to byte 3 of pokee_word[0]
 *	straddle	store VALUE across the border of pokee_word[0] and pokee_word[1]
 *	beside		store VALUE to the words behind pokee_word[0], never to itself
 *	irqsoff		as store, with interrupts off
 *	cmpxchg		a locked compare-and-exchange that expects VALUE and would store VALUE
 *	memcpy		memcpy() of the low byte of VALUE to byte 0 of pokee_word[0]
 *	repmovs		one REP MOVSQ over all of pokee_word, storing VALUE + i
 *	read		load pokee_word[0]
 *	user		copy_from_user() of one byte at user address VALUE to byte 0
 *	exec		call pokee_function()
 *	percpu		store VALUE + i to this CPU's pokee_percpu
 *	counted		as irqsoff; reading /proc/pokee then tells how many kernel instructions the
 *			stores took, by the counters of the emulator (0: there are none)
 *	empty		the same, with a hardware breakpoint whose handler does nothing
 *	mwait		MONITOR and MWAIT with VALUE as the hint; EOPNOTSUPP on a CPU without
 *
 * Where the writer runs on CPU (because it is bound to it), the accesses are its own: then an
 * alarm must name it. Otherwise a kernel worker on CPU does them, and "user" is EINVAL, as a worker
 * has no user memory.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/cpu.h>
#include <linux/err.h>
#include <linux/hw_breakpoint.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include <asm/cpufeature.h>

/* Not static: symbols that anyone can watch by name. */
extern u64 pokee_word[4];
u64 pokee_word[4] __aligned(32);
void pokee_function(void);
DECLARE_PER_CPU(u64, pokee_percpu);
DEFINE_PER_CPU(u64, pokee_percpu);

/* tests/emulator/README.md, "Counting instructions" */
#define COUNT_LEAF	0x4fff0000
#define COUNT_SIGNATURE	0x54506d45
#define COUNT_KERNEL	0x10

static u64 counted;

struct poke {
	char kind[16];
	unsigned int cpu;
	unsigned int count;
	u64 value;
};

/* Each kind is a function of its own, so that the address of an access tells its kind. */

static noinline int pokee_store(const struct poke *poke)
{
	unsigned int i;

	for (i = 0; i < poke->count; i++)
		WRITE_ONCE(pokee_word[0], poke->value + i);
	return 0;
}

static noinline int pokee_same(const struct poke *poke)
{
	unsigned int i;

	for (i = 0; i < poke->count; i++)
		WRITE_ONCE(pokee_word[0], poke->value);
	return 0;
}

static noinline int pokee_byte(const struct poke *poke)
{
	unsigned int i;

	for (i = 0; i < poke->count; i++)
		WRITE_ONCE(((u8 *)pokee_word)[3], (u8)(poke->value + i));
	return 0;
}

static noinline int pokee_straddle(const struct poke *poke)
{
	void *to = (u8 *)pokee_word + 4;
	unsigned int i;

	/* In assembly: C has no unaligned store that stays one instruction. */
	for (i = 0; i < poke->count; i++)
		asm volatile("movq %1, (%0)" : : "r" (to), "r" (poke->value) : "memory");
	return 0;
}

static noinline int pokee_beside(const struct poke *poke)
{
	unsigned int i;

	for (i = 0; i < poke->count; i++)
		WRITE_ONCE(pokee_word[1 + i % 3], poke->value);
	return 0;
}

static noinline int pokee_irqsoff(const struct poke *poke)
{
	unsigned long flags;
	unsigned int i;

	local_irq_save(flags);
	for (i = 0; i < poke->count; i++)
		WRITE_ONCE(pokee_word[0], poke->value + i);
	local_irq_restore(flags);
	return 0;
}

static noinline int pokee_cmpxchg(const struct poke *poke)
{
	unsigned int i;

	/* It fails when the word is another; the CPU then writes back what it read. */
	for (i = 0; i < poke->count; i++)
		cmpxchg(&pokee_word[0], poke->value, poke->value);
	return 0;
}

static noinline int pokee_memcpy(const struct poke *poke)
{
	size_t size = 1;
	unsigned int i;
	u8 byte;

	/*
	 * A hidden length keeps the call. One byte, because memcpy() of more may store twice to a
	 * word, or byte by byte.
	 */
	OPTIMIZER_HIDE_VAR(size);
	for (i = 0; i < poke->count; i++) {
		byte = poke->value + i;
		memcpy(pokee_word, &byte, size);
	}
	return 0;
}

static noinline int pokee_repmovs(const struct poke *poke)
{
	u64 from[ARRAY_SIZE(pokee_word)];
	unsigned int i, k;

	for (i = 0; i < poke->count; i++) {
		unsigned long n = ARRAY_SIZE(from);
		void *src = from, *dst = pokee_word;

		for (k = 0; k < ARRAY_SIZE(from); k++)
			from[k] = poke->value + i;
		asm volatile("rep movsq" : "+S" (src), "+D" (dst), "+c" (n) : : "memory");
	}
	return 0;
}

static noinline int pokee_read(const struct poke *poke)
{
	unsigned int i;

	for (i = 0; i < poke->count; i++)
		(void)READ_ONCE(pokee_word[0]);
	return 0;
}

static noinline int pokee_user(const struct poke *poke)
{
	const void __user *from = u64_to_user_ptr(poke->value);
	unsigned int i;

	if (!current->mm)
		return -EINVAL;
	/* One byte, as in pokee_memcpy(). */
	for (i = 0; i < poke->count; i++)
		if (copy_from_user(pokee_word, from, 1))
			return -EFAULT;
	return 0;
}

noinline void pokee_function(void)
{
	/* Keeps the calls of an empty function. */
	barrier();
}

static noinline int pokee_exec(const struct poke *poke)
{
	unsigned int i;

	for (i = 0; i < poke->count; i++)
		pokee_function();
	return 0;
}

static noinline int pokee_percpu_store(const struct poke *poke)
{
	unsigned int i;

	for (i = 0; i < poke->count; i++)
		this_cpu_write(pokee_percpu, poke->value + i);
	return 0;
}

static u64 kernel_instructions(void)
{
	u32 a = COUNT_LEAF, b, c = COUNT_KERNEL, d;

	asm volatile("cpuid" : "+a" (a), "=b" (b), "+c" (c), "=d" (d) : : "memory");
	return b == COUNT_SIGNATURE ? a | (u64)d << 32 : 0;
}

static noinline int pokee_counted(const struct poke *poke)
{
	unsigned long flags;
	unsigned int i;
	u64 before;

	local_irq_save(flags);
	before = kernel_instructions();
	for (i = 0; i < poke->count; i++)
		WRITE_ONCE(pokee_word[0], poke->value + i);
	counted = kernel_instructions() - before;
	local_irq_restore(flags);
	return 0;
}

static void do_nothing(struct perf_event *event, struct perf_sample_data *data,
		       struct pt_regs *regs)
{
}

static int pokee_empty(const struct poke *poke)
{
	struct perf_event *__percpu *watch;
	struct perf_event_attr attr;

	hw_breakpoint_init(&attr);
	attr.bp_addr = (unsigned long)pokee_word;
	attr.bp_len = HW_BREAKPOINT_LEN_8;
	attr.bp_type = HW_BREAKPOINT_W;
	watch = register_wide_hw_breakpoint(&attr, do_nothing, NULL);
	if (IS_ERR((void __force *)watch))
		return PTR_ERR((void __force *)watch);
	pokee_counted(poke);
	unregister_wide_hw_breakpoint(watch);
	return 0;
}

static int pokee_mwait(const struct poke *poke)
{
	unsigned int i;

	if (!boot_cpu_has(X86_FEATURE_MWAIT))
		return -EOPNOTSUPP;
	for (i = 0; i < poke->count; i++) {
		asm volatile("monitor" : : "a" (pokee_word), "c" (0UL), "d" (0UL));
		asm volatile("mwait" : : "a" ((unsigned long)poke->value), "c" (0UL) : "memory");
	}
	return 0;
}

static const struct {
	const char *name;
	int (*func)(const struct poke *poke);
} kinds[] = {
	{ "store", pokee_store },
	{ "same", pokee_same },
	{ "byte", pokee_byte },
	{ "straddle", pokee_straddle },
	{ "beside", pokee_beside },
	{ "irqsoff", pokee_irqsoff },
	{ "cmpxchg", pokee_cmpxchg },
	{ "memcpy", pokee_memcpy },
	{ "repmovs", pokee_repmovs },
	{ "read", pokee_read },
	{ "user", pokee_user },
	{ "exec", pokee_exec },
	{ "percpu", pokee_percpu_store },
	{ "counted", pokee_counted },
	{ "empty", pokee_empty },
	{ "mwait", pokee_mwait },
};

static long poke_here(void *arg)
{
	const struct poke *poke = arg;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(poke->kind, kinds[i].name))
			return kinds[i].func(poke);
	return -EINVAL;
}

static long poke_on(struct poke *poke)
{
	long error;

	migrate_disable();
	if (raw_smp_processor_id() == poke->cpu) {
		error = poke_here(poke);
		migrate_enable();
		return error;
	}
	migrate_enable();

	cpus_read_lock();
	if (poke->cpu < nr_cpu_ids && cpu_online(poke->cpu))
		error = work_on_cpu(poke->cpu, poke_here, poke);
	else
		error = -ENXIO;
	cpus_read_unlock();
	return error;
}

static ssize_t pokee_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct poke poke = {};
	char text[80];
	long error;

	if (len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buf, len))
		return -EFAULT;
	text[len] = '\0';
	if (sscanf(text, "%15s %u %u %lli", poke.kind, &poke.cpu, &poke.count, &poke.value) < 3)
		return -EINVAL;

	error = poke_on(&poke);
	return error ?: len;
}

static ssize_t pokee_read_count(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu\n", counted);
	return simple_read_from_buffer(to, size, pos, text, strlen(text));
}

static const struct proc_ops pokee_proc_ops = {
	.proc_read	= pokee_read_count,
	.proc_write	= pokee_write,
};

static int __init pokee_init(void)
{
	return proc_create("pokee", 0600, NULL, &pokee_proc_ops) ? 0 : -ENOMEM;
}

static void __exit pokee_exit(void)
{
	remove_proc_entry("pokee", NULL);
}

module_init(pokee_init);
module_exit(pokee_exit);

MODULE_DESCRIPTION("memory accesses on demand, for ptwatch's tests");
MODULE_LICENSE("GPL");
