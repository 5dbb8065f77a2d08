/* fwt: the command line of a packed student, similar to fastText's. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FEATHERWEIGHT_IMPLEMENTATION
#include "featherweight.h"

static const char usage[] =
    "usage: fwt COMMAND MODEL [FILE] [K]\n"
    "\n"
    "  predict       print the label of each line of FILE, or the K most probable ones; of a regression the score\n"
    "  predict-prob  the same, with a probability behind each label\n"
    "  test          score lines that begin with their label and a tab, or with __label__LABEL and a space\n"
    "  tag           print each word and its label, and an empty line after each text\n"
    "  bench         time all lines of FILE: CPU seconds, the best of five passes\n"
    "  info          print what the model is\n"
    "  embed         print the packed file as an array of C, for programs that read no files\n"
    "\n"
    "MODEL is a packed file (.fwt). FILE is UTF-8, a text a line; without it, or with -, lines of standard input are "
    "read.\n"
    "A model of pairs reads two texts a line, with a tab between them. A model of several labels a text prints those "
    "with a\n"
    "probability of at least 0.5, joined by |, or \"none of these\", as a model does whose texts may have no label.\n";

static void die(const char *where, const char *what) {
  fflush(stdout);
  fprintf(stderr, "error: %s%s%s\n", where, *where ? ": " : "", what);
  exit(2);
}

static void *room(size_t size) {
  void *memory = malloc(size ? size : 1);
  if (!memory) die("", "out of memory");
  return memory;
}

/* A model, its workspace, its labels and the line that is read. */
typedef struct {
  fw_model model;
  const char **labels;
  size_t *lengths;
  void *workspace;
  unsigned char *bytes; /* the packed file */
  size_t size, workspace_size;
  unsigned long answered;
  float *values;
  FILE *in;
  const char *file;
  char *line;
  size_t capacity, number;
} Session;

static void open_model(Session *s, const char *path) {
  FILE *file = fopen(path, "rb");
  size_t length = 0, capacity = 1 << 16, got;
  unsigned char *bytes = room(capacity);
  /* A name of the zoo has no dot. */
  if (!file) die(path, strchr(path, '.') ? "cannot be opened" : "cannot be opened; models of the zoo are zoo/NAME.fwt");
  while ((got = fread(bytes + length, 1, capacity - length, file)) > 0) {
    length += got;
    if (length == capacity && !(bytes = realloc(bytes, capacity *= 2))) die("", "out of memory");
    if (length > (size_t)1 << 27) die(path, "larger than any packed student");
  }
  if (ferror(file)) die(path, "cannot be read");
  fclose(file);
  int status = fw_open(&s->model, bytes, length);
  if (!status) {
    size_t size = fw_memory_size(&s->model);
    status = fw_load(&s->model, room(size), size);
  }
  if (status) die(path, fw_error(status));
  s->bytes = bytes;
  s->size = length;
  s->labels = room(s->model.labels * sizeof *s->labels);
  s->lengths = room(s->model.labels * sizeof *s->lengths);
  for (uint32_t i = 0; i < s->model.labels; i++) s->labels[i] = fw_label(&s->model, i, &s->lengths[i]);
  s->values = room(s->model.outputs * sizeof *s->values);
  s->workspace_size = 1 << 17;
  s->workspace = room(s->workspace_size);
  fw_start(s->workspace, s->workspace_size);
}

static void new_workspace(Session *s, size_t size) {
  free(s->workspace);
  s->workspace = room(s->workspace_size = size);
  fw_start(s->workspace, size);
}

/* Double the workspace. Ends the program if that cannot help. */
static void larger_workspace(Session *s, size_t longest) {
  if (s->workspace_size >= fw_workspace_size(&s->model, longest)) die("", fw_error(FW_WORKSPACE));
  new_workspace(s, 2 * s->workspace_size);
}

static void wrong_line(const Session *s, const char *what) {
  char where[64];
  snprintf(where, sizeof where, "line %lu", (unsigned long)s->number);
  die(where, what);
}

/* Read the next line without its newline. Returns its length, or -1 after the last line. */
static long next_line(Session *s) {
  size_t length = 0;
#if defined(__unix__) || defined(__APPLE__)
  ssize_t got = getline(&s->line, &s->capacity, s->in);
  if (got >= 0) length = (size_t)got;
  int ended = got < 0;
#else
  int byte = EOF, ended = 1;
  while ((byte = getc(s->in)) != EOF) {
    ended = 0;
    if (length + 1 >= s->capacity && !(s->line = realloc(s->line, s->capacity = 2 * s->capacity + 256)))
      die("", "out of memory");
    s->line[length++] = (char)byte;
    if (byte == '\n') break;
  }
#endif
  if (ended) {
    if (ferror(s->in)) die(s->file, "cannot be read");
    return -1;
  }
  if (!s->number++ && length >= 3 && !memcmp(s->line, "\xef\xbb\xbf", 3)) memmove(s->line, s->line + 3, length -= 3);
  if (length && s->line[length - 1] == '\n') length--;
  return (long)length;
}

