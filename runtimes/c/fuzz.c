/* Fuzzer: a damaged packed file must not cause reads or writes out of bounds, or undefined behaviour.

    make sanitizers
    ./fuzz loop SECONDS SEED FILE...     mutate these files; print how many were models, and why others were rejected
    ./fuzz answers < STREAM              read unchanged files, each after its length in four bytes; print their answers
    ./fuzz inputs FILE...                read inputs, a packed file and a text behind it, in less and less memory

With clang's libFuzzer, which looks for inputs that run new code:

    make guided
    ./guided -max_len=4096 FOLDER ../../tests/runtime/corpus */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FEATHERWEIGHT_IMPLEMENTATION
#include "featherweight.h"

enum { STATUSES = FW_LARGE_VOCABULARY + 2, TOO_LARGE = FW_LARGE_VOCABULARY + 1 };
#ifdef FW_LIBFUZZER
static const size_t most_memory = (size_t)2 << 20; /* larger models are no other code, and take longer */
#else
static const size_t most_memory = (size_t)256 << 20;
#endif
static size_t smaller = 1; /* memory is as many times smaller than can be needed */

/* Return a copy of exactly this length, so that the sanitizers detect accesses beyond it. */
static void *copy(const void *bytes, size_t length) {
  void *memory = malloc(length ? length : 1);
  if (!memory) abort();
  if (bytes) memcpy(memory, bytes, length);
  return memory;
}

/* End the program if a text has other logits among parts of it than alone, for a recurrent encoder. */
static void check_many(const fw_model *model, const char *text, size_t length, void *workspace, size_t size,
                       const float *alone) {
  enum { COUNT = 40 };
  size_t ends[COUNT], done = 0, of_logits = model->outputs * sizeof *alone;
  if (model->pair || !fw__is_recurrent(model)) return; /* a bag adds up a cached word in another order */
  char *texts = copy(NULL, COUNT * length);
  float *logits = copy(NULL, COUNT * of_logits);
  for (size_t i = 0, at = 0; i < COUNT; i++) { /* from the whole text to its first bytes, which may not be UTF-8 */
    size_t of_part = i % 3 ? length / (1 + i) : length;
    memcpy(texts + at, text, of_part);
    ends[i] = at += of_part;
  }
  fw_many(model, texts, ends, COUNT, workspace, size, logits, &done);
  for (size_t i = 0; i < done; i += 3)
    if (memcmp(logits + i * model->outputs, alone, of_logits)) abort();
  free(texts);
  free(logits);
}

/* Return a file's status; writes its logits for a text to *logits, to be freed, and their number to *count. */
static int answer(const uint8_t *bytes, size_t length, const char *text, size_t of_text, float **logits,
                  size_t *count) {
  fw_model model;
  void *file = copy(bytes, length);
  int status = fw_open(&model, file, length);
  size_t size = status ? 0 : fw_memory_size(&model);
  *logits = NULL;
  *count = 0;
  if (!status && size > most_memory) status = TOO_LARGE;
  if (status) return free(file), status;
  void *memory = copy(NULL, size);
  if (smaller > 1) fw_load(&(fw_model){0}, memory, size), fw_load(&model, memory, size / smaller);
  status = fw_load(&model, memory, size);
  if (!status) { /* load it again, with exactly as much memory as it has just needed */
    free(memory);
    memory = copy(NULL, fw_needed(&model));
    if (fw_needed(&model) > size || fw_load(&model, memory, fw_needed(&model))) abort();
  }
  free(file);
  size = status ? 0 : fw_workspace_size(&model, of_text) / smaller;
  if (!status && size > most_memory) status = TOO_LARGE;
  if (!status) {
    void *workspace = copy(NULL, size);
    size_t words = of_text / 2 + 1;
    char *exact = copy(text, of_text);
    fw_start(workspace, size);
    *logits = copy(NULL, model.outputs * words * sizeof **logits);
    if (model.tags) {
      fw_word *tagged = copy(NULL, words * sizeof *tagged);
      status = fw_tag(&model, exact, of_text, workspace, size, tagged, words, count, *logits);
      *count *= model.outputs;
      for (uint32_t i = 0; i < model.labels && i < 3; i++) {
        size_t of_label;
        const char *label = fw_label(&model, i, &of_label);
        free(copy(label, of_label));
      }
      free(tagged);
    } else {
      size_t skipped = of_text < 2 ? of_text : 2; /* texts of a pair share some tokens */
      status = fw_logits(&model, exact, of_text, model.pair ? exact + skipped : NULL, of_text - skipped, workspace,
                         size, *logits);
      *count = model.outputs;
      if (!status) check_many(&model, exact, of_text, workspace, size, *logits);
    }
    free(exact);
    free(workspace);
  }
  free(memory);
  return status;
}

/* Return the length of the file at the beginning of an input. */
static size_t length_of_file(const uint8_t *bytes, size_t length) {
  size_t stated = length < 16 ? length : fw__u32(bytes + 4);
  return stated < 16 || stated > length ? length : stated;
}

