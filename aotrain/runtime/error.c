/* error.c: a status and a format in, the handle's error string out. */
#include <stdarg.h>
#include <string.h>

#include "internal.h"

static const char *const CODES[] = {
    [AOT_OK] = "AOT-A000",    [AOT_NOT_FINITE] = "AOT-D030", [AOT_BAD_ARTIFACT] = "AOT-A010",
    [AOT_NEWER] = "AOT-A011", [AOT_BAD_STATE] = "AOT-A020",  [AOT_BAD_ARGUMENT] = "AOT-D001",
    [AOT_IO] = "AOT-A030",    [AOT_MEMORY] = "AOT-M030",     [AOT_KERNEL] = "AOT-K090",
    [AOT_BAD_LABEL] = "AOT-D017", [AOT_DEVICE] = "AOT-T010",
};

aot_status aot_fail(aot *model, aot_status status, const char *format, ...) {
  size_t used = (size_t)snprintf(model->error, sizeof model->error, "%s: ", CODES[status]);
  va_list values;
  va_start(values, format);
  vsnprintf(model->error + used, sizeof model->error - used, format, values);
  va_end(values);
  return status;
}
