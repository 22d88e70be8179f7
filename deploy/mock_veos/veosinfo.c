/* Stand-in for NEC's VEOS information library on mock VEOS: the part of its public interface that concerns memory and
 * partial process swapping, with the same structures. Each function returns 0 or -errno, ve_mem_info -1 with errno.
 *
 * The service is found at MOCK_VEOS_SOCKET, or at `veos.sock` beside this library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_SWAP_PROCESS 256
#define ANSWER 65536

struct ve_swap_pids {
	pid_t pid[MAX_SWAP_PROCESS + 1];
	int process_num;
};

struct ve_swap_pids_f {
	pid_t pid[MAX_SWAP_PROCESS + 1];
	int process_num;
	size_t required_free_size;
};

struct ve_swap_status_struct {
	pid_t pid;
	int proc_state;
	int proc_substate;
};

struct ve_swap_status_info {
	int len;
	struct ve_swap_status_struct ve_swap_status[MAX_SWAP_PROCESS];
};

struct ve_swap_struct {
	pid_t pid;
	int proc_state;
	int proc_substate;
	unsigned long long swapped_sz;
	unsigned long long swappable_sz;
};

struct ve_swap_info {
	int len;
	struct ve_swap_struct ve_swap[MAX_SWAP_PROCESS];
};

struct ve_swap_node_info {
	int node_num;
	unsigned long long node_swapped_sz;
};

struct ve_ns_info_proc {
	pid_t pid;
	int64_t ns;
};

struct ve_cns_info {
	struct ve_ns_info_proc info[MAX_SWAP_PROCESS / 2];
};

/* Kilobytes; of these the mock knows total, used and free. */
struct ve_meminfo {
	unsigned long kb_main_total, kb_main_used, kb_main_free;
	unsigned long others[17];
};

