/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the emulator uses of QEMU beyond its plugin interface: functions that the binary exports for its own
 * modules. They are looked up by name when the plugin is loaded, and a QEMU without one of them is refused.
 */
#ifndef QEMU_INTERNAL_H
#define QEMU_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct vcpu;

/* False, with a message, if this QEMU lacks something. */
bool internal_init(void);

/* What the guest's RDTSC gives at this moment, before offsets. */
int64_t internal_ticks(void);

/* Find a CPU's registers in QEMU's memory, in a callback with REGS_WRITE. Needed before internal_load(). */
void internal_learn(struct vcpu *v);

/* RIP, in a callback with REGS_WRITE: what guest_reg() gives, in a tenth of the time. */
uint64_t internal_rip(struct vcpu *v);

/* Have all blocks translated anew, before vCPU index, the calling one, executes its next one. */
void internal_flush(unsigned int index);

/*
 * The return address of the callback that the generated code has called: what the functions below need to
 * find out where the guest stands. Only to be used in that callback itself.
 */
#define CALL_SITE() ((uintptr_t)__builtin_return_address(0))

/*
 * In a callback on an instruction: make EIP and the lazily evaluated flags of the guest those at this
 * instruction. Needed before qemu_plugin_set_pc(), which else loses flags set in the same block.
 */
void internal_restore_state(unsigned int index, uintptr_t call_site);

/*
 * In a callback with REGS_WRITE on an instruction: load 4 or 8 bytes as the guest's program at privilege
 * level cpl would. If that faults, the guest takes the fault at this instruction and the call doesn't return.
 */
uint64_t internal_load(struct vcpu *v, uint64_t vaddr, unsigned int bytes, unsigned int cpl, uintptr_t call_site);

/*
 * In a callback with REGS_WRITE_PC on an instruction that has been executed here: go on at pc, with the trap that
 * RFLAGS.TF asks for (once internal_learn() has been called). Doesn't return.
 */
void internal_continue(struct vcpu *v, uint64_t pc);

#endif /* QEMU_INTERNAL_H */
