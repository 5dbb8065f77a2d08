/* Fuzzer: a damaged packed file must not cause reads or writes out of bounds, or undefined behaviour.

    make sanitizers
    ./fuzz loop SECONDS SEED FILE...     mutate these files; print how many were models, and why others were rejected
    ./fuzz answers < STREAM              read unchanged files, each after its length in four bytes; print their answers

With clang: clang -fsanitize=fuzzer,address,undefined -DFW_LIBFUZZER fuzz.c */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FEATHERWEIGHT_IMPLEMENTATION
#include "featherweight.h"

enum { STATUSES = FW_LARGE_VOCABULARY + 2, TOO_LARGE = FW_LARGE_VOCABULARY + 1 };
static const char *const texts[] = {"A film, 2!", "Caf\xC3\xA9 na\xC3\xAFve \xE2\x82\xAC\xEF\xAC\x81 the films ", ""};
static const size_t most_memory = (size_t)256 << 20;

/* Return a copy of exactly this length, so that the sanitizers detect accesses beyond it. */
static void *copy(const void *bytes, size_t length) {
  void *memory = malloc(length ? length : 1);
  if (!memory) abort();
  if (bytes) memcpy(memory, bytes, length);
  return memory;
}

/* Return a file's status; writes its logits for a text to *logits, to be freed, and their number to *count. */
static int answer(const uint8_t *bytes, size_t length, const char *text, float **logits, size_t *count) {
  fw_model model;
  void *file = copy(bytes, length);
  int status = fw_open(&model, file, length);
  size_t size = status ? 0 : fw_memory_size(&model), of_text = strlen(text);
  *logits = NULL;
  *count = 0;
  if (!status && size > most_memory) status = TOO_LARGE;
  if (status) return free(file), status;
  void *memory = copy(NULL, size);
  status = fw_load(&model, memory, size);
  if (!status) { /* load it again, with exactly as much memory as it has just needed */
    free(memory);
    memory = copy(NULL, fw_needed(&model));
    if (fw_needed(&model) > size || fw_load(&model, memory, fw_needed(&model))) abort();
  }
  free(file);
  size = status ? 0 : fw_workspace_size(&model, of_text);
  if (!status && size > most_memory) status = TOO_LARGE;
  if (!status) {
    void *workspace = copy(NULL, size);
    size_t words = of_text / 2 + 1;
    char *exact = copy(text, of_text);
    fw_start(workspace, size);
    *logits = copy(NULL, model.outputs * words * sizeof **logits);
    if (model.tags) {
      fw_word *found = copy(NULL, words * sizeof *found);
      status = fw_tag(&model, exact, of_text, workspace, size, found, words, count, *logits);
      *count *= model.outputs;
      for (uint32_t i = 0; i < model.labels && i < 3; i++) {
        size_t of_label;
        const char *label = fw_label(&model, i, &of_label);
        free(copy(label, of_label));
      }
      free(found);
    } else {
      size_t skipped = of_text < 2 ? of_text : 2; /* texts of a pair share some tokens */
      status = fw_logits(&model, exact, of_text, model.pair ? exact + skipped : NULL, of_text - skipped, workspace,
                         size, *logits);
      *count = model.outputs;
    }
    free(exact);
    free(workspace);
  }
  free(memory);
  return status;
}

#ifdef FW_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  float *logits;
  size_t count;
  answer(bytes, length, texts[1], &logits, &count);
  free(logits);
  return 0;
}
#else

static uint64_t state;

static uint32_t below(uint32_t limit) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)((state * 0x2545F4914F6CDD1Du >> 32) % (limit ? limit : 1));
}

typedef struct {
  uint8_t *bytes;
  size_t length, header, size; /* header: length of the inflated header; the rest of the file follows it */
} File;

