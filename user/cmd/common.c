// SPDX-License-Identifier: GPL-2.0-only
/*
 * common.c - messages, numbers, printable names and mount entries for all
 * tarnfs programs. Nothing here knows a command.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common.h"

static const char *my_name = "tarnfs";

void program_start(const char *name)
{
	int fd;

	my_name = name;
	/*
	 * A closed stdout must stay an error, and must not become the number of
	 * the next descriptor: a device opened as 1 would receive our messages.
	 */
	for (fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
			_exit(127);
	}
}

void program_name(const char *name)
{
	my_name = name;
}

/*
 * Names of files and words of configuration come along in messages, and a
 * terminal obeys control bytes: the one place where all of them pass. C1
 * controls are C2 80 to C2 9F in UTF-8.
 */
static void put_harmless(const char *text, FILE *to)
{
	const unsigned char *p = (const unsigned char *)text;

	for (; *p; p++) {
		if (*p < ' ' || *p == 0x7f)
			fprintf(to, "\\x%02x", *p);
		else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
			fprintf(to, "\\x%02x\\x%02x", p[0], p[1]), p++;
		else
			fputc(*p, to);
	}
}

void complain(const char *fmt, ...)
{
	char text[8192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fflush(stdout);
	fprintf(stderr, "%s: ", my_name);
	put_harmless(text, stderr);
	fputc('\n', stderr);
}

void complain_err(const struct tarn_err *err, int ret, const char *what)
{
	const char *text = err && err->text[0] ? err->text : strerror(ret < 0 ? -ret : ret);

	if (what)
		complain("%s: %s", what, text);
	else
		complain("%s", text);
}

void complain_usage(void)
{
	fprintf(stderr, "try '%s --help'\n", my_name);
}

int program_end(int code, int failed)
{
	bool bad = ferror(stdout) != 0;

	errno = 0;
	if (fclose(stdout) || bad) {
		if (errno)
			complain("standard output: %s", strerror(errno));
		else
			complain("standard output: not all could be written");
		if (!code)
			code = failed;
	}
	return code;
}

int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	unsigned long long n;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || *end || n < min || n > max)
		return -EINVAL;
	*value = n;
	return 0;
}

int parse_size(const char *text, uint64_t *bytes)
{
	static const char letters[] = "KMGTP";
	unsigned long long n;
	unsigned int shift = 0;
	const char *letter;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	if (*end) {
		letter = strchr(letters, *end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end);
		if (!letter)
			return -EINVAL;
		shift = 10 * (unsigned int)(letter - letters + 1);
		end++;
		if (end[0] == 'i' && end[1] == 'B')
			end += 2;
		if (*end)
			return -EINVAL;
	}
	if (n > (TARNFS_SIZE_MAX >> shift))
		return -ERANGE;
	*bytes = (uint64_t)n << shift;
	return 0;
}

int parse_mode(const char *text, uint16_t *mode)
{
	unsigned long n;
	char *end;

	if (*text < '0' || *text > '7')
		return -EINVAL;
	errno = 0;
	n = strtoul(text, &end, 8);
	if (errno || *end || n > 07777)
		return -EINVAL;
	*mode = (uint16_t)n;
	return 0;
}

const char *size_text(char out[SIZE_TEXT], uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned int unit = 0, whole;
	uint64_t rest;

	while (unit < 6 && bytes >> (10 * (unit + 1)))
		unit++;
	whole = (unsigned int)(bytes >> (10 * unit)) & 0x3fff;
	rest = bytes & ((1ULL << (10 * unit)) - 1);
	if (rest)
		snprintf(out, SIZE_TEXT, "%u.%u %s", whole,
			 (unsigned int)((rest >> (10 * (unit - 1))) * 10 / 1024), units[unit]);
	else
		snprintf(out, SIZE_TEXT, "%u %s", whole, units[unit]);
	return out;
}

/* Length of the UTF-8 sequence at s, 0 when there is none that a terminal may be given. */
static size_t utf8_length(const unsigned char *s, size_t left)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len, i;
	uint32_t c;

	if (s[0] < 0x80)
		return s[0] >= 0x20 && s[0] != 0x7f && s[0] != '\\';
	if (s[0] >= 0xc2 && s[0] < 0xe0)
		len = 2;
	else if (s[0] >= 0xe0 && s[0] < 0xf0)
		len = 3;
	else if (s[0] >= 0xf0 && s[0] < 0xf5)
		len = 4;
	else
		return 0;
	if (len > left)
		return 0;
	c = s[0] & (0x7f >> len);
	for (i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	/* overlong forms, surrogates, C1 controls, and what Unicode has no room for */
	if (c < least[len] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff || c < 0xa0)
		return 0;
	return len;
}

static void printable_into(char *out, const char *bytes, size_t len)
{
	const unsigned char *s = (const unsigned char *)bytes;

	while (len) {
		size_t n = utf8_length(s, len);

		if (n) {
			memcpy(out, s, n);
			out += n;
		} else {
			out += sprintf(out, "\\x%02x", *s);
			n = 1;
		}
		s += n;
		len -= n;
	}
	*out = '\0';
}

char *printable(const char *bytes, size_t len)
{
	char *out = must_alloc(malloc(4 * len + 1));

	printable_into(out, bytes, len);
	return out;
}

const char *shown(const char *name)
{
	static char *buffer[8];
	static unsigned int turn;
	char **b = &buffer[turn++ % 8];

	free(*b);
	*b = printable(name, strlen(name));
	return *b;
}

