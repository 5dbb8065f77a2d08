/* The packed file, in flash as it is. */
  .section .model, "a"
  .balign 4
  .global model_start, model_end
model_start:
  .incbin MODEL
model_end:
