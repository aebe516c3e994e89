// SPDX-License-Identifier: GPL-2.0
/*
 * Modules that come and go, and with them what is watched in them.
 *
 * A symbol of a module that comes is looked up in the module's own symbol table, before its init
 * function runs. The kernel's look-ups are not exported; the table is in struct module.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "ptwatch.h"

/*
 * Between its notification and its entry in /sys/module a module that comes would be found by
 * nobody. Under ptw_config_lock.
 */
struct coming {
	struct list_head link;
	struct module *mod;
};

static LIST_HEAD(coming);

static int symbol_address(struct module *mod, const char *name, u64 *address)
{
	int error = -ENOENT;
#ifdef CONFIG_KALLSYMS
	const struct mod_kallsyms *table;
	unsigned int i;

	rcu_read_lock();
	/* All symbols while it is coming, those that outlive its init section later. */
	table = rcu_dereference(mod->kallsyms);
	for (i = 0; table && i < table->num_symtab; i++) {
		const Elf_Sym *sym = &table->symtab[i];

		if (sym->st_shndx == SHN_UNDEF || strcmp(table->strtab + sym->st_name, name))
			continue;
		*address = sym->st_value;
		error = 0;
		break;
	}
	rcu_read_unlock();
#endif
	return error;
}

/* As the kernel calls it: file names may have dashes, modules have underscores. */
static bool is_called(const struct module *mod, const char *name)
{
	const char *own = mod->name;

	for (; *own && *name; own++, name++)
		if (*own != (*name == '-' ? '_' : *name))
			return false;
	return !*own && !*name;
}

static int arm_in(struct ptw_watch *watch, struct module *mod, struct ptwatch_refusal *why)
{
	u64 address;

	if (symbol_address(mod, watch->arg.symbol, &address)) {
		why->reason = PTWATCH_WHY_NO_SYMBOL;
		return -ENOENT;
	}
	/* Its own per-CPU variables have addresses in an area that no other module has. */
	if (address - (u64)(unsigned long)mod->percpu < mod->percpu_size)
		watch->arg.flags |= PTWATCH_WATCH_PERCPU;
	return ptw_watch_arm(watch, address + watch->arg.address, why);
}

/* A module that is in /sys/module, with a reference; NULL: not there, or on its way out. */
static struct module *loaded(const char *name)
{
	char called[MODULE_NAME_LEN];
	struct kobject *kobj;
	struct module *mod = NULL;

	if (strscpy(called, name, sizeof(called)) < 0)
		return NULL;
	strreplace(called, '-', '_');
	kobj = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, called);
	if (!kobj)
		return NULL;
	/* Of what is built into the kernel, there is no module. */
	mod = container_of(kobj, struct module_kobject, kobj)->mod;
	if (mod && !try_module_get(mod))
		mod = NULL;
	kobject_put(kobj);
	return mod;
}

int ptw_module_watch_arm(struct ptw_watch *watch, struct ptwatch_refusal *why)
{
	struct coming *entry;
	struct module *mod;
	int error;

	lockdep_assert_held(&ptw_config_lock);
	watch->state = PTWATCH_WATCH_WAITING;
	list_for_each_entry(entry, &coming, link)
		if (is_called(entry->mod, watch->arg.module))
			return arm_in(watch, entry->mod, why);
	mod = loaded(watch->arg.module);
	if (!mod)
		return 0;
	error = arm_in(watch, mod, why);
	module_put(mod);
	return error;
}

/* ---- the notifier ---- */

static void module_coming(struct module *mod)
{
	struct coming *entry = kmalloc(sizeof(*entry), GFP_KERNEL);
	struct ptw_watch *watch;

	if (entry) {
		entry->mod = mod;
		list_add(&entry->link, &coming);
	}
	list_for_each_entry(watch, &ptw_watches, link) {
		struct ptwatch_refusal why = {};
		int error;

		if (watch->state != PTWATCH_WATCH_WAITING || !is_called(mod, watch->arg.module))
			continue;
		error = arm_in(watch, mod, &why);
		if (!error)
			continue;
		atomic64_inc(&watch->missed);
		pr_warn("watch %u (%s) is not armed in module %s: %s (%d)\n", watch->arg.id,
			watch->arg.label, mod->name,
			error == -ENOENT ? "it has no such symbol" :
			error == -ENOSPC ? "no free debug register" :
					   "refused",
			error);
	}
}

static void module_came(const struct module *mod)
{
	struct coming *entry, *next;

	list_for_each_entry_safe(entry, next, &coming, link) {
		if (entry->mod != mod)
			continue;
		list_del(&entry->link);
		kfree(entry);
	}
}

/* Is what is watched in this module? A per-CPU variable of one lies in an area of its own. */
static bool watches_module(const struct ptw_watch *watch, const struct module *mod)
{
	if (watch->arg.flags & PTWATCH_WATCH_USER)
		return false;
	if (watch->arg.flags & PTWATCH_WATCH_PERCPU)
		return watch->address - (u64)(unsigned long)mod->percpu < mod->percpu_size;
	return within_module(watch->address, mod);
}

/* Their memory will be someone else's, whose accesses are not what was asked for. */
static void memory_going(const struct module *mod, bool init_only)
{
	struct ptw_watch *watch;

	list_for_each_entry(watch, &ptw_watches, link) {
		if (watch->state != PTWATCH_WATCH_ARMED)
			continue;
		if (init_only ? !within_module_init(watch->address, mod) :
				!watches_module(watch, mod))
			continue;
		if (watch->arg.flags & PTWATCH_WATCH_WAIT_MODULE) {
			ptw_watch_disarm(watch, PTWATCH_WATCH_WAITING);
			watch->address = 0;
			continue;
		}
		ptw_watch_disarm(watch, PTWATCH_WATCH_GONE);
		pr_warn("watch %u (%s) is disarmed: module %s %s\n", watch->arg.id,
			watch->arg.label, mod->name,
			init_only ? "is initialised, and this code is freed" :
				    "is being unloaded");
	}
}

static int on_module(struct notifier_block *nb, unsigned long state, void *data)
{
	struct module *mod = data;

	if (mod == THIS_MODULE || state == MODULE_STATE_UNFORMED)
		return NOTIFY_OK;
	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	if (state == MODULE_STATE_COMING)
		module_coming(mod);
	else
		module_came(mod);
	/* The memory of its init function is freed after it ran. */
	if (state != MODULE_STATE_COMING)
		memory_going(mod, state == MODULE_STATE_LIVE);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	return NOTIFY_OK;
}

static struct notifier_block module_nb = { .notifier_call = on_module };

int ptw_module_watch_init(void)
{
	return register_module_notifier(&module_nb);
}

void ptw_module_watch_exit(void)
{
	unregister_module_notifier(&module_nb);
	while (!list_empty(&coming))
		module_came(list_first_entry(&coming, struct coming, link)->mod);
}
