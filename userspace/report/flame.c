// SPDX-License-Identifier: BSD-2-Clause
#include "report/flame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "report/duration.h"
#include "report/path.h"

#define MAX_NODES	(1u << 20)	/* deeper stacks then count to the innermost one that is there */
#define MAX_DEPTH	4096

#define SVG_WIDTH	1200
#define SVG_ROW		17
#define SVG_TOP		40
#define SVG_LEAST	0.3		/* narrower ones are not drawn */

struct node {
	uint64_t self, total;
	uint32_t name, parent, child, next;
	uint8_t kind;			/* enum ptw_frame_kind */
};

struct ptw_flame {
	struct ptw_path_names names;
	struct node *node;		/* node[0]: all */
	uint32_t count, room;
	bool idle;
	int32_t tid;
};

static int add_node(struct ptw_flame *f, uint32_t parent, uint32_t name, uint8_t kind)
{
	struct node *grown;

	if (f->count == f->room) {
		grown = reallocarray(f->node, f->room ? 2 * f->room : 256, sizeof(*grown));
		if (!grown)
			return -1;
		f->node = grown;
		f->room = f->room ? 2 * f->room : 256;
	}
	f->node[f->count] = (struct node){ .name = name, .parent = parent, .kind = kind };
	if (f->count) {
		f->node[f->count].next = f->node[parent].child;
		f->node[parent].child = f->count;
	}
	f->count++;
	return 0;
}

struct ptw_flame *ptw_flame_new(bool idle, int32_t tid)
{
	struct ptw_flame *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->idle = idle;
	f->tid = tid;
	if (ptw_path_name(&f->names, "all") == UINT32_MAX || add_node(f, 0, 1, 0)) {
		ptw_flame_free(f);
		return NULL;
	}
	return f;
}

void ptw_flame_free(struct ptw_flame *f)
{
	if (!f)
		return;
	ptw_path_names_free(&f->names);
	free(f->node);
	free(f);
}

/* The child, made if need be; UINT32_MAX: out of memory. */
static uint32_t child_of(struct ptw_flame *f, uint32_t parent, const char *text, uint8_t kind)
{
	uint32_t name = ptw_path_name(&f->names, text), i;

	if (name == UINT32_MAX)
		return UINT32_MAX;
	for (i = f->node[parent].child; i; i = f->node[i].next)
		if (f->node[i].name == name)
			return i;
	if (f->count >= MAX_NODES)
		return parent;
	return add_node(f, parent, name, kind) ? UINT32_MAX : f->count - 1;
}

static uint32_t thread_node(struct ptw_flame *f, const struct ptw_thread *thread)
{
	char name[64];
	char *at;

	if (thread->tid < 0)
		snprintf(name, sizeof(name), thread->cpu >= 0 ? "cpu %d" : "trace", thread->cpu);
	else if (!thread->tid)
		snprintf(name, sizeof(name), "idle");
	else
		snprintf(name, sizeof(name), thread->comm[0] ? "%s-%d" : "%s%d", thread->comm, thread->tid);
	/* It separates functions. */
	for (at = name; (at = strchr(at, ';'));)
		*at = ':';
	return child_of(f, 0, name, 0);
}

static int take_enter(struct ptw_flame *f, const struct ptw_story_event *event)
{
	struct ptw_story_thread *thread = event->thread;
	struct ptw_frame *frame = event->frame;
	uint32_t parent, node;
	char buf[PTW_FRAME_NAME];

	if (thread->frame_count > 1 && frame[-1].user)
		parent = (uint32_t)(uintptr_t)frame[-1].user;
	else
		parent = thread_node(f, thread->info);
	if (parent == UINT32_MAX)
		return -1;
	node = child_of(f, parent, ptw_frame_name(frame, buf, sizeof(buf)), frame->kind);
	if (node == UINT32_MAX)
		return -1;
	frame->user = (void *)(uintptr_t)node;
	return 0;
}

