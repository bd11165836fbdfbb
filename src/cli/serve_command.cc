#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/mapped_file.h"
#include "chat/chat_template.h"
#include "cli/command_line.h"
#include "cli/terminal.h"
#include "generation/text_service.h"
#include "server/server.h"

namespace lapidary {
namespace {

struct Options {
  ModelOptions model;
  ServerOptions server;
  TextServiceOptions service{.engine = {.max_sequences = 16}};
  std::vector<std::string> served_names, key_files;
  std::string speculate = "none", special_text = "protect";
  int64_t prefill_chunk = 0;
  bool no_prefix_cache = false, no_web = false;
  int64_t body_mb = 16, answer_s = 0, drain_s = 60, stall_s = 30, header_s = 10, keep_alive_ms = 5000, pace_ms = 20;
};

// Most tokens that the K/V cache has room for unless told: enough for many short chats, within a few gigabytes.
constexpr int64_t kCacheTokens = 262'144;

void AddAddressOptions(CLI::App& command, Options& o) {
  command
      .add_option("--host", o.server.host, "Address to listen on (default 127.0.0.1; 0.0.0.0: all of IPv4, ::: all)")
      ->type_name("ADDRESS");
  command.add_option("--port", o.server.port, "Port (default 8080); 0: a free one, which is printed")
      ->type_name("N")
      ->check(IntegerIn(0, 65535));
  command.add_option("--served-name", o.served_names, "What the model is called (default: its folder); repeatable")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command.add_option("--api-key", o.server.api_keys, "Only requests with this key are answered; repeatable")
      ->type_name("KEY")
      ->allow_extra_args(false);
  command
      .add_option("--api-key-file", o.key_files,
                  "File with a key on each line, which unlike --api-key nobody sees in ps")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.add_option("--cors-origin", o.server.allowed_origins, "Web pages of this origin may ask; *: all; repeatable")
      ->type_name("ORIGIN")
      ->allow_extra_args(false);
  command.add_flag("--no-web", o.no_web, "No web page at /");
}

void AddServiceOptions(CLI::App& command, Options& o) {
  command.add_option("--parallel", o.service.engine.max_sequences, "Answers computed at once (default 16)")
      ->type_name("N")
      ->check(IntegerIn(1, 4096));
  command.add_option("--queue", o.service.max_waiting, "Answers that wait at most (default 256); more get status 429")
      ->type_name("N")
      ->check(IntegerIn(0, 1 << 20));
  command
      .add_option(
          "--cache-tokens", o.service.engine.cache_tokens,
          "Tokens that the K/V cache has room for, all answers together (default: a context for each, up to 262144)")
      ->type_name("N")
      ->check(IntegerIn(1, std::numeric_limits<int32_t>::max()));
  command.add_flag("--no-prefix-cache", o.no_prefix_cache, "Compute every prompt whole");
  command.add_option("--speculate", o.speculate, "none, or ngram: drafts from the text so far; answers are the same")
      ->check(CLI::IsMember({"none", "ngram"}));
  command
      .add_option("--special-text", o.special_text,
                  "Special tokens in what users say: protect (they are text) or match (as transformers does)")
      ->check(CLI::IsMember({"protect", "match"}));
  AddPrefillChunkOption(command, o.prefill_chunk);
}

void AddLimitOptions(CLI::App& command, Options& o) {
  const auto add = [&](const char* name, auto& value, const char* help, int64_t low, int64_t high) {
    command.add_option(name, value, help)->type_name("N")->check(IntegerIn(low, high));
  };
  constexpr int64_t kDay = 86'400;
  add("--max-connections", o.server.limits.connections, "Connections open at once (default 4096)", 1, 1 << 20);
  add("--max-body-mb", o.body_mb, "Largest request, MB (default 16)", 1, 1024);
  add("--header-timeout", o.header_s, "Seconds for a request's header (default 10)", 1, kDay);
  add("--stall-timeout", o.stall_s, "Seconds that a reader may take nothing (default 30)", 1, kDay);
  add("--answer-timeout", o.answer_s, "Seconds for a whole answer (default 0: no limit)", 0, kDay);
  add("--drain-timeout", o.drain_s, "Seconds that answers at hand get after a first SIGTERM or Ctrl-C (default 60)", 0,
      kDay);
  add("--keep-alive-ms", o.keep_alive_ms, "A stream that has nothing to say sends a comment this often (default 5000)",
      10, kDay * 1000);
  add("--stream-pace-ms", o.pace_ms, "What a stream says in this time goes in one write (default 20); 0: each step's",
      0, 10'000);
  add("--http-threads", o.server.threads, "Threads for HTTP (default 2)", 1, 64);
}

void ReadKeys(const std::string& file, std::vector<std::string>& keys) {
  const std::string text = ReadFile(file);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string key = text.substr(begin, end - begin);
    if (!key.empty() && key.back() == '\r') key.pop_back();
    if (!key.empty()) keys.push_back(std::move(key));
    begin = end + 1;
  }
}

// A key that is given and empty would let everybody in, or nobody.
std::vector<std::string> Keys(const Options& o) {
  std::vector<std::string> keys = o.server.api_keys;
  for (const std::string& file : o.key_files) {
    const size_t before = keys.size();
    ReadKeys(file, keys);
    if (keys.size() == before) Throw(ErrorKind::kInvalidArgument, file + ": found no API key, wanted at least one");
  }
  if (const char* key = std::getenv("LAPIDARY_API_KEY"); key && *key) keys.emplace_back(key);
  if (std::find(keys.begin(), keys.end(), "") != keys.end()) {
    Throw(ErrorKind::kInvalidArgument, "--api-key: found an empty key, wanted at least one character");
  }
  return keys;
}

std::string FolderName(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

ServerOptions MakeServerOptions(const Options& o, const TextModel& model) {
  ServerOptions server = o.server;
  server.api_keys = Keys(o);
  server.web_page = !o.no_web;
  server.model_names = o.served_names.empty() ? std::vector{FolderName(o.model.folder)} : o.served_names;
  server.special_text = o.special_text == "match" ? SpecialText::kMatch : SpecialText::kProtect;
  server.speculation = o.speculate == "ngram" ? Speculation::kNgram : Speculation::kNone;
  server.limits.body_bytes = static_cast<size_t>(o.body_mb) << 20;
  server.limits.header_time = std::chrono::seconds(o.header_s);
  server.limits.write_time = std::chrono::seconds(o.stall_s);
  server.limits.keep_alive = std::chrono::milliseconds(o.keep_alive_ms);
  server.limits.stream_pace = std::chrono::milliseconds(o.pace_ms);
  server.limits.answer_time = std::chrono::seconds(o.answer_s);
  server.limits.drain_time = std::chrono::seconds(o.drain_s);
  const ChatTemplateChoice choice = ChooseChatTemplate(o.model.folder, model.has_per_layer_inputs());
  if (!choice.warning.empty()) spdlog::warn("{}", choice.warning);
  server.chat_variant = choice.variant;
  return server;
}

TextServiceOptions MakeServiceOptions(const Options& o, const Backend& backend) {
  const Config& config = backend.plan().config;
  TextServiceOptions service = o.service;
  EngineOptions& engine = service.engine;
  engine.max_context = o.model.ctx == 0 ? config.max_position_embeddings : o.model.ctx;
  engine.step_tokens = PrefillChunk(o.prefill_chunk, backend.PreferredStepTokens());
  engine.kv_type = o.model.kv_dtype();
  engine.prefix_cache = !o.no_prefix_cache;
  if (engine.cache_tokens == 0) {
    const int64_t contexts = engine.max_sequences * engine.max_context;
    engine.cache_tokens = std::max(engine.max_context, std::min(contexts, kCacheTokens));
  }
  return service;
}

// Each connection takes a file descriptor.
void AllowOpenFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void RunServe(const Options& o, const CommandLine& line) {
  if (line.app.get_option("--log-level")->count() == 0) spdlog::set_level(spdlog::level::info);
  Keys(o);  // what cannot be is refused before a large model is loaded
  AllowOpenFiles();
  const std::unique_ptr<Backend> backend = LoadBackend(line.environment, o.model);
  TextService service(o.model.folder, *backend, MakeServiceOptions(o, *backend));
  const ServerOptions options = MakeServerOptions(o, service.model());
  Server server(service, options);
  server.HandleSignals();
  const bool is_v6 = options.host.find(':') != std::string::npos;
  Print(fmt::format("listening on http://{}:{}\n", is_v6 ? "[" + options.host + "]" : options.host, server.port()));
  const EngineOptions& engine = service.engine_options();
  spdlog::info("event=listening device=\"{}\" model={} context={} parallel={} cache_tokens={} keys={}",
               backend->Description(), options.model_names.front(), engine.max_context, engine.max_sequences,
               engine.cache_tokens, options.api_keys.size());
  server.Run();
}

}  // namespace

void AddServeCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("serve", "Answers OpenAI's API over HTTP");
  AddAddressOptions(command, *o);
  AddServiceOptions(command, *o);
  AddLimitOptions(command, *o);
  AddModelOptions(command, o->model, line.environment);
  command.footer(
      "A key may also come in the environment variable LAPIDARY_API_KEY. A first Ctrl-C or SIGTERM lets answers at "
      "hand\n"
      "end, a second one cuts them. Requests are logged to stderr, without any text of prompts and answers.\n"
      "Examples:\n"
      "  lapidary serve\n"
      "  lapidary serve -m DIR --host 0.0.0.0 --port 8000 --api-key-file keys.txt --parallel 32\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}'");
  command.callback([&line, o] { line.run = [&line, o] { RunServe(*o, line); }; });
}

}  // namespace lapidary
