/* state.h: the checkpoint format, shared by its reader and its writer.
 *
 * A safetensors file: u64 header bytes, JSON header, data. Tensors of the state stand under their
 * names; "__metadata__" holds, all as strings:
 *
 *   "aotrain.crc32"         CRC-32, 8 hex digits, of the whole file with these digits as '0'
 *   "aotrain.format"        "1"
 *   "aotrain.step"          training steps done
 *   "aotrain.hyper.<name>"  the float32 bits, 8 hex digits
 *   <counter>               its elements in decimal, blanks between: "step": "120", "rng": "7 120"
 *   <note>                  aot_save's notes
 *
 * A file without the "aotrain." keys (made by another tool) is read too, without the checksum. */
#ifndef AOT_STATE_H
#define AOT_STATE_H

#define STATE_PREFIX "aotrain."
#define STATE_FORMAT "1"
#define STATE_CRC "aotrain.crc32"
#define STATE_VERSION "aotrain.format"
#define STATE_STEP "aotrain.step"
#define STATE_HYPER "aotrain.hyper."
enum { STATE_NAME_MAX = 1024, STATE_VALUE_MAX = 256 };

#endif