/* Return a file with its header inflated, followed by the rest of the file. */
static File taken_apart(const char *path) {
  FILE *in = fopen(path, "rb");
  static uint8_t bytes[1 << 22];
  size_t length = in ? fread(bytes, 1, sizeof bytes, in) : 0;
  fw_model model;
  static fw__inflate inflate;
  if (in) fclose(in);
  if (fw_open(&model, bytes, length)) {
    fprintf(stderr, "error: %s: not a packed file\n", path);
    exit(2);
  }
  File file = {malloc(1 << 23), 0, model.header_length, 1 << 23};
  if (!file.bytes) abort();
  fw__start_inflate(&inflate, model.stored, model.stored_length, file.bytes, FW__NONE);
  if (model.stored_length == model.header_length) memcpy(file.bytes, model.stored, model.header_length);
  else
    for (size_t i = 0; i < file.header; i++)
      if (fw__inflated(&inflate) < 0) abort();
  memcpy(file.bytes + file.header, bytes + model.rest_at, length - 4 - model.rest_at);
  file.length = file.header + length - 4 - model.rest_at;
  return file;
}

static size_t put_number(uint8_t *to, size_t value) {
  size_t count = 0;
  for (; value > 127; value >>= 7) to[count++] = (uint8_t)(value | 128);
  to[count++] = (uint8_t)value;
  return count;
}

/* Change bytes: bits, extremes, numbers, or a stretch that is copied, left out or inserted. Returns the new length. */
static size_t changed(uint8_t *bytes, size_t length, size_t capacity) {
  static const uint32_t numbers[] = {0,   1,     2,     63,    64,    127,   128,     255,
                                     256, 16383, 16384, 16385, 32768, 65536, 1 << 24, 1 << 25};
  uint32_t at = below((uint32_t)length), to = below((uint32_t)length), count = 1 + below(40);
  if (!length) return 0;
  switch (below(8)) {
    case 0:
    case 1:
      for (uint32_t i = 1 + below(4); i--; at = below((uint32_t)length)) bytes[at] ^= (uint8_t)(1 << below(8));
      return length;
    case 2: bytes[at] = (uint8_t)below(256); return length;
    case 3: bytes[at] = (uint8_t)below(6); return length;
    case 4: {
      uint8_t number[8];
      size_t of_number = put_number(number, numbers[below(16)]), end = at;
      while (end + 1 < length && bytes[end] > 127) end++;
      end++;
      if (length - (end - at) + of_number > capacity) return length;
      memmove(bytes + at + of_number, bytes + end, length - end);
      memcpy(bytes + at, number, of_number);
      return length - (end - at) + of_number;
    }
    case 5: /* a stretch is left out */
      if (count > length - at) count = (uint32_t)length - at;
      memmove(bytes + at, bytes + at + count, length - at - count);
      return length - count;
    case 6: /* a stretch is copied over another one */
      if (count > length - at) count = (uint32_t)length - at;
      if (count > length - to) count = (uint32_t)length - to;
      memmove(bytes + at, bytes + to, count);
      return length;
    default: /* bytes are inserted */
      if (length + count > capacity) return length;
      memmove(bytes + at + count, bytes + at, length - at);
      for (uint32_t i = 0; i < count; i++) bytes[at + i] = (uint8_t)below(256);
      return length + count;
  }
}

