/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The code of a recording: the kernel's with its changes over time, and of each process what it had mapped
 * when. Private to flow/.
 *
 * struct ptw_code is shared by all threads that decode; a struct code_view, which is code as it was for one
 * process at one time, belongs to one of them.
 */
#ifndef PTWATCH_FLOW_CODE_H
#define PTWATCH_FLOW_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flow/stream.h"
#include "recording/recording.h"
#include "symbols/symbols.h"

#define CODE_KERNEL_HALF	(1ULL << 63)
#define CODE_ALWAYS		UINT64_MAX

struct ptw_code;
struct code_space;
struct code_view;

/** code_new() - the code of @rec, which must stay; NULL: errno tells why, such as no room for a temporary file */
struct ptw_code *code_new(const struct ptw_recording *rec);
void code_free(struct ptw_code *code);

/** code_drop() - what is known of processes need not stay in memory for now; by any thread, at any time */
void code_drop(const struct ptw_code *code);

/** code_unreadable() - first file of @rec's image that can't be read, for those who insist; NULL: all can */
const char *code_unreadable(const struct ptw_code *code);

/** code_space_at() - the address space of process @pid at @time; NULL: unknown */
struct code_space *code_space_at(struct ptw_code *code, int32_t pid, uint64_t time);

/** code_space_span() - until when, and since when, that is what code_space_at() returns for the process */
void code_space_span(const struct code_space *space, uint64_t *since, uint64_t *until);

/** code_state() - as long as it is the same, code_place() says the same of an address in @space */
uint64_t code_state(const struct ptw_code *code, const struct code_space *space, uint64_t time);

/** code_place() - what @addr is in @space (NULL: none but the kernel) at @time */
void code_place(struct ptw_code *code, struct code_space *space, uint64_t time, uint64_t addr,
		struct ptw_place *place);

struct code_view *code_view_new(struct ptw_code *code);
void code_view_free(struct code_view *view);

/**
 * code_view_space() - go to another process, or to another time in it
 * Return: the number of its code at that time, which is part of what code is known by. Code that is only added
 * does not change it.
 */
uint32_t code_view_space(struct code_view *view, struct code_space *space, uint64_t time);

/**
 * code_view_time() - make the kernel's code that of another time
 * @touched: asked for each page that changed, whether anything is known of its code
 *
 * Return: whether something that is known is no longer true.
 */
bool code_view_time(struct code_view *view, uint64_t time, bool (*touched)(void *context, uint64_t page),
		    void *context);

/** code_view_next_change() - no code changes before this time; for going forwards */
uint64_t code_view_next_change(const struct code_view *view);

/** code_read() - up to @size bytes at @addr. Return: how many there are. */
size_t code_read(const struct code_view *view, uint64_t addr, uint8_t *bytes, size_t size);

/** code_note() - a copy of @text that stays as long as the code; of no more than some dozens different ones */
const char *code_note(struct code_view *view, const char *text);

/** code_missing() - what is said of code at @addr that code_read() does not have; NULL: nothing is known of it */
const char *code_missing(const struct code_view *view, uint64_t addr);

/** code_view_is_flat() - the code at @addr is that of the recording's image, whatever process runs */
bool code_view_is_flat(const struct code_view *view, uint64_t addr);

/** code_view_symbol() - the symbol at @addr in the view's process, at its time; NULL: none */
const struct ptw_symbol *code_view_symbol(const struct code_view *view, uint64_t addr);

#endif /* PTWATCH_FLOW_CODE_H */
