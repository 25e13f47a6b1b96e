// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * error.c - sentences for people that travel with an errno, and the points
 * where a test kills the process.
 */
#include "internal.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

int tarn_fail(struct tarn_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err) {
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
	}
	return -code;
}

int tarn_fail_prefix(struct tarn_err *err, int ret, const char *fmt, ...)
{
	char old[sizeof(err->text)];
	size_t len;
	va_list ap;
	int n;

	if (!err)
		return ret;
	memcpy(old, err->text, sizeof(old));
	old[sizeof(old) - 1] = '\0';
	va_start(ap, fmt);
	n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	len = n < 0 ? 0 : (size_t)n;
	if (len < sizeof(err->text)) {
		size_t room = sizeof(err->text) - len - 1, left = strlen(old);

		if (left > room)
			left = room;
		memcpy(err->text + len, old, left);
		err->text[len + left] = '\0';
	}
	return ret;
}

void tarn_stop_point(const char *name)
{
	const char *at = secure_getenv("TARNFS_STOP_AT");
	static _Atomic unsigned long reached;
	unsigned long count = 1, number = SIGKILL;
	size_t len = strlen(name);
	char *end;

	if (!at || strncmp(at, name, len) || (at[len] && at[len] != ':'))
		return;
	if (at[len]) {
		count = strtoul(at + len + 1, &end, 10);
		if (*end == ':')
			number = strtoul(end + 1, NULL, 10);
	}
	/* one process waits for one point, so one counter does */
	if (atomic_fetch_add(&reached, 1) + 1 == count)
		kill(getpid(), (int)number);
}
