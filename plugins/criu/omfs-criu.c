/*
 * omfs-criu: lets users dump and restore their own processes with CRIU.
 *
 *   omfs-criu version
 *   omfs-criu dump PID IMAGES WORK     write PID and its descendants to IMAGES, leave them stopped
 *   omfs-criu restore IMAGES WORK      bring them back as children of omfs-criu-attach, in this process's place
 *
 * Installed with the file capability CAP_CHECKPOINT_RESTORE, which it hands to CRIU and to nothing else. CRIU runs with the
 * caller's user, so the kernel itself keeps it from other users' processes and files; CAP_SYS_PTRACE would undo
 * that and is not given. no_new_privs is set for CRIU and so for all that it brings back: an image is the user's own
 * file, they may have forged it, and what comes out of it must not gain from set-user-ID programs.
 *
 * IMAGES and WORK: absolute paths of directories that belong to the caller and that nobody else may write to. CRIU's log,
 * its pid file and what omfs-criu-attach says go to WORK. Nothing of the environment is handed on.
 *
 * Exit codes: CRIU's own (restore: the program's, see omfs-criu-attach); 64 bad usage, 77 refused, 71 the system
 * lacks something. In the last three cases one line on standard error says what and why.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CRIU
#error "make sets CRIU, the absolute path of the criu to be run"
#endif
#ifndef ATTACH
#error "make sets ATTACH, the absolute path of omfs-criu-attach"
#endif
#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40 /* linux/capability.h before Linux 5.9 */
#endif

enum { BAD_USAGE = 64, NO_SYSTEM = 71, REFUSED = 77 };

static void end(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

static void end(int code, const char *format, ...)
{
	char line[1024];
	va_list values;

	va_start(values, format);
	vsnprintf(line, sizeof(line), format, values);
	va_end(values);
	/* What was given may hold anything; a line stays a line. */
	for (char *at = line; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 127)
			*at = '?';
	fprintf(stderr, "omfs-criu: %s\n", line);
	exit(code);
}

/* Descriptors 0, 1 and 2 exist and no others do, so that no file opened here ends up as somebody's standard output. */
static void tidy_descriptors(void)
{
	DIR *list;
	struct dirent *entry;

	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", O_RDWR) != fd)
			_exit(NO_SYSTEM);
	list = opendir("/proc/self/fd");
	if (!list)
		end(NO_SYSTEM, "cannot list /proc/self/fd: %s", strerror(errno));
	while ((entry = readdir(list))) {
		int fd = atoi(entry->d_name);
		if (fd > 2 && fd != dirfd(list))
			close(fd);
	}
	closedir(list);
}

static void tidy_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A program that only root can have put there: every directory on the way, too. */
static void must_be_roots(const char *path)
{
	char real[PATH_MAX];
	struct stat info;

	if (!realpath(path, real))
		end(NO_SYSTEM, "%s: %s", path, strerror(errno));
	if (stat(real, &info))
		end(NO_SYSTEM, "%s: %s", real, strerror(errno));
	if (!S_ISREG(info.st_mode) || !(info.st_mode & S_IXUSR))
		end(REFUSED, "%s is not a program", real);
	for (;;) {
		char *slash;

		if (info.st_uid != 0 || (info.st_mode & (S_IWGRP | S_IWOTH)))
			end(REFUSED, "%s is not root's alone (owner %u, mode %04o): nobody but root may be able to change it",
			    real, info.st_uid, info.st_mode & 07777);
		if (!strcmp(real, "/"))
			return;
		slash = strrchr(real, '/');
		slash[slash == real] = '\0';
		if (stat(real, &info))
			end(NO_SYSTEM, "%s: %s", real, strerror(errno));
	}
}

/* The directory's descriptor, as a path that nobody can turn into another directory's. */
static int open_directory(const char *path, const char *what, char *by_descriptor, size_t size)
{
	struct stat info;
	int fd;

	if (path[0] != '/')
		end(BAD_USAGE, "%s directory %s: an absolute path is needed", what, path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (fd == -1)
		end(REFUSED, "%s directory %s: %s", what, path,
		    errno == ELOOP || errno == ENOTDIR ? "not a directory" : strerror(errno));
	if (fstat(fd, &info))
		end(NO_SYSTEM, "%s directory %s: %s", what, path, strerror(errno));
	if (info.st_uid != getuid())
		end(REFUSED, "%s directory %s belongs to user %u, not to user %u who asks", what, path, info.st_uid, getuid());
	if (info.st_mode & (S_IWGRP | S_IWOTH))
		end(REFUSED, "%s directory %s may be written by others (mode %04o)", what, path, info.st_mode & 07777);
	snprintf(by_descriptor, size, "/proc/self/fd/%d", fd);
	return fd;
}

/* The pid, checked to be a process of the caller. That it stays one until CRIU stops it is the kernel's to ensure. */
static const char *own_process(const char *text)
{
	char path[64];
	struct stat info;
	size_t length = strlen(text);

	if (length < 1 || length > 9 || strspn(text, "0123456789") != length || text[0] == '0')
		end(BAD_USAGE, "%s is not a process number", text);
	snprintf(path, sizeof(path), "/proc/%s", text);
	if (stat(path, &info))
		end(REFUSED, "there is no process %s", text);
	/* Root's, too, if the process is of the caller but runs a program that they may not read. */
	if (info.st_uid != getuid())
		end(REFUSED, "process %s belongs to user %u, not to user %u who asks", text, info.st_uid, getuid());
	return text;
}

/* After this the one capability is all that there is, and it (or none) survives the next exec. */
static void keep_capability(int wanted)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	__u32 bit = wanted ? CAP_TO_MASK(CAP_CHECKPOINT_RESTORE) : 0;

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
		end(NO_SYSTEM, "this kernel has no ambient capabilities: %s", strerror(errno));
	memset(data, 0, sizeof(data));
	data[CAP_TO_INDEX(CAP_CHECKPOINT_RESTORE)] = (struct __user_cap_data_struct){ bit, bit, bit };
	if (syscall(SYS_capset, &header, data))
		end(NO_SYSTEM, "no CAP_CHECKPOINT_RESTORE (%s): set by `setcap cap_checkpoint_restore+ep` on this program, "
		    "on a file system not mounted nosuid, Linux 5.9 or later", strerror(errno));
	if (wanted && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHECKPOINT_RESTORE, 0, 0))
		end(NO_SYSTEM, "CAP_CHECKPOINT_RESTORE cannot be handed to CRIU: %s", strerror(errno));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		end(NO_SYSTEM, "no_new_privs: %s", strerror(errno));
}