/* Write a text's probabilities. */
static void answer(Session *s, const char *text, size_t length) {
  const char *second = NULL;
  size_t second_length = 0;
  int status;
  /* Half of a workspace is a cache of words; a larger one takes time to set up, and only pays off for many texts. */
  if (s->answered++ == 100 && s->workspace_size < 1 << 22) new_workspace(s, 1 << 22);
  if (s->model.pair) {
    const char *tab = memchr(text, '\t', length);
    if (!tab || memchr(tab + 1, '\t', length - (size_t)(tab + 1 - text)))
      wrong_line(s, "two texts with a tab between them are read");
    second = tab + 1;
    second_length = length - (size_t)(second - text);
    length = (size_t)(tab - text);
  }
  while ((status = fw_predict(&s->model, text, length, second, second_length, s->workspace, s->workspace_size,
                              s->values)) == FW_WORKSPACE)
    larger_workspace(s, length > second_length ? length : second_length);
  if (status) wrong_line(s, fw_error(status));
}

static void print_label(const Session *s, uint32_t label) { fwrite(s->labels[label], 1, s->lengths[label], stdout); }

static void print_answer(Session *s, unsigned long most, int probabilities) {
  const fw_model *m = &s->model;
  uint32_t printed = 0;
  if (!m->labels) {
    printf("%.6f\n", (double)s->values[0]);
    return;
  }
  if (m->multilabel) {
    for (uint32_t i = 0; i < m->labels; i++) {
      if (s->values[i] < 0.5f) continue;
      if (printed++) putchar(probabilities ? ' ' : '|');
      print_label(s, i);
      if (probabilities) printf(" %.6f", (double)s->values[i]);
    }
    puts(printed ? "" : "none of these");
    return;
  }
  if (m->rejects && s->values[fw_best(s->values, m->labels)] < m->threshold) {
    puts("none of these");
    return;
  }
  for (; printed < most && printed < m->labels; printed++) {
    uint32_t best = fw_best(s->values, m->labels);
    if (printed) putchar(' ');
    print_label(s, best);
    if (probabilities) printf(" %.6f", (double)s->values[best]);
    s->values[best] = -1;
  }
  putchar('\n');
}

static void predict(Session *s, unsigned long most, int probabilities) {
  long length;
  if (s->model.tags)
    die(probabilities ? "predict-prob" : "predict", "is for models that answer whole texts; see fwt tag");
  while ((length = next_line(s)) >= 0) {
    answer(s, s->line, (size_t)length);
    print_answer(s, most, probabilities);
  }
}

/* Skip a line's label. Returns its index. */
static uint32_t label_of(const Session *s, const char **text, const char *end) {
  static const char prefix[] = "__label__";
  const char *start = *text, *stop;
  size_t marked = sizeof prefix - 1;
  int is_marked = (size_t)(end - start) > marked && !memcmp(start, prefix, marked);
  if (is_marked) start += marked;
  for (stop = start; stop < end && *stop != '\t' && !(is_marked && *stop == ' ');) stop++;
  *text = stop < end ? stop + 1 : end;
  for (uint32_t i = 0; i < s->model.labels; i++)
    if (s->lengths[i] == (size_t)(stop - start) && !memcmp(s->labels[i], start, s->lengths[i])) return i;
  wrong_line(s, "it does not begin with one of the model's labels and a tab");
  return 0;
}

static void test(Session *s) {
  unsigned long right = 0, rows = 0;
  long length;
  if (!s->model.labels || s->model.multilabel || s->model.tags)
    die("test", "is for models that choose one label a text");
  while ((length = next_line(s)) >= 0) {
    const char *text = s->line, *end = s->line + length;
    uint32_t label = label_of(s, &text, end);
    answer(s, text, (size_t)(end - text));
    right += fw_best(s->values, s->model.labels) == label;
    rows++;
  }
  printf("N\t%lu\nP@1\t%.6f\n", rows, rows ? (double)right / (double)rows : 0.0);
}

static void tag(Session *s) {
  fw_word *words = NULL;
  size_t most = 0, count;
  long length;
  if (!s->model.tags) die("tag", "is for models that label words");
  while ((length = next_line(s)) >= 0) {
    int status = FW_LIMIT;
    if ((size_t)length / 2 + 1 > most) {
      free(words);
      words = room((most = (size_t)length + 64) * sizeof *words);
    }
    while ((status = fw_tag(&s->model, s->line, (size_t)length, s->workspace, s->workspace_size, words, most, &count,
                            NULL)) == FW_WORKSPACE)
      larger_workspace(s, (size_t)length);
    if (status) wrong_line(s, fw_error(status));
    for (size_t i = 0; i < count && words[i].length; i++) {
      fwrite(s->line + words[i].start, 1, words[i].length, stdout);
      putchar('\t');
      print_label(s, words[i].label);
      putchar('\n');
    }
    putchar('\n');
  }
  free(words);
}

