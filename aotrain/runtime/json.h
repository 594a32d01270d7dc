/* json.h: the strict part of JSON that a safetensors header needs: objects, strings, natural
 * numbers. */
#ifndef AOT_JSON_H
#define AOT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json { /* the text that is left */
  const char *at, *end;
};

/* Skips white space, then `expected`; false, and nothing consumed but white space, when it is
 * not there. */
bool json_eat(struct json *in, char expected);
/* A string into out[size] as UTF-8 with its NUL; false when it is malformed, too long, or holds
 * a NUL. */
bool json_string(struct json *in, char *out, size_t size);
/* 0 .. 2^63-1 without sign, fraction, exponent or leading zero. */
bool json_natural(struct json *in, uint64_t *value);
/* Only white space is left. */
bool json_end(struct json *in);

#endif