void *must_alloc(void *p)
{
	if (!p) {
		complain("out of memory");
		exit(EXIT_FAILED);
	}
	return p;
}

char *must_format(const char *fmt, ...)
{
	va_list ap;
	char *out;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&out, fmt, ap);
	va_end(ap);
	return must_alloc(n < 0 ? NULL : out);
}

/* \ooo of /proc/self/mountinfo back to bytes, in place */
static void unescape_octal(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

void mount_entry_free(struct mount_entry *e)
{
	free(e->root);
	free(e->dir);
	free(e->type);
	free(e->source);
	memset(e, 0, sizeof(*e));
}

/* id parent major:minor root dir options [tags] - type source superoptions */
static bool mount_entry_parse(char *line, struct mount_entry *e)
{
	char *field[6], *type, *source, *next = line, *tail;
	int i;

	memset(e, 0, sizeof(*e));
	line[strcspn(line, "\n")] = '\0';
	tail = strstr(line, " - ");
	if (!tail)
		return false;
	*tail = '\0';
	tail += 3;
	for (i = 0; i < 6; i++) {
		field[i] = strsep(&next, " ");
		if (!field[i])
			return false;
	}
	type = strsep(&tail, " ");
	source = strsep(&tail, " ");
	if (!type || !source || sscanf(field[2], "%u:%u", &e->major, &e->minor) != 2)
		return false;
	unescape_octal(field[3]);
	unescape_octal(field[4]);
	unescape_octal(type);
	unescape_octal(source);
	e->id = (unsigned int)strtoul(field[0], NULL, 10);
	e->root = must_alloc(strdup(field[3]));
	e->dir = must_alloc(strdup(field[4]));
	e->type = must_alloc(strdup(type));
	e->source = must_alloc(strdup(source));
	return true;
}

static int mount_entry_search(const char *dir, const char *type, struct mount_entry *out)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mount_entry e;
	bool found = false;
	char *line = NULL;
	size_t room = 0;
	int ret = 0;

	/* without /proc nothing is known, which is not "nothing is mounted" */
	if (!f)
		return errno == ENOENT ? -EIO : -errno;
	while (getline(&line, &room, f) > 0) {
		if (!mount_entry_parse(line, &e))
			continue;
		/* a later line on the same directory lies on top */
		if ((dir && strcmp(e.dir, dir) == 0) || (!dir && !found && strcmp(e.type, type) == 0)) {
			if (found)
				mount_entry_free(out);
			*out = e;
			found = true;
		} else {
			mount_entry_free(&e);
		}
	}
	if (!feof(f))
		ret = errno ? -errno : -EIO;
	free(line);
	fclose(f);
	if (ret && found)
		mount_entry_free(out);
	return ret ? ret : found ? 0 : -ENOENT;
}

int mount_entry_find(const char *dir, struct mount_entry *out)
{
	return mount_entry_search(dir, NULL, out);
}

int mount_entry_of_type(const char *type, struct mount_entry *out)
{
	return mount_entry_search(NULL, type, out);
}

void busy_unseen(const struct tarn_device *d, int ret, struct tarn_err *err)
{
	size_t len = strlen(err->text);

	if (ret == -EBUSY && d->path[0] && !d->mounted_on[0])
		snprintf(err->text + len, sizeof(err->text) - len,
			 " (no mount of it can be seen from here: another fsck.tarnfs, mkfs.tarnfs or "
			 "tarnfs command may be at work on it, a process may still use it after "
			 "umount -l, or it is mounted in another mount namespace)");
}

bool file_on_tarnfs(const char *path)
{
	struct statfs fs;
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && statfs(path, &fs) == 0 &&
	       (uint32_t)fs.f_type == TARNFS_STATFS_MAGIC;
}

int enter_mount_namespace(const char *name)
{
	char *path;
	uint64_t pid;
	int fd, ret = 0;

	if (parse_number(name, 1, INT32_MAX, &pid) == 0)
		path = must_format("/proc/%s/ns/mnt", name);
	else
		path = must_format("%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNS)) {
		ret = -errno;
		complain("-N: namespace '%s': %s", shown(path), strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	free(path);
	return ret;
}

void host_page_ranges(const struct tarn_super *sb, uint16_t page, struct tarn_media_range out[2])
{
	out[0].off = sb->hosts_off + (uint64_t)page * sb->host_stride;
	out[0].len = sb->host_stride;
	out[1].off = sb->mirror_off + (uint64_t)page * sb->host_stride;
	out[1].len = sb->host_stride;
}

int publish_status(struct tarn_session *s, struct tarn_err *err)
{
	struct tarn_kernel *k = s->kernel;
	int ret;

	ret = k->ops->status(k, &s->st);
	if (ret)
		return tarn_fail(err, -ret, "STATUS: %s", strerror(-ret));
	ret = k->ops->page_lock(k, s->claim.page);
	if (ret)
		return tarn_fail(err, -ret, "page lock of host page %u: %s", s->claim.page,
				 strerror(-ret));
	ret = tarn_status_publish(s->media, &s->sb, &s->claim, s->st.generation, s->st.log_host,
				  s->st.seq, err);
	k->ops->page_unlock(k, s->claim.page);
	return ret;
}

int64_t replay_to_end(struct tarn_session *s, struct tarn_err *err)
{
	struct tarn_kernel *k = s->kernel;
	int64_t n;
	int ret;

	ret = k->ops->lock(k);
	if (ret)
		return tarn_fail(err, -ret, "append lock: %s", strerror(-ret));
	n = tarn_replay(s, true, err);
	k->ops->unlock(k);
	return n;
}
