#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "engine/engine.h"
#include "generation/chat_prompt.h"
#include "server/server_limits.h"

namespace lapidary {

struct ServerOptions {
  std::string host = "127.0.0.1";                       // an address
  uint16_t port = 8080;                                 // 0: one that is free
  int threads = 2;                                      // for HTTP; answers are computed elsewhere
  std::vector<std::string> model_names = {"lapidary"};  // answers to these; the first is what it calls itself
  std::vector<std::string> api_keys;                    // none: everybody may ask
  std::vector<std::string> allowed_origins;             // of web pages elsewhere; "*": all. None: no CORS
  bool web_page = true;                                 // at /
  ChatVariant chat_variant = ChatVariant::kSmall;
  SpecialText special_text = SpecialText::kProtect;
  Speculation speculation = Speculation::kNone;  // unless a request says otherwise
  ServerLimits limits;
};

}  // namespace lapidary
