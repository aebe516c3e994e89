/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The code that the kernel maps into every process and no file has: one for 64-bit programs, another one for 32-bit ones.
 * Private to recording/.
 */
#ifndef PTWATCH_RECORDING_VDSO_H
#define PTWATCH_RECORDING_VDSO_H

/**
 * vdso_copy() - copy both to @dir: "vdso" and "vdso32"
 *
 * What can't be had is left out: that code can't be followed then, all else can.
 */
void vdso_copy(const char *dir);

#endif /* PTWATCH_RECORDING_VDSO_H */
