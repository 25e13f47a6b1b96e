// SPDX-License-Identifier: GPL-2.0-only
/*
 * The structures of the dax bus as tarnfs.ko was compiled with (daxbus_layout.h
 * in kmod/) against those of the running kernel, which tells its types in BTF.
 *
 * t_daxbus_layout [MODULE]: root, in a guest.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* As in kmod/daxbus_layout.h, which needs the kernel's headers. */
#define SECTION	".init.rodata.tarnfs_layout"
struct entry {
	char			name[48];
	unsigned long long	offset;
	unsigned long long	size;
};

static int points, failures;

static void bail(const char *what, const char *why)
{
	printf("Bail out! %s: %s\n", what, why);
	exit(1);
}

static void ok(bool good, const char *name)
{
	failures += !good;
	printf("%sok %d - %s\n", good ? "" : "not ", ++points, name);
}

static char *slurp(const char *path, size_t *len)
{
	size_t have = 0, room = 1 << 20;
	char *buf = malloc(room);
	int fd = open(path, O_RDONLY);
	ssize_t n;

	if (fd < 0 || !buf)
		bail(path, strerror(errno));
	while ((n = read(fd, buf + have, room - have)) > 0) {
		have += n;
		if (have == room) {
			room *= 2;
			buf = realloc(buf, room);
			if (!buf)
				bail(path, strerror(ENOMEM));
		}
	}
	if (n < 0)
		bail(path, strerror(errno));
	close(fd);
	*len = have;
	return buf;
}

/* ---- the module --------------------------------------------------------- */

static const struct entry *compiled_in(const char *path, size_t *count)
{
	size_t len;
	char *file = slurp(path, &len);
	const Elf64_Ehdr *head = (void *)file;
	const Elf64_Shdr *sections, *names;

	if (len < sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG) ||
	    head->e_ident[EI_CLASS] != ELFCLASS64)
		bail(path, "no ELF file of 64 bits");
	sections = (void *)(file + head->e_shoff);
	names = &sections[head->e_shstrndx];
	for (int i = 0; i < head->e_shnum; i++) {
		if (strcmp(file + names->sh_offset + sections[i].sh_name, SECTION))
			continue;
		*count = sections[i].sh_size / sizeof(struct entry);
		return (void *)(file + sections[i].sh_offset);
	}
	bail(path, "no section " SECTION);
	return NULL;
}

/* ---- BTF ---------------------------------------------------------------- */

static const char *btf_strings;
static const struct btf_type **btf_types;
static unsigned int btf_count;

static const char *btf_name(unsigned int off)
{
	return btf_strings + off;
}

/* Bytes that follow a type's head. */
static size_t btf_tail(const struct btf_type *t)
{
	unsigned int n = BTF_INFO_VLEN(t->info);

	switch (BTF_INFO_KIND(t->info)) {
	case BTF_KIND_INT:
		return sizeof(__u32);
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return n * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return n * sizeof(struct btf_enum);
	case BTF_KIND_ENUM64:
		return n * sizeof(struct btf_enum64);
	case BTF_KIND_FUNC_PROTO:
		return n * sizeof(struct btf_param);
	case BTF_KIND_VAR:
		return sizeof(struct btf_var);
	case BTF_KIND_DATASEC:
		return n * sizeof(struct btf_var_secinfo);
	case BTF_KIND_DECL_TAG:
		return sizeof(struct btf_decl_tag);
	case BTF_KIND_FWD:
	case BTF_KIND_PTR:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	default:
		bail("BTF", "a kind of type that this test does not know");
		return 0;
	}
}

static void btf_load(const char *path)
{
	size_t len, room = 1 << 16;
	const char *data = slurp(path, &len), *at, *end;
	const struct btf_header *head = (void *)data;

	if (len < sizeof(*head) || head->magic != BTF_MAGIC)
		bail(path, "no BTF");
	btf_strings = data + head->hdr_len + head->str_off;
	at = data + head->hdr_len + head->type_off;
	end = at + head->type_len;
	btf_types = malloc(room * sizeof(*btf_types));
	btf_types[btf_count++] = NULL;		/* void */
	while (at < end) {
		const struct btf_type *t = (void *)at;

		if (btf_count == room) {
			room *= 2;
			btf_types = realloc(btf_types, room * sizeof(*btf_types));
		}
		if (!btf_types)
			bail(path, strerror(ENOMEM));
		btf_types[btf_count++] = t;
		at += sizeof(*t) + btf_tail(t);
	}
}

static unsigned long long btf_size(unsigned int id)
{
	const struct btf_type *t = btf_types[id];
	const struct btf_array *array;

	switch (BTF_INFO_KIND(t->info)) {
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_TYPE_TAG:
		return btf_size(t->type);
	case BTF_KIND_PTR:
		return sizeof(void *);
	case BTF_KIND_ARRAY:
		array = (void *)(t + 1);
		return array->nelems * btf_size(array->type);
	default:
		return t->size;
	}
}

static const struct btf_type *btf_struct(const char *name)
{
	for (unsigned int i = 1; i < btf_count; i++)
		if (BTF_INFO_KIND(btf_types[i]->info) == BTF_KIND_STRUCT &&
		    !strcmp(btf_name(btf_types[i]->name_off), name))
			return btf_types[i];
	return NULL;
}

static const struct btf_member *btf_member(const struct btf_type *t, const char *name)
{
	const struct btf_member *m = (void *)(t + 1);

	for (unsigned int n = BTF_INFO_VLEN(t->info); n; n--, m++)
		if (!strcmp(btf_name(m->name_off), name))
			return m;
	return NULL;
}

/* ------------------------------------------------------------------------- */

static void compare(const struct entry *e)
{
	unsigned long long offset = 0, size;
	char type[sizeof(e->name) + 1] = "", *member;
	const struct btf_type *t;

	memcpy(type, e->name, sizeof(e->name));
	member = strchr(type, '.');
	if (member)
		*member++ = '\0';
	t = btf_struct(type);
	if (!t) {
		ok(false, e->name);
		printf("#   this kernel has no such structure\n");
		return;
	}
	size = t->size;
	if (member) {
		const struct btf_member *m = btf_member(t, member);

		if (!m) {
			ok(false, e->name);
			printf("#   this kernel has no such member\n");
			return;
		}
		offset = BTF_INFO_KFLAG(t->info) ? BTF_MEMBER_BIT_OFFSET(m->offset) : m->offset;
		offset /= 8;
		size = btf_size(m->type);
	}
	ok(offset == e->offset && size == e->size, e->name);
	if (offset != e->offset || size != e->size)
		printf("#   compiled in: offset %llu, %llu bytes; this kernel: %llu, %llu\n",
		       e->offset, e->size, offset, size);
}

int main(int argc, char **argv)
{
	const struct entry *entries;
	char path[256];
	struct utsname u;
	size_t count;

	uname(&u);
	snprintf(path, sizeof(path), "/lib/modules/%s/extra/tarnfs.ko", u.release);
	entries = compiled_in(argc > 1 ? argv[1] : path, &count);
	btf_load("/sys/kernel/btf/vmlinux");
	printf("TAP version 13\n1..%zu\n", count + 1);
	ok(count >= 5, "the module says what it was compiled with");
	for (size_t i = 0; i < count; i++)
		compare(&entries[i]);
	return failures ? 1 : 0;
}
