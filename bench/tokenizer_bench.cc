// Tokenizer: load, encode and decode with a tokenizer of the real size. `--benchmark_filter=...` picks.
// The folder with the tokenizer.json is $LAPIDARY_SHARED/tokenizer/gemma4, or ../shared/tokenizer/gemma4 seen from
// here.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace lapidary {
namespace {

std::string TokenizerPath() {
  const char* shared = std::getenv("LAPIDARY_SHARED");
  const std::filesystem::path folder = shared != nullptr ? shared : "../shared";
  return (folder / "tokenizer/gemma4/tokenizer.json").string();
}

const Tokenizer* RealTokenizer(benchmark::State& state) {
  static const Tokenizer* const tokenizer =
      std::filesystem::exists(TokenizerPath()) ? new Tokenizer(Tokenizer::Load(TokenizerPath())) : nullptr;
  if (tokenizer == nullptr) state.SkipWithError("no tokenizer.json of the real size");
  return tokenizer;
}

// Sentences of common words, plus now and then a made-up one, a number or a line break: plain text with a long tail.
std::string PlainText(size_t bytes) {
  constexpr std::array kWords = {"the",      "of",         "and",      "in",         "to",      "was",
                                 "river",    "city",       "which",    "history",    "from",    "between",
                                 "language", "government", "small",    "after",      "people",  "their",
                                 "many",     "mountain",   "built",    "century",    "because", "different",
                                 "question", "however",    "children", "understand", "morning", "machine"};
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) {
    const unsigned roll = random() % 100;
    if (roll < 8) {
      for (unsigned n = 3 + random() % 8; n > 0; --n) text += static_cast<char>('a' + random() % 26);
    } else if (roll < 11) {
      text += std::to_string(random() % 3000);
    } else {
      text += kWords[random() % kWords.size()];
    }
    text += roll % 13 == 0 ? ". " : roll % 11 == 0 ? ",\n" : " ";
  }
  text.resize(bytes);
  return text;
}

// Like PlainText, but every word is made up, so no word comes twice.
std::string RareText(size_t bytes) {
  std::mt19937 random(11);
  std::string text;
  while (text.size() < bytes) {
    for (unsigned n = 2 + random() % 9; n > 0; --n) text += static_cast<char>('a' + random() % 26);
    text += ' ';
  }
  text.resize(bytes);
  return text;
}

void Encode(benchmark::State& state, const std::string& text) {
  const Tokenizer* tokenizer = RealTokenizer(state);
  if (tokenizer == nullptr) return;
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Encode(text));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(text.size()));
}

void BM_Load(benchmark::State& state) {
  if (RealTokenizer(state) == nullptr) return;
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Load(TokenizerPath()).size());
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

void BM_EncodePlainText(benchmark::State& state) { Encode(state, PlainText(static_cast<size_t>(state.range(0)))); }
BENCHMARK(BM_EncodePlainText)->Arg(200)->Arg(20'000)->Arg(5'000'000)->Unit(benchmark::kMicrosecond);

void BM_EncodeRareText(benchmark::State& state) { Encode(state, RareText(static_cast<size_t>(state.range(0)))); }
BENCHMARK(BM_EncodeRareText)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void BM_EncodeOneLetter(benchmark::State& state) {
  Encode(state, std::string(static_cast<size_t>(state.range(0)), 'a'));
}
BENCHMARK(BM_EncodeOneLetter)->Arg(200'000)->Arg(2'000'000)->Unit(benchmark::kMillisecond);

void BM_Decode(benchmark::State& state) {
  const Tokenizer* tokenizer = RealTokenizer(state);
  if (tokenizer == nullptr) return;
  const std::vector<int32_t> ids = tokenizer->Encode(PlainText(1'000'000));
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Decode(ids));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * 1'000'000);
}
BENCHMARK(BM_Decode)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lapidary
