/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tsc_check TRACE LOW HIGH: all TSC packets of TRACE are within LOW..HIGH and don't go backwards.
 * Prints how many there are.
 */
#include <inttypes.h>
#include <intel-pt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	struct pt_packet_decoder *d;
	struct pt_config config;
	struct pt_packet p;
	uint64_t low, high, last = 0;
	unsigned int n = 0;
	uint8_t *data;
	int status;
	long len;
	FILE *f;

	if (argc != 4 || !(f = fopen(argv[1], "rb")))
		return 2;
	/* A TSC packet holds 56 bits. */
	low = strtoull(argv[2], NULL, 10) & ((1ULL << 56) - 1);
	high = strtoull(argv[3], NULL, 10) & ((1ULL << 56) - 1);
	fseek(f, 0, SEEK_END);
	len = ftell(f);
	rewind(f);
	data = malloc(len);
	if (fread(data, 1, len, f) != (size_t)len)
		return 2;
	fclose(f);
	pt_config_init(&config);
	config.begin = data;
	config.end = data + len;
	d = pt_pkt_alloc_decoder(&config);
	for (status = pt_pkt_sync_forward(d); status >= 0;) {
		status = pt_pkt_next(d, &p, sizeof(p));
		if (status < 0 || p.type != ppt_tsc)
			continue;
		n++;
		if (p.payload.tsc.tsc < low || p.payload.tsc.tsc > high || p.payload.tsc.tsc < last) {
			printf("TSC %" PRIu64 " is not in %" PRIu64 "..%" PRIu64 " or before %" PRIu64
			       "\n", p.payload.tsc.tsc, low, high, last);
			return 1;
		}
		last = p.payload.tsc.tsc;
	}
	printf("%u TSC packets\n", n);
	return status != -pte_eos || !n;
}