int ptw_flame_take(struct ptw_flame *f, const struct ptw_story_event *event)
{
	const struct ptw_thread *info = event->thread->info;

	if ((!f->idle && info->tid == 0) || (f->tid >= 0 && info->tid != f->tid))
		return 0;
	if (event->kind == PTW_STORY_ENTER)
		return take_enter(f, event);
	if (event->kind == PTW_STORY_LEAVE && event->frame->user)
		f->node[(uint32_t)(uintptr_t)event->frame->user].self += event->frame->self;
	return 0;
}

bool ptw_flame_empty(const struct ptw_flame *f)
{
	uint32_t i;

	for (i = 1; i < f->count && !f->node[i].self; i++)
		;
	return i == f->count;
}

/* ---- folded ---- */

static void write_stack(const struct ptw_flame *f, uint32_t node, struct ptw_out *out, const char *between, bool json)
{
	uint32_t stack[MAX_DEPTH];
	size_t depth = 0;

	for (; node && depth < MAX_DEPTH; node = f->node[node].parent)
		stack[depth++] = f->node[node].name;
	while (depth--) {
		if (json)
			ptw_out_json_string(out, f->names.name[stack[depth]].text);
		else
			ptw_out_text(out, f->names.name[stack[depth]].text);
		if (depth)
			ptw_out_text(out, between);
	}
}

void ptw_flame_write_folded(const struct ptw_flame *f, struct ptw_out *out)
{
	uint32_t i;

	for (i = 1; i < f->count; i++) {
		if (!f->node[i].self)
			continue;
		write_stack(f, i, out, ";", false);
		ptw_out_printf(out, " %" PRIu64 "\n", f->node[i].self);
	}
}

void ptw_flame_write_json(const struct ptw_flame *f, struct ptw_out *out)
{
	uint32_t i;

	for (i = 1; i < f->count; i++) {
		if (!f->node[i].self)
			continue;
		ptw_out_text(out, "{\"stack\":[");
		write_stack(f, i, out, ",", true);
		ptw_out_printf(out, "],\"self_ns\":%" PRIu64 "}\n", f->node[i].self);
	}
}

/* ---- SVG ---- */

static void xml_text(struct ptw_out *out, const char *text)
{
	for (size_t n; *text; text += n ? n : 1) {
		n = ptw_utf8_size(text);
		if (!n)
			ptw_out_text(out, "?");
		else if (*text == '<')
			ptw_out_text(out, "&lt;");
		else if (*text == '&')
			ptw_out_text(out, "&amp;");
		else if (*text == '"')
			ptw_out_text(out, "&quot;");
		else if ((unsigned char)*text >= ' ')
			ptw_out_write(out, text, n);
	}
}

/* Warm for functions, blue for interrupts, green for what the kernel was asked for; the same for the same name. */
static void colour_of(const char *name, uint8_t kind, char *buf, size_t size)
{
	unsigned int hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	if (kind == PTW_FRAME_INTERRUPT)
		snprintf(buf, size, "hsl(%u,65%%,68%%)", 205 + hash % 20);
	else if (kind == PTW_FRAME_SYSCALL || kind == PTW_FRAME_EXCEPTION)
		snprintf(buf, size, "hsl(%u,45%%,65%%)", 110 + hash % 30);
	else
		snprintf(buf, size, "hsl(%u,80%%,%u%%)", 15 + hash % 40, 62 + hash / 64 % 10);
}

struct box { uint32_t node; double x; int depth; };

