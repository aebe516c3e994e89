// SPDX-License-Identifier: BSD-2-Clause
#include "control/condition.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMS "write changed, new == 0x10, new != 5, new < -1, new >= 3, new & 0xff or (new & 0xf0) == 0x20"

struct parser {
	const char *text;	/* all of it, for messages */
	const char *at;
	struct ptw_error *err;
};

static void blanks(struct parser *p)
{
	p->at += strspn(p->at, " \t");
}

static bool take(struct parser *p, const char *token)
{
	size_t length = strlen(token);

	blanks(p);
	if (strncmp(p->at, token, length))
		return false;
	/* A word ends where no more of it follows. */
	if (isalpha((unsigned char)*token) && (isalnum((unsigned char)p->at[length]) || p->at[length] == '_'))
		return false;
	p->at += length;
	return true;
}

static int wrong(struct parser *p, const char *what)
{
	blanks(p);
	if (!*p->at)
		return ptw_error_set(p->err, PTW_EXIT_USAGE, "'%s': %s expected at its end; " FORMS, p->text, what);
	return ptw_error_set(p->err, PTW_EXIT_USAGE, "'%s': %s expected at '%s'; " FORMS, p->text, what, p->at);
}

static int number(struct parser *p, uint64_t *value, char *sign)
{
	char *end;

	blanks(p);
	*sign = '\0';
	if (*p->at == '-' || *p->at == '+')
		*sign = *p->at++;
	if (!isdigit((unsigned char)*p->at))
		return wrong(p, "a number");
	errno = 0;
	*value = strtoull(p->at, &end, p->at[0] == '0' && (p->at[1] | 0x20) == 'x' ? 16 : 10);
	if (isalnum((unsigned char)*end) || *end == '_')
		return wrong(p, "a number");
	if (errno || (*sign == '-' && *value > 1ULL << 63) || (*sign == '+' && *value > INT64_MAX))
		return ptw_error_set(p->err, PTW_EXIT_USAGE, "'%s': '%.*s' has no room in 64 bits", p->text,
				     (int)(end - p->at), p->at);
	if (*sign == '-')
		*value = -*value;
	p->at = end;
	return 0;
}

/* "new", "new & MASK", with or without parentheses around. */
static int operand(struct parser *p, struct ptw_value_condition *c, bool *masked)
{
	bool parenthesis = take(p, "(");
	char sign;

	if (!take(p, "new"))
		return wrong(p, "'new' or 'changed'");
	*masked = false;
	c->mask = UINT64_MAX;
	blanks(p);
	if (p->at[0] == '&' && p->at[1] != '&') {
		p->at++;
		*masked = true;
		if (number(p, &c->mask, &sign))
			return -1;
		if (!c->mask)
			return ptw_error_set(p->err, PTW_EXIT_USAGE, "'%s': a mask of 0 leaves nothing to compare", p->text);
	}
	if (parenthesis && !take(p, ")"))
		return wrong(p, "')'");
	return 0;
}

static int one(struct parser *p, struct ptw_value_condition *c)
{
	static const struct { const char *token; enum ptw_value_op op; } ops[] = {
		{ "==", PTW_VALUE_EQ }, { "!=", PTW_VALUE_NE }, { "<=", PTW_VALUE_LE }, { ">=", PTW_VALUE_GE },
		{ "=", PTW_VALUE_EQ }, { "<", PTW_VALUE_LT }, { ">", PTW_VALUE_GT },
	};
	bool masked = false, compares = false;
	const char *begin;
	char sign;

	memset(c, 0, sizeof(*c));
	blanks(p);
	begin = p->at;
	if (take(p, "changed")) {
		c->op = PTW_VALUE_CHANGED;
		c->mask = UINT64_MAX;
		goto done;
	}
	if (take(p, "old"))
		return ptw_error_set(p->err, PTW_EXIT_USAGE, "'%s': only the new value can be compared; " FORMS, p->text);
	if (operand(p, c, &masked))
		return -1;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && !compares; i++) {
		compares = take(p, ops[i].token);
		if (compares)
			c->op = ops[i].op;
	}
	if (!compares) {
		if (!masked)
			return wrong(p, "==, !=, <, <=, >, >= or &");
		c->op = PTW_VALUE_ANY;
		goto done;
	}
	if (number(p, &c->value, &sign))
		return -1;
	c->has_sign = sign;
	c->negative = sign == '-' && c->value;
	c->is_signed = c->has_sign && c->op >= PTW_VALUE_LT;
	if (masked && sign)
		return ptw_error_set(p->err, PTW_EXIT_USAGE, "'%s': masked bits have no sign; write the number without", p->text);
	if (masked && c->value & ~c->mask)
		return ptw_error_set(p->err, PTW_EXIT_USAGE, "'%s': 0x%llx has bits that the mask 0x%llx leaves out", p->text,
				     (unsigned long long)c->value, (unsigned long long)c->mask);
