#include "hub/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "hub/url.h"

namespace lapidary {
namespace {

constexpr size_t kMaxPageBytes = size_t{16} << 20;
constexpr int kMaxPages = 1000;
constexpr size_t kMaxNameBytes = 200;  // leaves room for the suffixes of a part within the usual 255

constexpr std::array<std::string_view, 5> kWantedNames = {"config.json", "generation_config.json", "tokenizer.json",
                                                          "tokenizer_config.json", "chat_template.jinja"};

std::string ModelsUrl(const HubAddress& address, std::string_view part) {
  return fmt::format("{}/api/models/{}/{}/{}", address.endpoint, address.repository, part,
                     EncodeUrlPart(address.revision));
}

// Throws unless `path` is relative, without "." and ".." and made of printable characters.
void CheckPath(const std::string& path, const std::string& what) {
  const bool control =
      std::ranges::any_of(path, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  const std::string framed = "/" + path + "/";
  const bool odd = std::ranges::any_of(std::array<std::string_view, 3>{"//", "/./", "/../"},
                                       [&](std::string_view part) { return framed.find(part) != std::string::npos; });
  if (control || odd || path.find('\\') != std::string::npos) {
    Throw(ErrorKind::kCorruptFile,
          fmt::format("{}: found path \"{}\", wanted a plain relative one", what, Printable(path)));
  }
}

const std::string& Text(const Json& entry, const char* key, const std::string& what) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_string()) {
    Throw(ErrorKind::kCorruptFile, fmt::format("{}: found an entry without text \"{}\"", what, key));
  }
  return found->get_ref<const std::string&>();
}

int64_t Size(const Json& entry, const std::string& what) {
  const auto found = entry.find("size");
  // nlohmann-json keeps what does not fit int64 as unsigned or float.
  const bool whole = found != entry.end() && found->is_number_integer();
  const int64_t size = whole ? found->get<int64_t>() : -1;
  if (size < 0) {
    Throw(ErrorKind::kCorruptFile, fmt::format("{}: found size {}, wanted a whole number of bytes", what,
                                               found == entry.end() ? "none" : Printable(found->dump())));
  }
  return size;
}

RemoteFile ParseFile(const Json& entry, const std::string& path, const std::string& listing) {
  const std::string what = fmt::format("{}: file {}", listing, path);
  RemoteFile file{.name = path, .size = Size(entry, what), .sha256 = {}, .git_sha1 = {}};
  if (path.size() > kMaxNameBytes) {
    Throw(ErrorKind::kCorruptFile,
          fmt::format("{}: found a name of {} bytes, wanted at most {}", listing, path.size(), kMaxNameBytes));
  }
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    file.sha256 = Text(*lfs, "oid", what);
    if (!IsLowerHex(file.sha256, 64)) {
      Throw(ErrorKind::kCorruptFile,
            fmt::format("{}: found sha256 \"{}\", wanted 64 hex digits", what, Printable(file.sha256)));
    }
    if (const int64_t size = Size(*lfs, what); size != file.size) {
      Throw(ErrorKind::kCorruptFile, fmt::format("{}: found two sizes, {} and {}", what, file.size, size));
    }
  } else if (const auto oid = entry.find("oid"); oid != entry.end() && oid->is_string()) {
    const auto& text = oid->get_ref<const std::string&>();
    if (IsLowerHex(text, 40)) file.git_sha1 = text;
  }
  return file;
}

}  // namespace

bool IsWanted(std::string_view name) {
  return name.find('/') == std::string_view::npos &&
         (std::ranges::find(kWantedNames, name) != kWantedNames.end() || name.ends_with(".safetensors") ||
          name.ends_with(".safetensors.index.json"));
}

