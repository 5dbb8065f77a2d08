/* Startup code of a Cortex-M4F, and input and output by semihosting, through a debugger or QEMU. */
#include "board.h"

extern uint32_t stack_low[], stack_high[], data_start[], data_end[], bss_start[], bss_end[];
extern const uint32_t data_source[];
int main(void);

enum { OPEN = 1, WRITE0 = 4, READ = 6, EXIT = 0x18, PAINT = 0x57ACC057 };

static uint32_t ask_host(uint32_t operation, const void *argument) {
  register uint32_t number __asm__("r0") = operation;
  register const void *at __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xAB" : "+r"(number) : "r"(at) : "memory");
  return number;
}

void print(const char *text) { ask_host(WRITE0, text); }

void stop(int failed) {
  ask_host(EXIT, (const void *)(failed ? 0x20024u : 0x20026u)); /* run-time error; application exit */
  for (;;) continue;
}

int next_byte(void) {
  static uint32_t input;
  uint8_t byte;
  if (!input) {
    static const struct {
      const char *name;
      uint32_t mode, length;
    } terminal = {":tt", 0, 3};
    input = ask_host(OPEN, &terminal);
  }
  const struct {
    uint32_t file;
    void *to;
    uint32_t count;
  } block = {input, &byte, 1};
  return ask_host(READ, &block) ? -1 : byte; /* it returns the number of bytes not read */
}

uint32_t stack_used(void) {
  const uint32_t *at = stack_low;
  while (at < stack_high && *at == PAINT) at++;
  return (uint32_t)((const uint8_t *)stack_high - (const uint8_t *)at);
}

#define SYSTICK ((volatile uint32_t *)0xE000E010) /* control, reload, value */

uint32_t ticks(void) { return 0xFFFFFF - SYSTICK[2]; }

void reset(void) {
  uint32_t *at, *here = (uint32_t *)__builtin_frame_address(0);
  const uint32_t *from = data_source;
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the floating-point unit is off after a reset */
  __asm__ volatile("dsb\n isb");
  for (at = stack_low; at < here - 16; at++) *at = PAINT;
  for (at = data_start; at < data_end;) *at++ = *from++;
  for (at = bss_start; at < bss_end;) *at++ = 0;
  SYSTICK[1] = 0xFFFFFF;
  SYSTICK[2] = 0;
  SYSTICK[0] = 5; /* counts the processor's clock down, without interrupts */
  stop(main());
}

static void fault(void) {
  print("error: a fault of the processor\n");
  stop(1);
}

typedef void (*Handler)(void);

__attribute__((section(".vectors"), used)) static const Handler vectors[16] = {
    (Handler)stack_high, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault};
