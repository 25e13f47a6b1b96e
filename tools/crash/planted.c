// SPDX-License-Identifier: GPL-2.0-only
/*
 * planted.c - which planted fault is there: user/lib/planted.h.
 */
#include "planted.h"

#ifdef TARN_PLANT

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name, *section, *rule;
} faults[TARN_FAULTS_END] = {
#define ENTRY(name, text, section, rule)	[TARN_FAULT_##name] = { text, section, rule },
	TARN_FAULTS(ENTRY)
#undef ENTRY
};

static enum tarn_fault there;

bool tarn_planted(enum tarn_fault fault)
{
	return fault == there;
}

void tarn_plant(enum tarn_fault fault)
{
	there = fault;
}

enum tarn_fault tarn_fault_find(const char *text)
{
	for (int i = TARN_FAULT_NONE + 1; i < TARN_FAULTS_END; i++)
		if (!strcmp(text, faults[i].name))
			return (enum tarn_fault)i;
	return TARN_FAULT_NONE;
}

const char *tarn_fault_name(enum tarn_fault fault)
{
	return faults[fault].name;
}

const char *tarn_fault_rule(enum tarn_fault fault)
{
	return faults[fault].rule;
}

const char *tarn_fault_section(enum tarn_fault fault)
{
	return faults[fault].section;
}

/* For the unit tests, which have no arguments. */
static void __attribute__((constructor)) from_environment(void)
{
	const char *text = getenv("TARNFS_PLANTED");

	if (!text)
		return;
	there = tarn_fault_find(text);
	if (there == TARN_FAULT_NONE) {
		fprintf(stderr, "TARNFS_PLANTED=%s: no such fault\n", text);
		exit(99);
	}
}

#endif