/* Read an input: a file, and a text behind it. Ends the program for an answer that no file may have. */
static void try_input(const uint8_t *bytes, size_t length) {
  float *logits;
  size_t count, file = length_of_file(bytes, length);
  int status = answer(bytes, file, (const char *)bytes + file, length - file, &logits, &count);
  if (status == FW_WORKSPACE && smaller == 1) abort();
  for (size_t i = 0; !status && i < count; i++)
    if (!(logits[i] - logits[i] == 0)) abort();
  free(logits);
}

static uint64_t state;

static uint32_t below(uint32_t limit) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)((state * 0x2545F4914F6CDD1Du >> 32) % (limit ? limit : 1));
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

/* Write the length and the checksum of a file. */
static void seal(uint8_t *file, size_t length) {
  for (int i = 0; i < 4; i++) file[4 + i] = (uint8_t)(length >> 8 * i);
  uint32_t crc = fw__crc(file, length - 4);
  for (int i = 0; i < 4; i++) file[length - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

#ifdef FW_LIBFUZZER
enum { MOST_PART = 1 << 16 };
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t length, size_t most);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  smaller = length % 3 ? 1 : 1 + length % 64; /* one text in three may not fit */
  try_input(bytes, length);
  return 0;
}

/* Change the header of an input's file, what follows it, or the text, and correct the length and the checksum; or any
 * byte. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length, size_t most, unsigned seed) {
  static uint8_t parts[3][MOST_PART];
  size_t file = length_of_file(bytes, length), at = 8, lengths[3];
  state = seed * 0x9E3779B97F4A7C15u + 88172645463325252u;
  fw__reader r = {bytes, 8, file < 12 ? 8 : file - 4, NULL, 0};
  uint32_t stored = fw__number(&r, FW__MOST_VALUES), size = fw__number(&r, FW__MOST_VALUES), choice = below(32);
  const uint8_t *header = fw__take(&r, stored);
  if (r.error || !choice || length > MOST_PART / 2) return LLVMFuzzerMutate(bytes, length, most);
  lengths[0] = stored;
  lengths[1] = r.end - r.at;
  lengths[2] = length - file;
  memcpy(parts[0], header, lengths[0]);
  memcpy(parts[1], bytes + r.at, lengths[1]);
  memcpy(parts[2], bytes + file, lengths[2]);
  int part = choice < 18 ? 0 : choice < 24 ? 1 : 2;
  lengths[part] = choice % 2 && part < 2 ? changed(parts[part], lengths[part], MOST_PART)
                                         : LLVMFuzzerMutate(parts[part], lengths[part], MOST_PART / 2);
  if (lengths[0] + lengths[1] + lengths[2] + 24 > most) return length;
  memcpy(bytes, "FWT\2", 4);
  at += put_number(bytes + at, lengths[0]);
  at += put_number(bytes + at, stored == size ? lengths[0] : size);
  memcpy(bytes + at, parts[0], lengths[0]);
  memcpy(bytes + at + lengths[0], parts[1], lengths[1]);
  at += lengths[0] + lengths[1] + 4;
  seal(bytes, at);
  memcpy(bytes + at, parts[2], lengths[2]);
  return at + lengths[2];
}
#else

static const char *const texts[] = {"A film, 2!", "Caf\xC3\xA9 na\xC3\xAFve \xE2\x82\xAC\xEF\xAC\x81 the films ", ""};

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
  seal(to, at);
  return where == 9 && below(4) == 0 ? changed(to, at, at) : at;
}

/* Write a file whose compressed header is damaged. */
static size_t damaged_deflate(const char *path, uint8_t *to) {
  FILE *in = fopen(path, "rb");
  size_t length = in ? fread(to, 1, 1 << 22, in) : 0;
  if (in) fclose(in);
  if (length < 32) return length;
  for (uint32_t i = 1 + below(3); i--;) to[12 + below(200) % (length - 16)] ^= (uint8_t)(1 << below(8));
  seal(to, length);
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
      const char *text = texts[below(3)];
      smaller = below(4) ? 1 : 1 + below(64);
      int status = answer(bytes, length, text, strlen(text), &logits, &values);
      if (status == FW_WORKSPACE && smaller == 1) {
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
    int status = answer(bytes, length, texts[0], strlen(texts[0]), &logits, &values);
    printf("%d", status);
    for (size_t i = 0; !status && i < values; i++) printf(" %.9g", (double)logits[i]);
    putchar('\n');
    free(logits);
    free(bytes);
  }
  return 0;
}

static int inputs(int count, char **paths) {
  static uint8_t bytes[1 << 16];
  for (int i = 0; i < count; i++) {
    FILE *in = fopen(paths[i], "rb");
    if (!in) return 2;
    size_t length = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    for (smaller = 1; smaller < 1 << 16; smaller += smaller / 8 + 1) try_input(bytes, length);
  }
  return 0;
}

int main(int count, char **words) {
  if (count == 2 && !strcmp(words[1], "answers")) return answers();
  if (count > 2 && !strcmp(words[1], "inputs")) return inputs(count - 2, words + 2);
  if (count > 4 && !strcmp(words[1], "loop"))
    return loop(atof(words[2]), (uint64_t)atoll(words[3]), count - 4, words + 4);
  fprintf(stderr, "usage: fuzz loop SECONDS SEED FILE... | fuzz answers < STREAM | fuzz inputs FILE...\n");
  return 2;
}
#endif
