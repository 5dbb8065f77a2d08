/* fwt: the command line of a packed student, similar to fastText's. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
#include <dirent.h>
#endif

#ifndef FW_ZOO
#define FW_ZOO "zoo" /* folder of packed files that are known by their names; make gives the repository's */
#endif

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
    "MODEL is a packed file (.fwt), or the name of one in the folder that FEATHERWEIGHT_ZOO names or in\n" FW_ZOO ".\n"
    "FILE is UTF-8, a text a line; without it, or with -, lines of standard input are read.\n"
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

enum { AT_ONCE = 256 }; /* lines of a file that are answered together */

/* A model, its workspace, its labels and the lines that are read. */
typedef struct {
  fw_model model;
  const char **labels;
  size_t *lengths;
  void *workspace;
  unsigned char *bytes; /* the packed file */
  size_t size, workspace_size;
  unsigned long answered;
  char *text; /* lines that wait for an answer, without what separates them, and where each of their texts ends */
  size_t used, text_size, *ends, rows, most_rows;
  float *values; /* [rows][outputs] */
  FILE *in;
  const char *file;
  char *line;
  size_t capacity, number;
} Session;

/* Return whether a text ends with .fwt, as names of packed files do. */
static int is_packed(const char *text) {
  size_t length = strlen(text);
  return length > 4 && !strcmp(text + length - 4, ".fwt");
}

#if defined(__unix__) || defined(__APPLE__)
static int is_listed(const struct dirent *entry) { return *entry->d_name != '.' && is_packed(entry->d_name); }

static void print_names(const char *folder) {
  struct dirent **entries;
  int count = scandir(folder, &entries, is_listed, alphasort);
  for (int i = 0; i < count; i++)
    fprintf(stderr, "%s %.*s", i ? "," : "", (int)strlen(entries[i]->d_name) - 4, entries[i]->d_name);
}
#else
static void print_names(const char *folder) { (void)folder; }
#endif

/* Open a packed file, given by its path or by its name in the zoo. */
static FILE *open_packed(const char *model) {
  const char *folders[] = {getenv("FEATHERWEIGHT_ZOO"), FW_ZOO};
  FILE *file = fopen(model, "rb");
  if (!file && (strchr(model, '/') || is_packed(model))) die(model, "cannot be opened");
  for (int i = 0; i < 2 && !file; i++) {
    if (!folders[i]) continue;
    char *path = room(strlen(folders[i]) + strlen(model) + 6);
    sprintf(path, "%s/%s.fwt", folders[i], model);
    file = fopen(path, "rb");
    free(path);
  }
  if (file) return file;
  fprintf(stderr, "error: %s: not a file, and not a model of the zoo", model);
  for (int i = 0; i < 2; i++) {
    if (!folders[i]) continue;
    fprintf(stderr, "; %s:", folders[i]);
    print_names(folders[i]);
  }
  fputc('\n', stderr);
  exit(2);
}