static void svg_box(const struct ptw_flame *f, const struct box *box, double scale, int height, struct ptw_out *out)
{
	const struct node *node = &f->node[box->node];
	const char *name = f->names.name[node->name].text;
	double width = node->total * scale;
	size_t room = (size_t)(width / 7);
	char time[PTW_DURATION], colour[40], label[256];
	int y = height - SVG_ROW * (box->depth + 1) - 10;

	colour_of(name, node->kind, colour, sizeof(colour));
	ptw_out_printf(out, "<g data-x=\"%.2f\" data-w=\"%.2f\"><title>", box->x, width);
	xml_text(out, name);
	ptw_out_printf(out, " — %s, %.2f %%</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" rx=\"2\" fill=\"%s\"/>",
		       ptw_duration(node->total, time), f->node[0].total ? 100.0 * node->total / f->node[0].total : 0, box->x, y,
		       width > 0.5 ? width - 0.3 : width, SVG_ROW - 1, colour);
	label[0] = '\0';
	if (room >= 3 && strlen(name) <= room)
		snprintf(label, sizeof(label), "%s", name);
	else if (room >= 3)
		snprintf(label, sizeof(label), "%.*s…", (int)(room - 1 < 200 ? room - 1 : 200), name);
	ptw_out_printf(out, "<text x=\"%.2f\" y=\"%d\">", box->x + 3, y + SVG_ROW - 5);
	xml_text(out, label);
	ptw_out_text(out, "</text></g>\n");
}

/* Lay out the tree; @out NULL: only measure. Returns the depth. */
static int svg_tree(const struct ptw_flame *f, double scale, int height, struct ptw_out *out)
{
	struct box *stack = malloc(f->count * sizeof(*stack));
	size_t count = 1;
	int deepest = 0;

	if (!stack)
		return 0;
	stack[0] = (struct box){ 0 };
	while (count) {
		struct box box = stack[--count];
		double x = box.x;
		uint32_t i;

		if (box.depth > deepest)
			deepest = box.depth;
		if (out)
			svg_box(f, &box, scale, height, out);
		for (i = f->node[box.node].child; i; i = f->node[i].next) {
			double width = f->node[i].total * scale;

			if (width >= SVG_LEAST)
				stack[count++] = (struct box){ .node = i, .x = x, .depth = box.depth + 1 };
			x += width;
		}
	}
	free(stack);
	return deepest;
}

/* A click on a function makes it as wide as the picture; another on the lowest one brings all back. */
static const char script[] =
	"<script><![CDATA[\n"
	"const all=[...document.querySelectorAll('g')],W=1200;\n"
	"function zoom(x,w){for(const g of all){const r=g.children[1],t=g.children[2],a=(+g.dataset.x-x)*W/w,b=+g.dataset.w*W/w;\n"
	"const l=Math.max(a,0),e=Math.min(a+b,W),n=g.firstChild.textContent.split(' — ')[0],k=Math.floor((e-l)/7);\n"
	"g.style.display=e-l<0.3?'none':'';r.setAttribute('x',l);r.setAttribute('width',Math.max(e-l-0.3,0.1));\n"
	"t.setAttribute('x',l+3);t.textContent=k<3?'':n.length<=k?n:n.slice(0,k-1)+'…';}}\n"
	"for(const g of all)g.addEventListener('click',()=>zoom(+g.dataset.x,+g.dataset.w));\n"
	"]]></script>\n";

void ptw_flame_write_svg(struct ptw_flame *f, const char *title, struct ptw_out *out)
{
	char time[PTW_DURATION];
	double scale;
	int height;
	uint32_t i;

	for (i = 0; i < f->count; i++)
		f->node[i].total = f->node[i].self;
	for (i = f->count; --i > 0;)
		f->node[f->node[i].parent].total += f->node[i].total;
	scale = f->node[0].total ? (double)SVG_WIDTH / f->node[0].total : 0;
	height = SVG_TOP + SVG_ROW * (svg_tree(f, scale, 0, NULL) + 1) + 20;
	ptw_out_printf(out,
		       "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		       "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
		       "<style>text{font:11px monospace;pointer-events:none}g{cursor:pointer}g:hover rect{stroke:#000;stroke-width:.6}"
		       "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fffdf7\"/>\n<text x=\"%d\" y=\"24\" "
		       "style=\"font-size:15px\" text-anchor=\"middle\">",
		       SVG_WIDTH, height, SVG_WIDTH, height, SVG_WIDTH / 2);
	xml_text(out, title);
	ptw_out_printf(out, " — %s on the CPU</text>\n", ptw_duration(f->node[0].total, time));
	svg_tree(f, scale, height, out);
	ptw_out_text(out, script);
	ptw_out_text(out, "</svg>\n");
}
