/* A packed student on a microcontroller: the file stays in flash, is decoded into `memory` once, and each line of
standard input gets a prediction. The decoded model is at the front of `memory`; the rest of it is the workspace. */
#include "board.h"

#define FEATHERWEIGHT_IMPLEMENTATION
#include "../c/featherweight.h"

#ifndef MEMORY
#define MEMORY (52 * 1024)
#endif
enum { LONGEST = 512, MOST_LABELS = 64 };

extern const uint8_t model_start[], model_end[];
static uint8_t memory[MEMORY] __attribute__((aligned(8)));
static fw_model model;
static char line[LONGEST];
static float probabilities[MOST_LABELS];

static void print_number(uint64_t number) {
  char digits[21], *at = digits + sizeof digits - 1;
  *at = 0;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  print(at);
}

static void print_figure(const char *name, uint64_t number) {
  print(name);
  print_number(number);
  print("\n");
}

/* Print the most probable label and its probability, with six decimals. */
static void print_answer(void) {
  uint32_t label = fw_best(probabilities, model.outputs);
  size_t length = 0;
  char text[80], digits[] = "\t0.000000\n";
  const char *bytes = fw_label(&model, label, &length);
  if (model.rejects && probabilities[label] < model.threshold) bytes = "none of these", length = 13;
  if (length >= sizeof text) length = sizeof text - 1;
  memcpy(text, bytes, length);
  text[length] = 0;
  uint32_t millionths = (uint32_t)(probabilities[label] * 1e6f + 0.5f);
  for (int i = 8; i > 2; i--, millionths /= 10) digits[i] = (char)('0' + millionths % 10);
  digits[1] = (char)('0' + millionths);
  print(text);
  print(digits);
}

/* Read a line into `line`. Returns its length, -1 at the end of the input, LONGEST if it is too long. */
static int next_line(void) {
  int length = 0, byte;
  while ((byte = next_byte()) >= 0 && byte != '\n')
    if (length < LONGEST) line[length++] = (char)byte;
  return byte < 0 && !length ? -1 : length;
}

static int failed(int status) {
  print("error: ");
  print(fw_error(status));
  if (status == FW_MEMORY) print_figure(": make MEMORY=BYTES; enough to decode it are ", fw_needed(&model));
  else print("\n");
  return 1;
}

int main(void) {
  uint32_t start = ticks();
  int status = fw_open(&model, model_start, (size_t)(model_end - model_start)), length;
  if (!status) status = fw_load(&model, memory, sizeof memory);
  if (!status && (model.pair || model.tags || !model.labels || model.outputs > MOST_LABELS)) status = FW_KIND;
  if (status) return failed(status);
  print_figure("ticks to decode\t", (ticks() - start) & 0xFFFFFF);
  size_t used = fw_used(&model), size = sizeof memory - used, lines = 0;
  uint64_t all = 0;
  fw_start(memory + used, size);
  while ((length = next_line()) >= 0) {
    start = ticks();
    status = length == LONGEST ? FW_WORKSPACE
                               : fw_predict(&model, line, (size_t)length, NULL, 0, memory + used, size, probabilities);
    all += (ticks() - start) & 0xFFFFFF;
    if (status) return failed(status);
    print_answer();
    lines++;
  }
  if (lines) print_figure("ticks of a line\t", all / lines);
  print_figure("bytes of the model in memory\t", used);
  print_figure("bytes to decode it\t", fw_needed(&model));
  print_figure("bytes of stack\t", stack_used());
  return 0;
}
