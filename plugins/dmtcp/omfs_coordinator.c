/* Preloaded into dmtcp_coordinator: closes it to other users.
 *
 * The coordinator listens on every address and obeys whoever connects. With this library it listens on 127.0.0.1, and
 * a connection is accepted only if the socket at its other end belongs to the coordinator's own user. The kernel says
 * whose it is in /proc/self/net/tcp. Only an established connection counts: one that its owner has closed is shown as
 * root's.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ESTABLISHED 1

static int is_ours(int descriptor)
{
	struct sockaddr_in here, there;
	socklen_t size = sizeof here, other_size = sizeof there;
	char line[512];
	int ours = 0;

	if (getsockname(descriptor, (struct sockaddr *)&here, &size) || here.sin_family != AF_INET ||
	    getpeername(descriptor, (struct sockaddr *)&there, &other_size) || there.sin_family != AF_INET)
		return 0;
	FILE *table = fopen("/proc/self/net/tcp", "re");
	if (!table)
		return 0;
	while (!ours && fgets(line, sizeof line, table)) {
		unsigned int address, port, to_address, to_port, state, uid;
		/* sl local remote state tx:rx timer:when retransmissions uid */
		ours = sscanf(line, " %*[^:]: %x:%x %x:%x %x %*x:%*x %*x:%*x %*x %u", &address, &port, &to_address,
			      &to_port, &state, &uid) == 6 &&
		       state == ESTABLISHED && address == there.sin_addr.s_addr && port == ntohs(there.sin_port) &&
		       to_address == here.sin_addr.s_addr && to_port == ntohs(here.sin_port) && uid == geteuid();
	}
	fclose(table);
	return ours;
}

int bind(int descriptor, const struct sockaddr *address, socklen_t size)
{
	static int (*real)(int, const struct sockaddr *, socklen_t);
	struct sockaddr_in local;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "bind");
	if (!address || size < sizeof local || address->sa_family != AF_INET)
		return real(descriptor, address, size);
	memcpy(&local, address, sizeof local);
	local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return real(descriptor, (struct sockaddr *)&local, sizeof local);
}

int accept4(int descriptor, struct sockaddr *address, socklen_t *size, int flags)
{
	static int (*real)(int, struct sockaddr *, socklen_t *, int);
	socklen_t room = size ? *size : 0;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "accept4");
	for (;;) {
		int found = real(descriptor, address, size, flags);
		if (found < 0 || is_ours(found))
			return found;
		close(found);
		if (size)
			*size = room;
		/* Do not wait for the next one: the coordinator has other connections to serve. */
		struct pollfd next = {.fd = descriptor, .events = POLLIN};
		if (poll(&next, 1, 0) != 1) {
			errno = EAGAIN;
			return -1;
		}
	}
}

int accept(int descriptor, struct sockaddr *address, socklen_t *size)
{
	return accept4(descriptor, address, size, 0);
}
