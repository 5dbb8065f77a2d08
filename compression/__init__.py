"""What the project is for: students, their embeddings, distillation, pruning and quantization."""
