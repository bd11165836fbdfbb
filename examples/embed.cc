// Completes a text with the model in a folder and streams the answer: embed FOLDER TEXT
#include <cstdio>
#include <exception>

#include "backends/cpu/cpu_backend.h"
#include "generation/text_generator.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: embed FOLDER TEXT\n"), 2;
  try {
    const auto backend = lapidary::LoadCpuBackend(argv[1], {}, {});
    lapidary::TextGenerator generator(argv[1], *backend, {.max_context = 1024});
    generator.Generate(argv[2], {.max_new_tokens = 32}, [](std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      return std::fflush(stdout) == 0;
    });
    std::puts("");
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "embed: %s\n", error.what()), 1;
  }
}