done:
	snprintf(c->text, sizeof(c->text), "%.*s", (int)(p->at - begin), begin);
	return 0;
}

int ptw_value_condition_parse(const char *text, struct ptw_value_condition *condition, struct ptw_error *err)
{
	struct parser p = { .text = text, .at = text, .err = err };

	if (one(&p, condition))
		return -1;
	if (take(&p, "&&") || take(&p, "||") || take(&p, "and") || take(&p, "or"))
		return ptw_error_set(err, PTW_EXIT_USAGE, "'%s': a watch has one condition on the value, not two",
				     text);
	blanks(&p);
	return *p.at ? wrong(&p, "the end") : 0;
}

static uint64_t all_ones(uint32_t len)
{
	return len >= 8 ? UINT64_MAX : (1ULL << 8 * len) - 1;
}

static int64_t extend(uint64_t value, uint32_t len)
{
	unsigned int shift = len >= 8 ? 0 : 64 - 8 * len;

	return (int64_t)(value << shift) >> shift;
}

int ptw_value_condition_fit(struct ptw_value_condition *c, uint32_t len, bool is_signed, struct ptw_error *err)
{
	uint64_t ones = all_ones(len);

	if (c->op == PTW_VALUE_CHANGED) {
		c->mask = ones;
		return 0;
	}
	if (c->mask != UINT64_MAX && c->mask & ~ones)
		return ptw_error_set(err, PTW_EXIT_USAGE, "'%s': the mask has bits beyond the %u byte%s watched", c->text, len,
				     len == 1 ? "" : "s");
	c->mask &= ones;
	if (is_signed && !c->has_sign && c->op >= PTW_VALUE_LT && c->mask == ones)
		c->is_signed = true;
	if (c->op == PTW_VALUE_ANY)
		return 0;
	/* "-1" means the pattern of it; what is only ever a pattern may be written either way. */
	if (c->negative || c->is_signed) {
		if (extend(c->value, len) != (int64_t)c->value && (c->negative || c->op >= PTW_VALUE_LT))
			return ptw_error_set(err, PTW_EXIT_USAGE, "'%s': %u byte%s hold %lld to %lld", c->text, len,
					     len == 1 ? "" : "s", (long long)extend(1ULL << (8 * len - 1), len),
					     (long long)(ones >> 1));
	} else if (c->value & ~ones) {
		return ptw_error_set(err, PTW_EXIT_USAGE, "'%s': %u byte%s hold 0 to 0x%llx", c->text, len, len == 1 ? "" : "s",
				     (unsigned long long)ones);
	}
	c->value &= ones;
	return 0;
}

bool ptw_value_condition_holds(const struct ptw_value_condition *c, uint32_t len, uint64_t old_value,
			       uint64_t new_value)
{
	uint64_t ones = all_ones(len), bits = new_value & c->mask & ones;
	int64_t have = extend(bits, len), want = extend(c->value, len);
	int order = c->is_signed ? (have > want) - (have < want) : (bits > c->value) - (bits < c->value);

	switch (c->op) {
	case PTW_VALUE_CHANGED:
		return (old_value ^ new_value) & ones;
	case PTW_VALUE_ANY:
		return bits;
	case PTW_VALUE_EQ:
		return bits == c->value;
	case PTW_VALUE_NE:
		return bits != c->value;
	case PTW_VALUE_LT:
		return order < 0;
	case PTW_VALUE_LE:
		return order <= 0;
	case PTW_VALUE_GT:
		return order > 0;
	default:
		return order >= 0;
	}
}
