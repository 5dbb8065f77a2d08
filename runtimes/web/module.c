/* The WebAssembly module: one model and its workspace, in the memory of one instance. featherweight.js uses it. */
#define FW_API static __attribute__((unused))
#define FW_TABLES_ELSEWHERE
#define FW_NO_TRANSFORMERS
#define FW_ONE_BY_ONE
#define FEATHERWEIGHT_IMPLEMENTATION
#include "../c/featherweight.h"

#include "tables.h"

#define EXPORT(name) __attribute__((export_name(#name)))
#define PAGE 65536u

/* C library functions that the code calls; the module is built without a library. */
int memcmp(const void *first, const void *second, size_t count) {
  const uint8_t *a = first, *b = second;
  for (; count; count--, a++, b++)
    if (*a != *b) return *a - *b;
  return 0;
}

void *memchr(const void *bytes, int byte, size_t count) {
  for (const uint8_t *at = bytes; count; count--, at++)
    if (*at == (uint8_t)byte) return (void *)(uintptr_t)at;
  return NULL;
}

char *strchr(const char *text, int character) {
  for (; *text != (char)character; text++)
    if (!*text) return NULL;
  return (char *)(uintptr_t)text;
}

extern uint8_t __heap_base;
static size_t base, results, work, work_size, longest, words;

/* What the caller reads: address and length in bytes of a result, and the public fields of the model. */
static struct {
  uint32_t at, length;
  fw_model model;
} about;

static size_t aligned(size_t at) { return (at + 63) & ~(size_t)63; }

/* Grow the memory up to an address. Returns 0 if that fails. */
static int reach(size_t end) {
  size_t pages = __builtin_wasm_memory_size(0), needed = end / PAGE + 1;
  return needed <= pages || __builtin_wasm_memory_grow(0, needed - pages) != SIZE_MAX;
}

/* Inflate the Unicode tables, which are stored by byte planes: of all four-byte cells the first bytes, then the second
 * bytes, ..., then the same for two-byte cells, then the one-byte cells. */
static void unpack_tables(void) {
  static fw__inflate stream;
  static uint8_t window[FW_WINDOW];
  size_t fours = offsetof(fw__unicode_tables, records), twos = offsetof(fw__unicode_tables, top) - fours;
  uint8_t *to = (uint8_t *)&fw__tables;
  fw__start_inflate(&stream, tables, sizeof tables, window, FW_WINDOW - 1);
  for (size_t place = 0; place < 4; place++)
    for (size_t i = place; i < fours; i += 4) to[i] = (uint8_t)fw__inflated(&stream);
  for (size_t place = 0; place < 2; place++)
    for (size_t i = place; i < twos; i += 2) to[fours + i] = (uint8_t)fw__inflated(&stream);
  for (size_t i = fours + twos; i < sizeof fw__tables; i++) to[i] = (uint8_t)fw__inflated(&stream);
}

/* The most bytes of a file and of texts: far below those at which an address wraps. */
#define MOST_FILE ((size_t)1 << 27)
#define MOST_TEXT ((size_t)1 << 25)

/* Return the address to write a packed file of this length to, 0 if there is not enough memory. */
EXPORT(room) size_t room(size_t length) {
  base = aligned((size_t)&__heap_base);
  return length <= MOST_FILE && reach(base + length) ? base : 0;
}

/* Decode the file that was written to `room`. Returns a status. */
EXPORT(open) int open_model(size_t length) {
  size_t memory = aligned(base + length), size;
  unpack_tables();
  int status = fw_open(&about.model, (const void *)base, length);
  if (status) return status;
  size = fw_memory_size(&about.model);
  if (size > SIZE_MAX / 2 || !reach(memory + size)) return FW_MEMORY;
  status = fw_load(&about.model, (void *)memory, size);
  base = aligned(memory + fw_used(&about.model));
  work_size = 1 << 19;
  return status;
}

EXPORT(about) size_t about_model(void) { return (size_t)&about; }

/* Point `about` at a label's text. */
EXPORT(label) void label(uint32_t index) {
  size_t length = 0;
  about.at = (uint32_t)(size_t)fw_label(&about.model, index, &length);
  about.length = (uint32_t)length;
}

EXPORT(error) size_t error(int status) { return (size_t)fw_error(status); }

/* Return the address to write texts of this total length to, 0 without enough memory. Earlier texts are lost. */
EXPORT(input) size_t input(size_t length) {
  if (length > MOST_TEXT) return 0;
  if (length > longest || !work) {
    longest = 2 * length + 4096;
    words = about.model.tags ? longest / 2 + 1 : 1;
    results = aligned(base + longest);
    work = aligned(results + words * (sizeof(fw_word) + 4 * about.model.outputs));
    if (!reach(work + work_size)) return longest = 0;
    fw_start((void *)work, work_size);
  }
  return base;
}

/* Double the workspace. Returns whether that can help. */
static int larger(size_t length) {
  if (work_size >= fw_workspace_size(&about.model, length) || work_size > 1u << 29) return 0;
  work_size *= 2;
  if (!reach(work + work_size)) return 0;
  fw_start((void *)work, work_size);
  return 1;
}

/* Predict for the text, or the two consecutive texts, in `input`. Returns a status; `about` has the address of the
 * probabilities. */
EXPORT(predict) int predict(size_t length, size_t second) {
  const char *text = (const char *)base;
  int status;
  while ((status = fw_predict(&about.model, text, length, about.model.pair ? text + length : NULL, second, (void *)work,
                              work_size, (float *)results)) == FW_WORKSPACE &&
         larger(length > second ? length : second))
    continue;
  about.at = (uint32_t)results;
  about.length = about.model.outputs;
  return status;
}

/* Label the words of the text in `input`. Returns a status; `about` has the address of the words (start, length in
 * bytes and label of each) and their number; their logits follow the last word. */
EXPORT(tag) int tag(size_t length) {
  fw_word *tagged = (fw_word *)results;
  float *logits = (float *)(tagged + words);
  size_t count = 0;
  int status;
  while ((status = fw_tag(&about.model, (const char *)base, length, (void *)work, work_size, tagged, words, &count,
                          logits)) == FW_WORKSPACE &&
         larger(length))
    continue;
  memmove(tagged + count, logits, count * 4 * about.model.outputs);
  about.at = (uint32_t)results;
  about.length = (uint32_t)count;
  return status;
}