static void bench(Session *s) {
  size_t used = 0, capacity = 1 << 20, rows = 0, most = 1 << 10, *ends = room(most * sizeof *ends);
  char *text = room(capacity);
  double best = 0;
  long length;
  while ((length = next_line(s)) >= 0) {
    while (used + (size_t)length > capacity)
      if (!(text = realloc(text, capacity *= 2))) die("", "out of memory");
    if (rows == most && !(ends = realloc(ends, (most *= 2) * sizeof *ends))) die("", "out of memory");
    memcpy(text + used, s->line, (size_t)length);
    ends[rows++] = used += (size_t)length;
  }
  if (s->model.tags) die("bench", "is for models that answer whole texts");
  for (int pass = 0; pass < 6; pass++) { /* the first pass is a warm-up */
    clock_t started = clock();
    for (size_t row = 0; row < rows; row++)
      answer(s, text + (row ? ends[row - 1] : 0), ends[row] - (row ? ends[row - 1] : 0));
    double seconds = (double)(clock() - started) / CLOCKS_PER_SEC;
    if (pass && (pass == 1 || seconds < best)) best = seconds;
  }
  printf("texts\t%lu\nseconds\t%.6f\ntexts a second\t%.0f\n", (unsigned long)rows, best,
         best > 0 ? (double)rows / best : 0.0);
  free(text);
  free(ends);
}

static void info(const Session *s) {
  static const char *const archs[] = {"ffn", "rnn", "bilstm", "conv", "transformer", "recursive", "gru"};
  static const char *const embeddings[] = {"bpe", "hash", "char", "wordpiece"};
  const fw_model *m = &s->model;
  printf("name\t%.*s\ntask\t%.*s\n", (int)m->name.length, (const char *)m->name.bytes, (int)m->task.length,
         (const char *)m->task.bytes);
  printf("reads\t%s\nanswers\t%s\n", m->pair ? "pairs of texts" : "texts",
         !m->labels      ? "a score"
         : m->tags       ? "a label for each word"
         : m->multilabel ? "any number of labels"
         : m->rejects    ? "a label, or none of these"
                         : "a label");
  printf("labels\t");
  for (uint32_t i = 0; i < m->labels; i++) {
    if (i) putchar(' ');
    print_label(s, i);
  }
  printf("\nencoder\t%s\nembedding\t%s\ntokens of a text\t%lu\n", archs[m->arch], embeddings[m->embedding],
         (unsigned long)m->max_tokens);
  printf("temperature\t%.6f\n", (double)m->temperature);
  if (m->threshold >= 0) printf("threshold\t%.6f\n", (double)m->threshold);
  printf("bytes of the file\t%lu\n", (unsigned long)s->size);
  printf("bytes in memory\t%lu\nbytes to decode it\t%lu\n", (unsigned long)fw_used(m),
         (unsigned long)fw_needed(m));
  printf("bytes of a workspace\t%lu for a text of 1,000 bytes\nUnicode\t%s\n",
         (unsigned long)fw_workspace_size(m, 1000), fw_unicode());
}

static void embed(const Session *s) {
  printf("static const unsigned char featherweight_model[%lu] = {", (unsigned long)s->size);
  for (size_t i = 0; i < s->size; i++) printf("%s%d,", i % 24 ? "" : "\n    ", s->bytes[i]);
  printf("\n};\n");
}

int main(int count, char **words) {
  static Session s;
  if (count < 2 || !strcmp(words[1], "-h") || !strcmp(words[1], "--help") || !strcmp(words[1], "help")) {
    fputs(usage, count < 2 ? stderr : stdout);
    return count < 2 ? 2 : 0;
  }
  const char *command = words[1], *known[] = {"predict", "predict-prob", "test", "tag", "bench", "info", "embed"};
  int found = -1;
  for (int i = 0; i < 7; i++)
    if (!strcmp(command, known[i])) found = i;
  if (found < 0) die(command, "no such command; fwt --help lists them");
  if (count < 3) die(command, "give a packed file (.fwt)");
  if (count > (found < 2 ? 5 : found > 4 ? 3 : 4))
    die(words[count - 1], "more than the command takes; see fwt --help");
  char *end = NULL;
  unsigned long most = count > 4 ? strtoul(words[4], &end, 10) : 1;
  if (!most || (end && (*end || words[4][0] < '0' || words[4][0] > '9'))) die(words[4], "not a number of labels");
  open_model(&s, words[2]);
  s.file = count > 3 && strcmp(words[3], "-") ? words[3] : "standard input";
  s.in = stdin;
  if (found < 5 && count > 3 && strcmp(words[3], "-") && !(s.in = fopen(words[3], "rb")))
    die(words[3], "cannot be opened");
  if (found < 2) predict(&s, most, found);
  else if (found == 2) test(&s);
  else if (found == 3) tag(&s);
  else if (found == 4) bench(&s);
  else if (found == 5) info(&s);
  else embed(&s);
  if (fflush(stdout) || ferror(stdout)) die("standard output", "cannot be written");
  return 0;
}
