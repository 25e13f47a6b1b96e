// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * host.c - who this host is: its uuid under a file system, its boot, its name.
 */
#include "internal.h"

#include <ctype.h>
#include <sys/utsname.h>

/* First line of a file without its newline: 0, or a negative errno. */
static int first_line(const char *path, char *buf, size_t room)
{
	FILE *f = fopen(path, "re");
	int ret = 0;

	if (!f)
		return -errno;
	if (fgets(buf, (int)room, f))
		buf[strcspn(buf, "\n")] = '\0';
	else
		ret = -ENODATA;
	fclose(f);
	return ret;
}

static char *strip(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	return s;
}

static int parse_config(struct tarn_host_id *id, bool *have_uuid, const char *path, FILE *f,
			struct tarn_err *err)
{
	char line[256];

	for (int nr = 1; fgets(line, sizeof(line), f); nr++) {
		char *end, *key, *value;
		unsigned long n;

		if (!strchr(line, '\n') && !feof(f))
			return tarn_fail(err, EINVAL, "%s, line %d: too long", path, nr);
		line[strcspn(line, "#\n")] = '\0';
		key = strip(line);
		if (!*key)
			continue;
		value = strchr(key, '=');
		if (value) {
			*value++ = '\0';
			key = strip(key);
			value = strip(value);
		}
		if (value && !strcmp(key, "host")) {
			errno = 0;
			n = strtoul(value, &end, 10);
			if (!isdigit((unsigned char)*value) || *end || errno ||
			    n >= TARNFS_HOSTS_MAX)
				return tarn_fail(
					err, EINVAL,
					"%s, line %d: host=%s is not a number from 0 to %d", path,
					nr, value, TARNFS_HOSTS_MAX - 1);
			id->page = (int)n;
		} else if (value && !strcmp(key, "uuid")) {
			if (tarn_uuid_parse(id->uuid, value) || tarn_uuid_is_zero(id->uuid))
				return tarn_fail(err, EINVAL, "%s, line %d: uuid=%s is not a uuid",
						 path, nr, value);
			*have_uuid = true;
		} else {
			return tarn_fail(err, EINVAL, "%s, line %d: neither host=N nor uuid=U: %s",
					 path, nr, key);
		}
	}
	if (ferror(f))
		return tarn_fail(err, EIO, "%s: cannot be read", path);
	return 0;
}

int tarn_host_id_from(struct tarn_host_id *id, const uint8_t fs_uuid[16],
		      const struct tarn_host_files *files, struct tarn_err *err)
{
	bool have_uuid = false;
	struct utsname uts;
	char line[64];
	FILE *f;
	int ret;

	memset(id, 0, sizeof(*id));
	id->page = -1;
	f = fopen(files->config, "re");
	if (f) {
		ret = parse_config(id, &have_uuid, files->config, f, err);
		fclose(f);
		if (ret)
			return ret;
	} else if (errno != ENOENT) {
		ret = -errno;
		return tarn_fail(err, -ret, "%s: %s", files->config, strerror(-ret));
	}

	if (!have_uuid) {
		ret = first_line(files->machine_id, line, sizeof(line));
		if (ret || strlen(line) != 32 || strspn(line, "0123456789abcdef") != 32 ||
		    strspn(line, "0") == 32)
			return tarn_fail(err, ret ? -ret : EINVAL,
					 "%s: %s; run systemd-machine-id-setup, or write a line "
					 "uuid=... into %s",
					 files->machine_id,
					 ret ? strerror(-ret) : "not 32 hexadecimal digits",
					 files->config);
		tarn_uuid_v5(id->uuid, fs_uuid, line, 32);
	}

	ret = first_line(files->boot_id, line, sizeof(line));
	if (!ret)
		ret = tarn_uuid_parse(id->boot_id, line);
	if (ret)
		return tarn_fail(err, -ret, "%s: %s", files->boot_id, strerror(-ret));
	if (!uname(&uts)) {
		size_t len = strnlen(uts.nodename, sizeof(id->node_name) - 1);

		memcpy(id->node_name, uts.nodename, len);
	}
	return 0;
}

int tarn_host_id(struct tarn_host_id *id, const uint8_t fs_uuid[16], struct tarn_err *err)
{
	static const struct tarn_host_files files = {
		.config = "/etc/tarnfs/host",
		.machine_id = "/etc/machine-id",
		.boot_id = "/proc/sys/kernel/random/boot_id",
	};

	return tarn_host_id_from(id, fs_uuid, &files, err);
}