void AddWantedFiles(const Json& page, const std::string& what, std::vector<RemoteFile>& files) {
  if (!page.is_array()) Throw(ErrorKind::kCorruptFile, fmt::format("{}: found no JSON array", what));
  for (const Json& entry : page) {
    if (!entry.is_object()) Throw(ErrorKind::kCorruptFile, fmt::format("{}: found an entry that is no object", what));
    const std::string& path = Text(entry, "path", what);
    CheckPath(path, what);
    if (Text(entry, "type", what) != "file" || !IsWanted(path)) continue;
    if (std::ranges::find(files, path, &RemoteFile::name) != files.end()) {
      Throw(ErrorKind::kCorruptFile, fmt::format("{}: found {} twice", what, path));
    }
    files.push_back(ParseFile(entry, path, what));
  }
}

// A hub that the very first request cannot reach is a mistaken address or no network at all: no wait will cure that.
HttpHead Listing::Get(const std::string& url, const std::string& what, const BodySink& sink) {
  const bool is_first = !std::exchange(has_asked_, true);
  try {
    return client_.Get(url, std::nullopt, sink);
  } catch (const Unreachable& failure) {
    if (is_first) Throw(ErrorKind::kDevice, what + ": " + failure.what());
    throw;
  }
}

Listing::Page Listing::GetPage(const std::string& url, const std::string& what) {
  return WithRetries(retry_, stop_, [&] {
    Page page;
    const HttpHead head = Get(url, what, [&](const HttpHead&, std::string_view piece) {
      page.text += piece;
      if (page.text.size() > kMaxPageBytes) {
        Throw(ErrorKind::kCorruptFile, fmt::format("{}: found an answer of more than {} bytes", what, kMaxPageBytes));
      }
    });
    CheckStatus(head, what, with_token_);
    if (const auto link = head.Field("link")) {
      if (const auto next = NextLink(*link)) page.next = ResolveUrl(head.url, *next);
    }
    return page;
  });
}

std::string Listing::ResolveCommit(const HubAddress& address) {
  const std::string what = "cannot read " + address.Describe();
  const Json answer = ParseJson(GetPage(ModelsUrl(address, "revision"), what).text, what + ": the hub's answer");
  if (!answer.is_object()) Throw(ErrorKind::kCorruptFile, what + ": found no JSON object in the hub's answer");
  const std::string& commit = Text(answer, "sha", what);
  if (!IsLowerHex(commit, 40) && !IsLowerHex(commit, 64)) {
    Throw(ErrorKind::kCorruptFile,
          fmt::format("{}: found commit \"{}\", wanted 40 hex digits", what, Printable(commit)));
  }
  return commit;
}

std::vector<RemoteFile> Listing::WantedFiles(const HubAddress& address) {
  const std::string what = "cannot list " + address.Describe();
  std::vector<RemoteFile> files;
  std::string url = ModelsUrl(address, "tree") + "?recursive=true";
  for (int pages = 0; !url.empty(); ++pages) {
    if (pages == kMaxPages)
      Throw(ErrorKind::kCorruptFile, fmt::format("{}: found more than {} pages", what, kMaxPages));
    Page page = GetPage(url, what);
    AddWantedFiles(ParseJson(page.text, what + ": the hub's answer"), what, files);
    url = std::move(page.next);
  }
  const auto is_weights = [](const RemoteFile& file) { return file.name.ends_with(".safetensors"); };
  if (std::ranges::find(files, "config.json", &RemoteFile::name) == files.end()) {
    Throw(ErrorKind::kNotFound, fmt::format("{}: found no config.json", address.Describe()));
  }
  if (std::ranges::none_of(files, is_weights)) {
    Throw(ErrorKind::kNotFound, fmt::format("{}: found no *.safetensors", address.Describe()));
  }
  return files;
}

std::string FileUrl(const HubAddress& address, const std::string& name) {
  return fmt::format("{}/{}/resolve/{}/{}", address.endpoint, address.repository, EncodeUrlPart(address.revision),
                     EncodeUrlPart(name));
}

}  // namespace lapidary
