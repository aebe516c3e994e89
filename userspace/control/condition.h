/* SPDX-License-Identifier: BSD-2-Clause */
/* What a hit must be to become an alarm, as people write it. */
#ifndef PTWATCH_CONTROL_CONDITION_H
#define PTWATCH_CONTROL_CONDITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum ptw_value_op {
	PTW_VALUE_CHANGED,	/* the new value is not the old one */
	PTW_VALUE_ANY,		/* some bit of the mask is set */
	PTW_VALUE_EQ,
	PTW_VALUE_NE,
	PTW_VALUE_LT,
	PTW_VALUE_LE,
	PTW_VALUE_GT,
	PTW_VALUE_GE,
};

/** struct ptw_value_condition - (new & mask) op value */
struct ptw_value_condition {
	enum ptw_value_op op;
	uint64_t mask;		/* all ones without "&" */
	uint64_t value;
	bool is_signed;		/* LT to GE: two's complement */
	bool has_sign;		/* the number was written with a sign, which settles @is_signed */
	bool negative;
	char text[64];		/* as written */
};

/**
 * ptw_value_condition_parse() - read a condition
 * @text: "changed", "new == 0x10", "new & 0xff", "(new & 0xf0) != 0x20", "new < -1", "new >= 3"
 *
 * A number with a sign, as -1 or +5, makes its comparison a signed one. Fails with PTW_EXIT_USAGE.
 */
int ptw_value_condition_parse(const char *text, struct ptw_value_condition *condition, struct ptw_error *err);

/**
 * ptw_value_condition_fit() - make @condition one about @len bytes
 * @is_signed: the type of the watched place is known to be signed: then unsigned numbers compare signed too
 *
 * Fails with PTW_EXIT_USAGE when it can never be false, or never true, because of its size.
 */
int ptw_value_condition_fit(struct ptw_value_condition *condition, uint32_t len, bool is_signed,
			    struct ptw_error *err);

/** ptw_value_condition_holds() - what the kernel decides at each hit, for tests and to explain */
bool ptw_value_condition_holds(const struct ptw_value_condition *condition, uint32_t len, uint64_t old_value,
			       uint64_t new_value);

#endif /* PTWATCH_CONTROL_CONDITION_H */
