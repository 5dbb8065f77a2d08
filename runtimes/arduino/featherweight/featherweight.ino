// A packed student on a board with 64 KB of memory or more: send a line over the serial port, and it answers with a
// label and its probability. `make -C runtimes/arduino` puts featherweight.h and model.h into this folder.
#include "featherweight.h"
#include "model.h"

static uint8_t memory[52 * 1024] __attribute__((aligned(8)));  // the decoded model, followed by the workspace
static fw_model model;
static float probabilities[16];
static char line[512];
static size_t length, used;

static void stopOn(int status) {
  if (status == FW_OK) return;
  Serial.print("error: ");
  Serial.println(fw_error(status));
  for (;;) delay(1000);
}

void setup() {
  Serial.begin(115200);
  while (!Serial) delay(10);
  stopOn(fw_open(&model, featherweight_model, sizeof featherweight_model));
  stopOn(fw_load(&model, memory, sizeof memory));
  stopOn(model.labels && model.outputs <= 16 ? FW_OK : FW_LIMIT);
  used = fw_used(&model);
  fw_start(memory + used, sizeof memory - used);
}

void loop() {
  int byte = Serial.read();
  if (byte < 0 || byte == '\r') return;
  if (byte != '\n') {
    if (length < sizeof line) line[length++] = (char)byte;
    return;
  }
  int status = fw_predict(&model, line, length, NULL, 0, memory + used, sizeof memory - used, probabilities);
  length = 0;
  if (status != FW_OK) {
    Serial.println(fw_error(status));
    return;
  }
  uint32_t best = fw_best(probabilities, model.outputs);
  size_t bytes = 0;
  const char *label = fw_label(&model, best, &bytes);
  if (model.rejects && probabilities[best] < model.threshold) Serial.print("none of these");
  else Serial.write((const uint8_t *)label, bytes);
  Serial.print(" ");
  Serial.println(probabilities[best], 6);
}
