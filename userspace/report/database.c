// SPDX-License-Identifier: BSD-2-Clause
#include "report/database.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "common/version.h"
#include "report/alarm_text.h"

static const char schema[] =
	"CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);"
	"CREATE TABLE thread(id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, cpu INTEGER, comm TEXT);"
	"CREATE TABLE symbol(id INTEGER PRIMARY KEY, name TEXT NOT NULL, object TEXT);"
	"CREATE TABLE call(id INTEGER PRIMARY KEY, parent INTEGER, thread INTEGER NOT NULL REFERENCES thread, cpu INTEGER,"
	" kind TEXT NOT NULL, symbol INTEGER REFERENCES symbol, ip INTEGER, from_ip INTEGER, start_ns INTEGER, end_ns INTEGER,"
	" total_ns INTEGER, on_cpu_ns INTEGER, self_ns INTEGER, complete INTEGER NOT NULL);"
	"CREATE TABLE switch(thread INTEGER NOT NULL REFERENCES thread, cpu INTEGER, time_ns INTEGER, running INTEGER NOT NULL);"
	"CREATE TABLE marker(thread INTEGER NOT NULL REFERENCES thread, cpu INTEGER, time_ns INTEGER, value INTEGER, ip INTEGER);"
	"CREATE TABLE gap(thread INTEGER NOT NULL REFERENCES thread, cpu INTEGER, time_ns INTEGER, trace_offset INTEGER,"
	" lost INTEGER, error TEXT);"
	"CREATE TABLE alarm(seq INTEGER, time_ns INTEGER, cpu INTEGER, pid INTEGER, tgid INTEGER, comm TEXT, access TEXT,"
	" address INTEGER, ip INTEGER, old_value INTEGER, new_value INTEGER, label TEXT);";

static const char indices[] = "CREATE INDEX call_symbol ON call(symbol); CREATE INDEX call_start ON call(start_ns);"
			      "CREATE INDEX call_parent ON call(parent); CREATE INDEX marker_time ON marker(time_ns);";

enum { PUT_THREAD, PUT_SYMBOL, PUT_CALL, PUT_SWITCH, PUT_MARKER, PUT_GAP, PUT_ALARM, PUTS };

static const char *const put_sql[PUTS] = {
	[PUT_THREAD] = "INSERT OR IGNORE INTO thread VALUES(?,?,?,?,?)",
	[PUT_SYMBOL] = "INSERT INTO symbol VALUES(?,?,?)",
	[PUT_CALL] = "INSERT INTO call VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	[PUT_SWITCH] = "INSERT INTO switch VALUES(?,?,?,?)",
	[PUT_MARKER] = "INSERT INTO marker VALUES(?,?,?,?,?)",
	[PUT_GAP] = "INSERT INTO gap VALUES(?,?,?,?,?,?)",
	[PUT_ALARM] = "INSERT INTO alarm VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
};

struct ptw_database {
	sqlite3 *sql;
	sqlite3_stmt *put[PUTS];
	char *path;
	bool failed;
	const struct ptw_symbol **symbol;	/* a hash; the place of each in @symbol_id */
	sqlite3_int64 *symbol_id;
	size_t symbols, symbol_room;
};

static int fail(struct ptw_database *db, struct ptw_error *err)
{
	return ptw_error_set(err, PTW_EXIT_FAILED, "output %s: %s", db->path, db->sql ? sqlite3_errmsg(db->sql) : "out of memory");
}

static void free_database(struct ptw_database *db)
{
	int i;

	for (i = 0; i < PUTS; i++)
		sqlite3_finalize(db->put[i]);
	sqlite3_close(db->sql);
	free(db->symbol);
	free(db->symbol_id);
	free(db->path);
	free(db);
}

static bool set_meta(struct ptw_database *db, const char *key, const char *value)
{
	char *sql = sqlite3_mprintf("INSERT INTO meta VALUES(%Q,%Q)", key, value);
	bool ok = sql && sqlite3_exec(db->sql, sql, NULL, NULL, NULL) == SQLITE_OK;

	sqlite3_free(sql);
	return ok;
}

struct ptw_database *ptw_database_new(const char *path, const char *recording, struct ptw_error *err)
{
	struct ptw_database *db = calloc(1, sizeof(*db));
	int i;

