/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The TCG plugin interface of QEMU, version 7 (QEMU 11.1), as far as the emulator uses it.
 *
 * Distributions ship no header for it, so the prototypes are declared here from the behaviour of
 * the binary. This is the only file that knows the interface's version: when another QEMU is
 * supported, it changes here (and in plugin.c's qemu_plugin_install, which reports mismatches).
 */
#ifndef QEMU_PLUGIN_API_H
#define QEMU_PLUGIN_API_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version this file declares; QEMU loads a plugin only if it is within its own min..cur. */
#define PLUGIN_API_VERSION 7

#define PLUGIN_EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;

/* struct qemu_info_t of QEMU. */
struct plugin_info {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} system;
};

/* What a callback may do with the vCPU's registers. */
enum plugin_regs {
	REGS_NONE,
	REGS_READ,
	REGS_WRITE,
	REGS_WRITE_PC,
};

/* Conditions compare unsigned: value <cond> immediate. */
enum plugin_cond {
	COND_NEVER,
	COND_ALWAYS,
	COND_EQ,
	COND_NE,
	COND_LT,
	COND_LE,
	COND_GT,
	COND_GE,
};

enum plugin_op {
	OP_ADD,
	OP_STORE,
};

enum plugin_mem_rw {
	MEM_READ = 1,
	MEM_WRITE = 2,
	MEM_RW = 3,
};

/*
 * Discontinuities. INTERRUPT comes for interrupts and exceptions alike, once the vCPU is in the
 * handler, with exact from and to. EXCEPTION comes before it, for exceptions only.
 */
enum plugin_discon {
	DISCON_INTERRUPT = 1,
	DISCON_EXCEPTION = 2,
};

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_plugin_register;

/* One 64-bit value per vCPU, at offset in each vCPU's part of a scoreboard. */
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

struct plugin_reg_desc {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
	bool is_readonly;
};

typedef void (*plugin_vcpu_cb)(unsigned int vcpu, void *opaque);
typedef void (*plugin_cb)(void *opaque);
typedef void (*plugin_tb_trans_cb)(struct qemu_plugin_tb *tb, void *opaque);
typedef void (*plugin_mem_cb)(unsigned int vcpu, uint32_t info, uint64_t vaddr, void *opaque);
typedef void (*plugin_discon_cb)(unsigned int vcpu, int type, uint64_t from, uint64_t to,
				 void *opaque);

/* What the plugin provides: the version it was made for, and where it begins. */
extern PLUGIN_EXPORT int qemu_plugin_version;
PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct plugin_info *info, int argc,
				      char **argv);

/*
 * What QEMU provides. Weak, so that one that lacks some of it still loads the plugin far enough to find that the
 * version is not its own, and says so.
 */
#define FROM_QEMU __attribute__((weak))
FROM_QEMU void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, plugin_vcpu_cb cb, void *opaque);
FROM_QEMU void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, plugin_cb cb, void *opaque);
FROM_QEMU void qemu_plugin_register_flush_cb(qemu_plugin_id_t id, plugin_cb cb, void *opaque);
FROM_QEMU void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, plugin_tb_trans_cb cb,
					   void *opaque);
FROM_QEMU void qemu_plugin_register_vcpu_discon_cb(qemu_plugin_id_t id, int types, plugin_discon_cb cb,
					 void *opaque);

FROM_QEMU void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, plugin_vcpu_cb cb,
					       int regs, int cond, qemu_plugin_u64 value,
					       uint64_t imm, void *opaque);
FROM_QEMU void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op,
						       qemu_plugin_u64 value, uint64_t imm);
FROM_QEMU void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, plugin_vcpu_cb cb,
					    int regs, void *opaque);
FROM_QEMU void qemu_plugin_register_vcpu_insn_exec_cond_cb(struct qemu_plugin_insn *insn, plugin_vcpu_cb cb,
						 int regs, int cond, qemu_plugin_u64 value,
						 uint64_t imm, void *opaque);
FROM_QEMU void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn, int op,
							 qemu_plugin_u64 value, uint64_t imm);
FROM_QEMU void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, plugin_mem_cb cb, int regs,
				      int rw, void *opaque);
FROM_QEMU unsigned int qemu_plugin_mem_size_shift(uint32_t info);

FROM_QEMU size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
FROM_QEMU uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
FROM_QEMU struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
FROM_QEMU size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *dest, size_t len);
FROM_QEMU void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *insn);
FROM_QEMU uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

FROM_QEMU GArray *qemu_plugin_get_registers(void);
FROM_QEMU bool qemu_plugin_read_register(struct qemu_plugin_register *reg, GByteArray *buf);
FROM_QEMU bool qemu_plugin_write_register(struct qemu_plugin_register *reg, GByteArray *buf);
FROM_QEMU __attribute__((noreturn)) void qemu_plugin_set_pc(uint64_t vaddr);
FROM_QEMU bool qemu_plugin_read_memory_vaddr(uint64_t vaddr, GByteArray *buf, size_t len);
FROM_QEMU int qemu_plugin_read_memory_hwaddr(uint64_t paddr, GByteArray *buf, size_t len);
FROM_QEMU int qemu_plugin_write_memory_hwaddr(uint64_t paddr, GByteArray *buf);

FROM_QEMU struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
FROM_QEMU void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score, unsigned int vcpu);

#endif /* QEMU_PLUGIN_API_H */
