/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The packet writer: turns trace events into Intel PT packets (SDM, "Packet Definitions"). It knows
 * the bytes, last-IP compression and the packing of TNT bits, and nothing of why a packet is due.
 * No dependency on QEMU.
 */
#ifndef PACKET_H
#define PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes gathered before they are handed to the output; at least the longest packet run. */
#define PACKET_BUFFER 1024

/* The packets with an IP payload, by their opcode bits 4:0. */
enum packet_ip {
	PACKET_TIP = 0x0d,
	PACKET_TIP_PGE = 0x11,
	PACKET_TIP_PGD = 0x01,
	PACKET_FUP = 0x1d,
};

/* MODE.Exec payload: CS.L and EFER.LMA in bit 0, CS.D in bit 1. */
enum packet_exec {
	PACKET_EXEC_16 = 0,
	PACKET_EXEC_64 = 1,
	PACKET_EXEC_32 = 2,
	PACKET_EXEC_UNKNOWN = 3,	/* reserved: none was told yet */
};

/* What the statistics tell apart. */
enum packet_class {
	PACKET_CLASS_TNT,
	PACKET_CLASS_TIP,
	PACKET_CLASS_FUP,
	PACKET_CLASS_PSB,	/* PSB+ apart from its FUP */
	PACKET_CLASS_PIP,
	PACKET_CLASS_MODE,
	PACKET_CLASS_MTC,
	PACKET_CLASS_CYC,
	PACKET_CLASS_OTHER,
	PACKET_CLASSES,
};

struct packet_writer {
	uint8_t buf[PACKET_BUFFER];
	size_t len;
	size_t limit;		/* bytes to gather at most, 0: all that fit */
	uint64_t last_ip;	/* as the decoder has it */
	bool ip_known;		/* false: the next IP goes out in full */
	uint64_t tnt;		/* pending bits, the newest in bit 0 */
	unsigned int ntnt;
	bool long_tnt;		/* pack up to 47 bits instead of 6 */
	uint64_t since_psb;	/* bytes since the last PSB packet began: PacketByteCnt */
	uint64_t total;		/* bytes ever written */
	uint64_t bytes[PACKET_CLASSES];
	/* Bytes after which the internal buffer overflows, 0: never; and how many they are so far. */
	uint64_t overflow, since_ovf;
	bool lost;		/* it has, and packets are lost until packet_ovf() */
	bool in_ovf;		/* OVF is being written */
	bool cut_cyc;		/* erratum SKD007: OVF cuts off a CYC of more than one byte */
	/* MODE.Exec as the decoder has it, and as the next packet with an IP makes it. */
	enum packet_exec mode, next_mode;
	/* Takes full buffers; required. */
	void (*output)(void *opaque, const uint8_t *data, size_t len);
	/* Called before each packet that a CYC may precede; it may call packet_cyc(). Optional. */
	void (*stamp)(void *opaque);
	void *opaque;
};

/* Forget everything that is pending and the state of compression. The hooks stay. */
void packet_reset(struct packet_writer *w);
/* Hand the whole packets gathered so far to the output. Pending TNT bits stay pending. */
void packet_flush(struct packet_writer *w);

/* One conditional branch or compressed RET. A packet goes out when it is full. */
void packet_tnt(struct packet_writer *w, bool taken);
/* Make a packet of the pending TNT bits, if any. */
void packet_tnt_flush(struct packet_writer *w);

/* Everything below writes the pending TNT bits first, so that the order is that of events. */
void packet_ip(struct packet_writer *w, enum packet_ip type, uint64_t ip);
/* The same with the IP suppressed (IPBytes = 0), which leaves the last IP alone. */
void packet_ip_none(struct packet_writer *w, enum packet_ip type);
/* cr3: the whole register; the payload takes bits 51:5 of it. nr: non-root operation. */
void packet_pip(struct packet_writer *w, uint64_t cr3, bool nr);
void packet_mode_exec(struct packet_writer *w, enum packet_exec mode, bool intr_flag);
void packet_mode_tsx(struct packet_writer *w, bool in_tx, bool aborted);
void packet_tracestop(struct packet_writer *w);
void packet_cbr(struct packet_writer *w, uint8_t ratio);
void packet_tsc(struct packet_writer *w, uint64_t tsc);
/* ctc: crystal ticks; fast: TSC ticks since the last of them, 9 bits. */
void packet_tma(struct packet_writer *w, uint16_t ctc, uint16_t fast);
/* ctc: the 8 bits of the crystal clock that MTCFreq selects. */
void packet_mtc(struct packet_writer *w, uint8_t ctc);
void packet_cyc(struct packet_writer *w, uint64_t cycles);
void packet_vmcs(struct packet_writer *w, uint64_t base);
/* The buffer takes packets again. TNT bits that were still pending are among the lost ones. */
void packet_ovf(struct packet_writer *w);
/* Also forgets the last IP. */
void packet_psb(struct packet_writer *w);
void packet_psbend(struct packet_writer *w);
void packet_mnt(struct packet_writer *w, uint64_t payload);
/* bytes: 4 or 8; fup: a FUP follows. */
void packet_ptwrite(struct packet_writer *w, uint64_t value, unsigned int bytes, bool fup);
void packet_exstop(struct packet_writer *w, bool fup);
void packet_mwait(struct packet_writer *w, uint32_t hints, uint32_t ext);
void packet_pwre(struct packet_writer *w, uint8_t state, uint8_t sub, bool hw);
void packet_pwrx(struct packet_writer *w, uint8_t last, uint8_t deepest, uint8_t wake);
void packet_cfe(struct packet_writer *w, uint8_t type, uint8_t vector, bool fup);
void packet_evd(struct packet_writer *w, uint8_t type, uint64_t payload);
void packet_pad(struct packet_writer *w);

#endif /* PACKET_H */