static void open_model(Session *s, const char *path) {
  FILE *file = open_packed(path);
  size_t length = 0, capacity = 1 << 16, got;
  unsigned char *bytes = room(capacity);
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
  s->text = room(s->text_size = 1 << 16);
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

/* Add a line to those that wait for an answer. */
static void add(Session *s, const char *text, size_t length) {
  const char *tab = s->model.pair ? memchr(text, '\t', length) : NULL;
  size_t first = tab ? (size_t)(tab - text) : length, second = tab ? length - first - 1 : 0, step = 1 + !!s->model.pair;
  if (s->model.pair && (!tab || memchr(tab + 1, '\t', second)))
    wrong_line(s, "two texts with a tab between them are read");
  while (s->used + length > s->text_size)
    if (!(s->text = realloc(s->text, s->text_size *= 2))) die("", "out of memory");
  if (s->rows == s->most_rows) {
    s->most_rows = 2 * s->most_rows + 1;
    s->ends = realloc(s->ends, s->most_rows * step * sizeof *s->ends);
    s->values = realloc(s->values, s->most_rows * s->model.outputs * sizeof *s->values);
    if (!s->ends || !s->values) die("", "out of memory");
  }
  memcpy(s->text + s->used, text, first);
  s->ends[s->rows * step] = s->used += first;
  if (tab) {
    memcpy(s->text + s->used, tab + 1, second);
    s->ends[s->rows * step + 1] = s->used += second;
  }
  s->rows++;
}

/* Return whether enough lines wait. Lines of standard input are answered one by one, and pairs are not faster together. */
static int are_enough(const Session *s) { return s->in == stdin || s->model.pair || s->rows >= AT_ONCE; }

/* Write the probabilities of the waiting lines. Returns the number of answered ones: all, or those before a wrong one. */
static size_t answer(Session *s, int *status) {
  size_t done = 0;
  /* Half of a workspace is a cache of words; a larger one takes time to set up, and only pays off for many texts. */
  if ((s->answered += s->rows) > 100 && s->workspace_size < 1 << 22) new_workspace(s, 1 << 22);
  while ((*status = fw_many(&s->model, s->text, s->ends, s->rows, s->workspace, s->workspace_size, s->values, &done)) ==
         FW_WORKSPACE)
    larger_workspace(s, s->used);
  for (size_t row = 0; row < done; row++) fw_probabilities(&s->model, s->values + row * s->model.outputs);
  return done;
}

/* Forget the waiting lines. Ends the program if one was not answered. */
static void end_lines(Session *s, size_t done, int status) {
  if (status) {
    s->number -= s->rows - done - 1; /* of the first line without an answer */
    wrong_line(s, fw_error(status));
  }
  s->rows = s->used = 0;
}

static void print_label(const Session *s, uint32_t label) { fwrite(s->labels[label], 1, s->lengths[label], stdout); }

static void print_answer(const Session *s, float *values, unsigned long most, int probabilities) {
  const fw_model *m = &s->model;
  uint32_t printed = 0;
  if (!m->labels) {
    printf("%.6f\n", (double)values[0]);
    return;
  }
  if (m->multilabel) {
    for (uint32_t i = 0; i < m->labels; i++) {
      if (values[i] < 0.5f) continue;
      if (printed++) putchar(probabilities ? ' ' : '|');
      print_label(s, i);
      if (probabilities) printf(" %.6f", (double)values[i]);
    }
    puts(printed ? "" : "none of these");
    return;
  }
  if (m->rejects && values[fw_best(values, m->labels)] < m->threshold) {
    puts("none of these");
    return;
  }
  for (; printed < most && printed < m->labels; printed++) {
    uint32_t best = fw_best(values, m->labels);
    if (printed) putchar(' ');
    print_label(s, best);
    if (probabilities) printf(" %.6f", (double)values[best]);
    values[best] = -1;
  }
  putchar('\n');
}

static void print_answers(Session *s, unsigned long most, int probabilities) {
  int status;
  size_t done = answer(s, &status);
  for (size_t row = 0; row < done; row++) print_answer(s, s->values + row * s->model.outputs, most, probabilities);
  end_lines(s, done, status);
}

static void predict(Session *s, unsigned long most, int probabilities) {
  long length;
  if (s->model.tags)
    die(probabilities ? "predict-prob" : "predict", "is for models that answer whole texts; see fwt tag");
  while ((length = next_line(s)) >= 0) {
    add(s, s->line, (size_t)length);
    if (are_enough(s)) print_answers(s, most, probabilities);
  }
  print_answers(s, most, probabilities);
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

/* Return how many of the waiting lines have their label as the most probable one. */
static size_t right_ones(Session *s, const uint32_t *labels) {
  int status;
  size_t done = answer(s, &status), right = 0;
  for (size_t row = 0; row < done; row++)
    right += fw_best(s->values + row * s->model.outputs, s->model.labels) == labels[row];
  end_lines(s, done, status);
  return right;
}

static void test(Session *s) {
  unsigned long right = 0;
  uint32_t labels[AT_ONCE];
  long length;
  if (!s->model.labels || s->model.multilabel || s->model.tags)
    die("test", "is for models that choose one label a text");
  while ((length = next_line(s)) >= 0) {
    const char *text = s->line, *end = s->line + length;
    labels[s->rows] = label_of(s, &text, end);
    add(s, text, (size_t)(end - text));
    if (are_enough(s)) right += right_ones(s, labels);
  }
  right += right_ones(s, labels);
  printf("N\t%lu\nP@1\t%.6f\n", s->answered, s->answered ? (double)right / (double)s->answered : 0.0);
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
  double best = 0;
  long length;
  if (s->model.tags) die("bench", "is for models that answer whole texts");
  while ((length = next_line(s)) >= 0) add(s, s->line, (size_t)length);
  for (int pass = 0; pass < 6; pass++) { /* the first pass is a warm-up */
    int status;
    clock_t started = clock();
    size_t done = answer(s, &status);
    double seconds = (double)(clock() - started) / CLOCKS_PER_SEC;
    if (status) end_lines(s, done, status);
    if (pass && (pass == 1 || seconds < best)) best = seconds;
  }
  printf("texts\t%lu\nseconds\t%.6f\ntexts a second\t%.0f\n", (unsigned long)s->rows, best,
         best > 0 ? (double)s->rows / best : 0.0);
}

static void info(const Session *s) {
  static const char *const archs[] = {"ffn", "rnn", "bilstm", "conv", "transformer", "recursive", "gru"};
  static const char *const embeddings[] = {"bpe", "hash", "char", "wordpiece"};
  const fw_model *m = &s->model;
  if (m->name.length) printf("name\t%.*s\n", (int)m->name.length, (const char *)m->name.bytes); /* of older files */
  printf("task\t%.*s\n", (int)m->task.length, (const char *)m->task.bytes);
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
  int chosen = -1;
  for (int i = 0; i < 7; i++)
    if (!strcmp(command, known[i])) chosen = i;
  if (chosen < 0) die(command, "no such command; fwt --help lists them");
  if (count < 3) die(command, "give a packed file (.fwt), or its name in the zoo");
  if (count > (chosen < 2 ? 5 : chosen > 4 ? 3 : 4))
    die(words[count - 1], "more than the command takes; see fwt --help");
  char *end = NULL;
  unsigned long most = count > 4 ? strtoul(words[4], &end, 10) : 1;
  if (!most || (end && (*end || words[4][0] < '0' || words[4][0] > '9'))) die(words[4], "not a number of labels");
  open_model(&s, words[2]);
  s.file = count > 3 && strcmp(words[3], "-") ? words[3] : "standard input";
  s.in = stdin;
  if (chosen < 5 && count > 3 && strcmp(words[3], "-") && !(s.in = fopen(words[3], "rb")))
    die(words[3], "cannot be opened");
  if (chosen < 2) predict(&s, most, chosen);
  else if (chosen == 2) test(&s);
  else if (chosen == 3) tag(&s);
  else if (chosen == 4) bench(&s);
  else if (chosen == 5) info(&s);
  else embed(&s);
  if (fflush(stdout) || ferror(stdout)) die("standard output", "cannot be written");
  return 0;
}
