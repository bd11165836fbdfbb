#include "hub/verify.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/error.h"
#include "hub/descriptor.h"

namespace lapidary {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

// A running digest in lower-case hex.
class Digest {
 public:
  explicit Digest(const EVP_MD* algorithm) : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    Check(context_ != nullptr && EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1);
  }
  void Add(const void* data, size_t bytes) { Check(EVP_DigestUpdate(context_.get(), data, bytes) == 1); }
  std::string Hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> value{};
    unsigned bytes = 0;
    Check(EVP_DigestFinal_ex(context_.get(), value.data(), &bytes) == 1);
    std::string text;
    for (unsigned i = 0; i < bytes; ++i) text += fmt::format("{:02x}", value[i]);
    return text;
  }

 private:
  static void Check(bool done) {
    if (!done) Throw(ErrorKind::kUnsupported, "OpenSSL refuses to compute a digest");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string FindDifference(const std::string& path, const RemoteFile& file, std::atomic<uint64_t>& read_bytes,
                           const StopFlag& stop) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (!descriptor.is_open() || ::fstat(descriptor.get(), &status) != 0) ThrowFileError("cannot open", path, errno);
  if (status.st_size != file.size || file.etag().empty()) {
    read_bytes += static_cast<uint64_t>(file.size);
    return status.st_size == file.size ? "" : fmt::format("found {} bytes, wanted {}", status.st_size, file.size);
  }
  const bool is_lfs = !file.sha256.empty();
  Digest digest(is_lfs ? EVP_sha256() : EVP_sha1());
  if (!is_lfs) {
    const std::string header = fmt::format("blob {}", file.size);
    digest.Add(header.c_str(), header.size() + 1);  // with its NUL
  }
  std::vector<char> chunk(kChunkBytes);
  while (true) {
    stop.Check();
    const ssize_t got = ::read(descriptor.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ThrowFileError("cannot read", path, errno);
    if (got == 0) break;
    digest.Add(chunk.data(), static_cast<size_t>(got));
    read_bytes += static_cast<uint64_t>(got);
  }
  const std::string found = digest.Hex();
  if (found == file.etag()) return "";
  return fmt::format("found {} {}, wanted {}", is_lfs ? "sha256" : "git sha1", found, file.etag());
}

}  // namespace lapidary
