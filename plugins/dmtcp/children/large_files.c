/* What programs with large file support call: the same as what DMTCP wraps, where addresses have 64 bits. */
#include "children.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int fcntl64(int descriptor, int command, ...)
{
	va_list more;

	va_start(more, command);
	void *argument = va_arg(more, void *);
	va_end(more);
	return fcntl(descriptor, command, argument);
}

int mkstemp64(char *path)
{
	return mkstemp(path);
}

int mkostemp64(char *path, int flags)
{
	return mkostemp(path, flags);
}

int mkstemps64(char *path, int length)
{
	return mkstemps(path, length);
}

int mkostemps64(char *path, int length, int flags)
{
	return mkostemps(path, length, flags);
}

FILE *tmpfile64(void)
{
	return tmpfile();
}