int main(int count, char **given)
{
	static char *const environment[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	char images[32], work[32];
	const char *arguments[40];
	int n = 0, work_fd;

	tidy_descriptors();
	tidy_signals();
	umask(077);
	if (getuid() == 0 || getuid() != geteuid() || getgid() != getegid())
		end(REFUSED, "for ordinary users, as themselves; root runs criu itself");
	must_be_roots(CRIU);
	arguments[n++] = CRIU;
	if (count == 2 && !strcmp(given[1], "version")) {
		arguments[n++] = "--version";
		arguments[n] = NULL;
		keep_capability(0);
		execve(CRIU, (char *const *)arguments, environment);
		end(NO_SYSTEM, "cannot run %s: %s", CRIU, strerror(errno));
	}
	if (count == 5 && !strcmp(given[1], "dump")) {
		arguments[n++] = "dump";
		arguments[n++] = "--tree";
		arguments[n++] = own_process(given[2]);
		/* So that the images can be verified before the program is ended. */
		arguments[n++] = "--leave-stopped";
		/* Unlinked files that are still open go into the image. */
		arguments[n++] = "--ghost-limit";
		arguments[n++] = "4G";
		arguments[n++] = "--log-file";
		arguments[n++] = "dump.log";
	} else if (count == 4 && !strcmp(given[1], "restore")) {
		arguments[n++] = "restore";
		arguments[n++] = "--pidfile";
		arguments[n++] = "pid";
		arguments[n++] = "--log-file";
		arguments[n++] = "restore.log";
	} else {
		end(BAD_USAGE, "usage: omfs-criu version | dump PID IMAGES WORK | restore IMAGES WORK");
	}
	open_directory(given[count - 2], "image", images, sizeof(images));
	work_fd = open_directory(given[count - 1], "work", work, sizeof(work));
	if (fchdir(work_fd))
		end(NO_SYSTEM, "work directory: %s", strerror(errno));
	arguments[n++] = "--images-dir";
	arguments[n++] = images;
	arguments[n++] = "--work-dir";
	arguments[n++] = work;
	arguments[n++] = "--unprivileged";
	arguments[n++] = "--no-default-config";
	arguments[n++] = "--file-locks";
	/* Checks of open files by size, not by build-ids: those would be read from every mapped file. */
	arguments[n++] = "--file-validation";
	arguments[n++] = "filesize";
	arguments[n++] = "-v2";
	if (!strcmp(given[1], "restore")) {
		must_be_roots(ATTACH);
		arguments[n++] = "--exec-cmd";
		arguments[n++] = "--";
		arguments[n++] = ATTACH;
		arguments[n++] = "wait";
		arguments[n++] = ".";
	}
	arguments[n] = NULL;
	keep_capability(1);
	execve(CRIU, (char *const *)arguments, environment);
	end(NO_SYSTEM, "cannot run %s: %s", CRIU, strerror(errno));
}
