/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * commands.h - the commands of tarnfs(8), and what those that create have in
 * common: a session on the master, and the place of a new name.
 */
#ifndef TARN_CMD_COMMANDS_H
#define TARN_CMD_COMMANDS_H

#include "common.h"

/* Each gets its own name as argv[0] and returns an exit code. */
int cmd_check(int argc, char **argv);
int cmd_cp(int argc, char **argv);
int cmd_creat(int argc, char **argv);
int cmd_device(int argc, char **argv);
int cmd_flush(int argc, char **argv);
int cmd_ln(int argc, char **argv);
int cmd_log(int argc, char **argv);
int cmd_logplay(int argc, char **argv);
int cmd_map(int argc, char **argv);
int cmd_mkdir(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_version(int argc, char **argv);

/*
 * A session to create with, on the mount that path (which need not exist)
 * is to be on, with everything committed applied and the space of earlier,
 * killed commands given back. Complains itself; on a client it says who the
 * master is.
 */
int open_master(struct tarn_session *s, const char *path);

/* Where a new name goes. */
struct place {
	char *parent_path;	/* as given, "." when there was none */
	char *name;		/* last component, without trailing slashes */
	uint64_t parent;	/* inode number */
};
/*
 * Takes path apart and looks its parent up, which must be a directory of the
 * session's mount. A place may be used again: the parent is looked up only
 * when its path differs. Complains itself.
 */
int find_place(struct tarn_session *s, const char *path, struct place *p);
void free_place(struct place *p);
/* Of a path that is ENAMETOOLONG: which limit it is, and the way round. */
void complain_too_long(const char *path);
/* parent and last component of path: both malloc()ed. -EINVAL: no name in it, as in "/" or "a/..". */
int split_path(const char *path, char **parent, char **name);

/*
 * A name that ends with a slash means a directory, and what is to be made is none: -ENOENT,
 * -EISDIR or -ENOTDIR, by what is there. Complains itself.
 */
int refuse_slash(const char *path);

/* st_dev of the session's mount. */
dev_t session_dev(struct tarn_session *s);

/* "3 (node abc)": host page and, where its page tells, the node's name; one of two buffers. */
const char *host_text(struct tarn_session *s, uint16_t page);

#endif
