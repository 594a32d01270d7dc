/* refuse.c: what convert.c calls of aotrun's report, for programs that only read. */
#include "program.h"

int refuse(int exit_code, const char *code, const char *hint, const char *format, ...) {
  (void)code, (void)hint, (void)format;
  return exit_code;
}