/* Write a damaged file. Most have a correct length and checksum, so that later checks are reached. */
static size_t damaged(const File *file, uint8_t *to) {
  static uint8_t header[1 << 20], rest[1 << 22];
  size_t of_header = file->header, of_rest = file->length - file->header, at = 8;
  memcpy(header, file->bytes, of_header);
  memcpy(rest, file->bytes + of_header, of_rest);
  uint32_t where = below(10);
  if (where < 7)
    for (uint32_t i = 1 + below(3); i--;) of_header = changed(header, of_header, sizeof header);
  if (where >= 6) of_rest = changed(rest, of_rest, sizeof rest);
  memcpy(to, "FWT\1", 4);
  at += put_number(to + at, of_header);
  at += put_number(to + at, of_header);
  memcpy(to + at, header, of_header);
  memcpy(to + at + of_header, rest, of_rest);
  at += of_header + of_rest + 4;
  for (int i = 0; i < 4; i++) to[4 + i] = (uint8_t)(at >> 8 * i);
  uint32_t crc = fw__crc(to, at - 4);
  for (int i = 0; i < 4; i++) to[at - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
  return where == 9 && below(4) == 0 ? changed(to, at, at) : at;
}

/* Write a file whose compressed header is damaged. */
static size_t damaged_deflate(const char *path, uint8_t *to) {
  FILE *in = fopen(path, "rb");
  size_t length = in ? fread(to, 1, 1 << 22, in) : 0;
  if (in) fclose(in);
  if (length < 32) return length;
  for (uint32_t i = 1 + below(3); i--;) to[12 + below(200) % (length - 16)] ^= (uint8_t)(1 << below(8));
  uint32_t crc = fw__crc(to, length - 4);
  for (int i = 0; i < 4; i++) to[length - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
  return length;
}

static int loop(double seconds, uint64_t seed, int count, char **paths) {
  static uint8_t bytes[1 << 23];
  unsigned long seen[STATUSES] = {0}, files = 0;
  File *honest = calloc((size_t)count, sizeof *honest);
  time_t started = time(NULL), told = started;
  if (!honest) abort();
  for (int i = 0; i < count; i++) honest[i] = taken_apart(paths[i]);
  state = seed * 0x9E3779B97F4A7C15u + 88172645463325252u;
  while (difftime(time(NULL), started) < seconds) {
    for (int i = 0; i < 100; i++, files++) {
      uint32_t index = below((uint32_t)count);
      size_t length = below(20) ? damaged(&honest[index], bytes) : damaged_deflate(paths[index], bytes), values;
      float *logits;
      int status = answer(bytes, length, texts[below(3)], &logits, &values);
      if (status == FW_WORKSPACE) {
        FILE *out = fopen("workspace.fwt", "wb");
        if (out) fwrite(bytes, 1, length, out), fclose(out);
        fprintf(stderr, "a text needs more than fw_workspace_size: workspace.fwt\n");
        return 1;
      }
      for (size_t value = 0; !status && value < values; value++)
        if (!(logits[value] - logits[value] == 0)) {
          FILE *out = fopen("not-finite.fwt", "wb");
          if (out) fwrite(bytes, 1, length, out), fclose(out);
          fprintf(stderr, "a logit is not finite: not-finite.fwt\n");
          return 1;
        }
      free(logits);
      seen[status]++;
    }
    if (difftime(time(NULL), told) >= 60) {
      told = time(NULL);
      printf("%lu files\n", files);
      fflush(stdout);
    }
  }
  printf("%lu files\n", files);
  for (int i = 0; i < STATUSES; i++)
    if (seen[i])
      printf("%10lu  %s\n", seen[i], i == TOO_LARGE ? "more than 256 MiB of memory" : i ? fw_error(i) : "a model");
  for (int i = 0; i < count; i++) free(honest[i].bytes);
  free(honest);
  return 0;
}

static int answers(void) {
  uint8_t head[4];
  while (fread(head, 1, 4, stdin) == 4) {
    size_t length = fw__u32(head), values;
    uint8_t *bytes = copy(NULL, length);
    float *logits;
    if (fread(bytes, 1, length, stdin) != length) return 2;
    int status = answer(bytes, length, texts[0], &logits, &values);
    printf("%d", status);
    for (size_t i = 0; !status && i < values; i++) printf(" %.9g", (double)logits[i]);
    putchar('\n');
    free(logits);
    free(bytes);
  }
  return 0;
}

int main(int count, char **words) {
  if (count == 2 && !strcmp(words[1], "answers")) return answers();
  if (count > 4 && !strcmp(words[1], "loop"))
    return loop(atof(words[2]), (uint64_t)atoll(words[3]), count - 4, words + 4);
  fprintf(stderr, "usage: fuzz loop SECONDS SEED FILE... | fuzz answers < STREAM\n");
  return 2;
}
#endif