	if (!db || !(db->path = strdup(path))) {
		free(db);
		ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
		return NULL;
	}
	if (!access(path, F_OK)) {
		ptw_error_set(err, PTW_EXIT_FAILED, "output %s: it exists; remove it, or name another", path);
		goto failed;
	}
	/* What is not finished is thrown away: nothing needs to survive a crash. */
	if (sqlite3_open(path, &db->sql) != SQLITE_OK ||
	    sqlite3_exec(db->sql, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN", NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_exec(db->sql, schema, NULL, NULL, NULL) != SQLITE_OK || !set_meta(db, "schema", "1") ||
	    !set_meta(db, "program", "ptwatch " PTWATCH_VERSION) || !set_meta(db, "recording", recording))
		goto sql_failed;
	for (i = 0; i < PUTS; i++)
		if (sqlite3_prepare_v2(db->sql, put_sql[i], -1, &db->put[i], NULL) != SQLITE_OK)
			goto sql_failed;
	return db;
sql_failed:
	fail(db, err);
	unlink(path);
failed:
	free_database(db);
	return NULL;
}

/* Bind one value after the other: i integer, I the same or NULL for -1, t text. */
static void put(struct ptw_database *db, int what, const char *types, ...)
{
	sqlite3_stmt *stmt = db->put[what];
	va_list args;
	int i;

	va_start(args, types);
	for (i = 1; types[i - 1]; i++) {
		if (types[i - 1] == 't') {
			sqlite3_bind_text(stmt, i, va_arg(args, const char *), -1, SQLITE_TRANSIENT);
		} else {
			sqlite3_int64 value = va_arg(args, sqlite3_int64);

			if (types[i - 1] == 'I' && value == -1)
				sqlite3_bind_null(stmt, i);
			else
				sqlite3_bind_int64(stmt, i, value);
		}
	}
	va_end(args);
	if (sqlite3_step(stmt) != SQLITE_DONE)
		db->failed = true;
	sqlite3_reset(stmt);
}

#define INT(value)	((sqlite3_int64)(value))

static int grow_symbols(struct ptw_database *db)
{
	size_t room = db->symbol_room ? 2 * db->symbol_room : 1024, i, at;
	const struct ptw_symbol **symbol = calloc(room, sizeof(struct ptw_symbol *));
	sqlite3_int64 *id = calloc(room, sizeof(*id));

	if (!symbol || !id) {
		free(symbol);
		free(id);
		return -1;
	}
	for (i = 0; i < db->symbol_room; i++) {
		if (!db->symbol[i])
			continue;
		for (at = ((uintptr_t)db->symbol[i] >> 4) * 0x9e3779b1u & (room - 1); symbol[at]; at = (at + 1) & (room - 1))
			;
		symbol[at] = db->symbol[i];
		id[at] = db->symbol_id[i];
	}
	free(db->symbol);
	free(db->symbol_id);
	db->symbol = symbol;
	db->symbol_id = id;
	db->symbol_room = room;
	return 0;
}

static sqlite3_int64 symbol_id(struct ptw_database *db, const struct ptw_place *place)
{
	size_t at;

	if (!place->symbol)
		return -1;
	if (2 * db->symbols >= db->symbol_room && grow_symbols(db)) {
		db->failed = true;
		return -1;
	}
	for (at = ((uintptr_t)place->symbol >> 4) * 0x9e3779b1u & (db->symbol_room - 1); db->symbol[at];
	     at = (at + 1) & (db->symbol_room - 1))
		if (db->symbol[at] == place->symbol)
			return db->symbol_id[at];
	db->symbol[at] = place->symbol;
	db->symbol_id[at] = INT(++db->symbols);
	put(db, PUT_SYMBOL, "itt", db->symbol_id[at], place->symbol->name, place->object);
	return db->symbol_id[at];
}

/* One that exits is forgotten, and another one may have its number later. */
static void put_thread(struct ptw_database *db, struct ptw_story_thread *thread)
{
	if (thread->user)
		return;
	thread->user = thread;
	put(db, PUT_THREAD, "iIIIt", INT(thread->index), INT(thread->info->pid), INT(thread->info->tid), INT(thread->info->cpu),
	    thread->info->comm);
}

static void put_call(struct ptw_database *db, const struct ptw_story_event *event)
{
	static const char *const kinds[] = {
		[PTW_FRAME_BEGIN] = "begin",	     [PTW_FRAME_SWITCH] = "begin",	 [PTW_FRAME_CALL] = "call",
		[PTW_FRAME_TAIL_CALL] = "tail-call", [PTW_FRAME_INTERRUPT] = "interrupt", [PTW_FRAME_EXCEPTION] = "exception",
		[PTW_FRAME_SYSCALL] = "syscall",
	};
	const struct ptw_frame *frame = event->frame;
	sqlite3_int64 parent = event->thread->frame_count > 1 ? INT(frame[-1].serial + 1) : -1;

	put(db, PUT_CALL, "iIiItIiiiiiiii", INT(frame->serial + 1), parent, INT(event->thread->index), INT(event->cpu),
	    kinds[frame->kind], symbol_id(db, &frame->place), INT(frame->ip), INT(frame->from), INT(frame->entered),
	    INT(frame->entered + frame->total), INT(frame->total), INT(frame->on_cpu), INT(frame->self), INT(!event->cut));
}

int ptw_database_take(struct ptw_database *db, const struct ptw_story_event *event)
{
	sqlite3_int64 thread = INT(event->thread->index), cpu = INT(event->cpu), time = INT(event->time);

	put_thread(db, event->thread);
	switch (event->kind) {
	case PTW_STORY_LEAVE:
		put_call(db, event);
		break;
	case PTW_STORY_IN:
	case PTW_STORY_OUT:
		put(db, PUT_SWITCH, "iIii", thread, cpu, time, INT(event->kind == PTW_STORY_IN));
		break;
	case PTW_STORY_MARKER:
		put(db, PUT_MARKER, "iIiii", thread, cpu, time, INT(event->value), INT(event->ip));
		break;
	case PTW_STORY_GAP:
		put(db, PUT_GAP, "iIiiit", thread, cpu, time, INT(event->offset), INT(event->value), event->text);
		break;
	default:
		break;
	}
	return db->failed;
}

int ptw_database_alarm(struct ptw_database *db, const struct ptw_alarm *alarm, uint64_t time)
{
	put(db, PUT_ALARM, "iiiiittiiiit", INT(alarm->seq), INT(time), INT(alarm->cpu), INT(alarm->pid), INT(alarm->tgid),
	    alarm->comm, ptw_access_text(alarm->access), INT(alarm->address), INT(alarm->ip), INT(alarm->old_value),
	    INT(alarm->new_value), alarm->label);
	return db->failed;
}

int ptw_database_end(struct ptw_database *db, struct ptw_error *err)
{
	int ret = 0;

	if (db->failed || sqlite3_exec(db->sql, indices, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_exec(db->sql, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
		ret = fail(db, err);
		unlink(db->path);
	}
	free_database(db);
	return ret;
}
