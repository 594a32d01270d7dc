/* json.c: bytes in, JSON tokens out, bounds-checked; what json.h lists and nothing more. */
#include "json.h"

static void skip_space(struct json *in) {
  while (in->at < in->end &&
         (*in->at == ' ' || *in->at == '\n' || *in->at == '\t' || *in->at == '\r'))
    in->at++;
}

bool json_eat(struct json *in, char expected) {
  skip_space(in);
  if (in->at == in->end || *in->at != expected) return false;
  in->at++;
  return true;
}

bool json_end(struct json *in) {
  skip_space(in);
  return in->at == in->end;
}

bool json_natural(struct json *in, uint64_t *value) {
  skip_space(in);
  const char *first = in->at;
  uint64_t number = 0;
  for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++) {
    if (number > (INT64_MAX - 9) / 10) return false;
    number = number * 10 + (uint64_t)(*in->at - '0');
  }
  *value = number;
  return in->at > first && (*first != '0' || in->at == first + 1);
}

static bool hex4(struct json *in, uint32_t *value) {
  if (in->end - in->at < 4) return false;
  *value = 0;
  for (int i = 0; i < 4; i++) {
    char digit = *in->at++;
    uint32_t nibble;
    if (digit >= '0' && digit <= '9') nibble = (uint32_t)(digit - '0');
    else if (digit >= 'a' && digit <= 'f') nibble = (uint32_t)(digit - 'a') + 10;
    else if (digit >= 'A' && digit <= 'F') nibble = (uint32_t)(digit - 'A') + 10;
    else return false;
    *value = *value << 4 | nibble;
  }
  return true;
}

/* The part after \u, surrogate pairs joined. */
static bool code_point(struct json *in, uint32_t *value) {
  if (!hex4(in, value)) return false;
  if (*value < 0xD800 || *value > 0xDFFF) return *value != 0;
  uint32_t low;
  if (*value > 0xDBFF || in->end - in->at < 2 || *in->at++ != '\\' || *in->at++ != 'u' ||
      !hex4(in, &low))
    return false;
  if (low < 0xDC00 || low > 0xDFFF) return false;
  *value = 0x10000 + ((*value - 0xD800) << 10) + (low - 0xDC00);
  return true;
}

static size_t utf8(uint32_t value, char out[4]) {
  size_t bytes = value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
  static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = bytes; i-- > 1; value >>= 6) out[i] = (char)(0x80 | (value & 0x3F));
  out[0] = (char)(lead[bytes] | value);
  return bytes;
}

/* The part after a backslash, as UTF-8; 0 when it is malformed. */
static size_t escape(struct json *in, char out[4]) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (in->at == in->end) return 0;
  char kind = *in->at++;
  uint32_t value;
  if (kind == 'u') return code_point(in, &value) ? utf8(value, out) : 0;
  for (int i = 0; from[i]; i++)
    if (from[i] == kind) {
      out[0] = to[i];
      return 1;
    }
  return 0;
}

bool json_string(struct json *in, char *out, size_t size) {
  if (!json_eat(in, '"')) return false;
  size_t used = 0;
  while (in->at < in->end) {
    char part[4] = {*in->at++};
    size_t bytes = 1;
    if (part[0] == '"') {
      out[used] = 0;
      return true;
    }
    if ((unsigned char)part[0] < 0x20) return false;
    if (part[0] == '\\' && (bytes = escape(in, part)) == 0) return false;
    if (used + bytes >= size) return false;
    for (size_t i = 0; i < bytes; i++) out[used++] = part[i];
  }
  return false;
}
