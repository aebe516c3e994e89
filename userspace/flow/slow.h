/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libipt's block decoder, for what the engine leaves to it: from a PSB to the next. It knows everything, and
 * has the last word on what is an error. Private to flow/.
 */
#ifndef PTWATCH_FLOW_SLOW_H
#define PTWATCH_FLOW_SLOW_H

#include "flow/engine.h"

struct slow;

/** slow_image - libipt's view of the code; one for each thread that decodes */
struct slow_image;
struct slow_image *slow_image_new(const struct ptw_recording *rec, struct code_view *view);
void slow_image_free(struct slow_image *image);

/**
 * slow_new() - begin at @engine's last PSB; what the engine has told since is not told again
 * Return: NULL: out of memory
 */
struct slow *slow_new(struct engine *engine, struct sink *sink);

/** slow_run() - as engine_run(), but for ENGINE_DOUBT; always with the same @image */
enum engine_status slow_run(struct slow *slow, struct engine *engine, struct sink *sink,
			    struct slow_image *image, size_t room);

/** slow_end() - where it ended: at the next PSB or the end of the trace */
size_t slow_end(const struct slow *slow);
void slow_free(struct slow *slow);

#endif /* PTWATCH_FLOW_SLOW_H */
