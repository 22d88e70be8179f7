/*
 * omfs-criu-attach: the parent of a program that CRIU can dump, and of the program that it brought back.
 *
 *   omfs-criu-attach start WORK PROGRAM [ARGUMENTS]...   run PROGRAM as leader of its own session
 *   omfs-criu-attach wait WORK                           CRIU runs this in its own place after a restore
 *
 * Says the program's pid in WORK/attached (complete as soon as it exists), waits for it and exits with its code, 128 + N if
 * signal N ended it. If PROGRAM cannot be run: exit 126, the reason in WORK/refused and nothing in WORK/attached.
 * Holds no capability, and gives none on: what CRIU had is dropped before anything else.
 *
 * The program gets no_new_privs: without CAP_SETPCAP a restore needs it wherever the capability bounding set is not
 * full, as in containers. Processes that lose their parent become children of this one, so that omfs-run finds all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_RUN = 126 };

static int work;

static void say(const char *name, const char *text)
{
	int fd = openat(work, "said", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	size_t length = strlen(text);

	if (fd == -1 || write(fd, text, length) != (ssize_t)length || close(fd) || renameat(work, "said", work, name)) {
		fprintf(stderr, "omfs-criu-attach: cannot write %s: %s\n", name, strerror(errno));
		_exit(CANNOT_RUN);
	}
}

static void say_pid(pid_t pid)
{
	char text[32];

	snprintf(text, sizeof(text), "%d\n", pid);
	say("attached", text);
}

static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	memset(data, 0, sizeof(data));
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) || syscall(SYS_capset, &header, data)) {
		perror("omfs-criu-attach: cannot drop capabilities");
		_exit(CANNOT_RUN);
	}
}

/* Signals that are sent to a whole job reach the program by themselves; its parent stays until it has the exit code. */
static void stay(void)
{
	static const int ignored[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGXCPU,
				       SIGTSTP, SIGTTIN, SIGTTOU };

	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	/* An ignored SIGCHLD, which is inherited, would lose the exit code. */
	signal(SIGCHLD, SIG_DFL);
}

static int outlive(pid_t program)
{
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);

		if (pid == -1 && errno != EINTR) {
			perror("omfs-criu-attach: the program is not there");
			return CANNOT_RUN;
		}
		if (pid != program)
			continue;
		/* A dead child that nobody asks for would keep its session's number, which is the program's, taken. */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	}
}

static pid_t start(char **command)
{
	int failed[2], error;
	pid_t pid;

	if (pipe2(failed, O_CLOEXEC) || (pid = fork()) == -1) {
		say("refused", strerror(errno));
		_exit(CANNOT_RUN);
	}
	if (pid == 0) {
		close(work);
		if (setsid() != -1 && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
			execvp(command[0], command);
		error = errno;
		if (write(failed[1], &error, sizeof(error)) != sizeof(error))
			_exit(CANNOT_RUN + 1);
		_exit(CANNOT_RUN);
	}
	/* Not before the fork: the program gets the signals as they were given. */
	stay();
	close(failed[1]);
	if (read(failed[0], &error, sizeof(error)) == sizeof(error)) {
		say("refused", strerror(error));
		_exit(CANNOT_RUN);
	}
	close(failed[0]);
	return pid;
}

static pid_t restored(void)
{
	char text[32] = "";
	int fd = openat(work, "pid", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd == -1 || read(fd, text, sizeof(text) - 1) <= 0 || atoi(text) <= 1) {
		fprintf(stderr, "omfs-criu-attach: criu left no pid file\n");
		_exit(CANNOT_RUN);
	}
	close(fd);
	return atoi(text);
}

int main(int count, char **given)
{
	pid_t program;
	int starting = count >= 4 && !strcmp(given[1], "start");

	drop_capabilities();
	if (!starting && !(count == 3 && !strcmp(given[1], "wait"))) {
		fprintf(stderr, "usage: omfs-criu-attach start WORK PROGRAM [ARGUMENTS]... | wait WORK\n");
		return 64;
	}
	work = open(given[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (work == -1 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) {
		fprintf(stderr, "omfs-criu-attach: %s: %s\n", given[2], strerror(errno));
		return CANNOT_RUN;
	}
	if (starting) {
		program = start(given + 3);
	} else {
		stay();
		/* CRIU's own, and the two directories' that omfs-criu had opened. */
		for (int fd = 3; fd < 4096; fd++)
			if (fd != work)
				close(fd);
		program = restored();
	}
	say_pid(program);
	return outlive(program);
}