static int connect_to_service(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *given = getenv("MOCK_VEOS_SOCKET");
	Dl_info self;
	int written, fd;

	if (given && *given) {
		written = snprintf(address.sun_path, sizeof(address.sun_path), "%s", given);
	} else {
		if (!dladdr((void *)connect_to_service, &self) || !self.dli_fname)
			return -1;
		const char *slash = strrchr(self.dli_fname, '/');
		int length = slash ? (int)(slash - self.dli_fname) : 1;

		written = snprintf(address.sun_path, sizeof(address.sun_path), "%.*s/veos.sock", length,
				   slash ? self.dli_fname : ".");
	}
	if (written < 0 || (size_t)written >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Send a line and read the whole answer; 0, or -1 if the service cannot be reached or breaks off. */
static int ask(const char *request, char *answer)
{
	size_t length = strlen(request), done = 0;
	int fd = connect_to_service();

	if (fd < 0)
		return -1;
	while (done < length) {
		ssize_t part = send(fd, request + done, length - done, MSG_NOSIGNAL);

		if (part <= 0)
			goto broken;
		done += part;
	}
	for (done = 0; done < ANSWER - 1;) {
		ssize_t part = read(fd, answer + done, ANSWER - 1 - done);

		if (part < 0)
			goto broken;
		if (part == 0)
			break;
		done += part;
	}
	answer[done] = '\0';
	close(fd);
	if (!strcmp(answer, "abort\n"))
		abort(); /* as the real one does when it and VEOS are of different versions */
	return done ? 0 : -1;
broken:
	close(fd);
	return -1;
}

/* Ask about pids; the cursor is left behind the number of rows. */
static int ask_about(const char *word, int node, const struct ve_swap_pids *pids, char *answer, char **cursor)
{
	char request[16384];
	int count = pids->process_num, at, i, code;

	if (count < 0 || count > MAX_SWAP_PROCESS)
		return -ECANCELED;
	at = snprintf(request, sizeof(request), "%s %d %d", word, node, count);
	for (i = 0; i <= count; i++)
		at += snprintf(request + at, sizeof(request) - at, " %d", pids->pid[i]);
	snprintf(request + at, sizeof(request) - at, "\n");
	if (ask(request, answer))
		return -1;
	code = (int)strtol(answer, cursor, 10);
	if (!code)
		(void)strtol(*cursor, cursor, 10);
	return code;
}

int ve_swap_out(int node, struct ve_swap_pids *pids)
{
	char answer[ANSWER], *cursor;

	return ask_about("out", node, pids, answer, &cursor);
}

/* The mock always swaps out all that it can. */
int ve_swap_out_f(int node, struct ve_swap_pids_f *pids)
{
	struct ve_swap_pids plain;

	memcpy(plain.pid, pids->pid, sizeof(plain.pid));
	plain.process_num = pids->process_num;
	return ve_swap_out(node, &plain);
}

int ve_swap_in(int node, struct ve_swap_pids *pids)
{
	char answer[ANSWER], *cursor;

	return ask_about("in", node, pids, answer, &cursor);
}

int ve_swap_info(int node, struct ve_swap_pids *pids, struct ve_swap_info *info)
{
	char answer[ANSWER], *cursor;
	int code = ask_about("info", node, pids, answer, &cursor), i;

	if (code)
		return code;
	info->len = pids->process_num;
	for (i = 0; i < info->len; i++) {
		struct ve_swap_struct *row = &info->ve_swap[i];

		row->pid = (pid_t)strtol(cursor, &cursor, 10);
		row->proc_state = (int)strtol(cursor, &cursor, 10);
		row->proc_substate = (int)strtol(cursor, &cursor, 10);
		row->swapped_sz = strtoull(cursor, &cursor, 10);
		row->swappable_sz = strtoull(cursor, &cursor, 10);
	}
	return 0;
}

int ve_swap_statusinfo(int node, struct ve_swap_pids *pids, struct ve_swap_status_info *status)
{
	struct ve_swap_info info;
	int code = ve_swap_info(node, pids, &info), i;

	if (code)
		return code;
	status->len = info.len;
	for (i = 0; i < info.len; i++) {
		status->ve_swap_status[i].pid = info.ve_swap[i].pid;
		status->ve_swap_status[i].proc_state = info.ve_swap[i].proc_state;
		status->ve_swap_status[i].proc_substate = info.ve_swap[i].proc_substate;
	}
	return 0;
}

int ve_swap_get_cns(int node, struct ve_swap_pids *pids, struct ve_cns_info *cns)
{
	char answer[ANSWER], *cursor;
	int code = ask_about("fixed", node, pids, answer, &cursor), i;

	for (i = 0; !code && i < pids->process_num && i < MAX_SWAP_PROCESS / 2; i++) {
		cns->info[i].pid = (pid_t)strtol(cursor, &cursor, 10);
		cns->info[i].ns = strtoll(cursor, &cursor, 10);
	}
	return code;
}

int ve_swap_nodeinfo(int node, struct ve_swap_node_info *info)
{
	char request[64], answer[ANSWER], *cursor;
	int code;

	snprintf(request, sizeof(request), "node %d\n", node);
	if (ask(request, answer))
		return -1;
	code = (int)strtol(answer, &cursor, 10);
	info->node_num = node;
	info->node_swapped_sz = code ? 0 : strtoull(cursor, NULL, 10);
	return code;
}

int ve_mem_info(int node, struct ve_meminfo *info)
{
	char request[64], answer[ANSWER], *cursor;
	int code;

	snprintf(request, sizeof(request), "memory %d\n", node);
	if (ask(request, answer))
		return -1;
	code = (int)strtol(answer, &cursor, 10);
	if (code) {
		errno = -code;
		return -1;
	}
	memset(info, 0, sizeof(*info));
	info->kb_main_total = strtoull(cursor, &cursor, 10) / 1024;
	info->kb_main_free = strtoull(cursor, &cursor, 10) / 1024;
	info->kb_main_used = info->kb_main_total - info->kb_main_free;
	return 0;
}
