# cmake -DOUTPUT=<file.cc> -DFILES=<list> -P EmbedWebFiles.cmake: writes the definition of EmbeddedWebFiles() (src/server/web_page.cc).
set(type.html "text/html; charset=utf-8")
set(type.js "text/javascript; charset=utf-8")
set(type.css "text/css; charset=utf-8")
set(type.svg "image/svg+xml")
set(data "")
set(entries "")
set(index 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  get_filename_component(extension "${file}" LAST_EXT)
  if(NOT DEFINED "type${extension}")
    message(FATAL_ERROR "${file}: no content type is known for '${extension}'")
  endif()
  set(type "${type${extension}}")
  file(READ "${file}" bytes HEX)
  string(LENGTH "${bytes}" size)
  math(EXPR size "${size} / 2")
  file(SHA256 "${file}" digest)
  string(SUBSTRING "${digest}" 0 32 digest)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  if(name STREQUAL "index.html")
    set(name "")
  endif()
  string(APPEND data "constexpr unsigned char kFile${index}[] = {${bytes}0};\n")
  string(APPEND entries "      WebFile{\"/${name}\", \"${type}\", R\"(\"${digest}\")\", {reinterpret_cast<const char*>(kFile${index}), ${size}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include <array>
#include <span>

#include \"server/web_page.h\"

namespace lapidary {
namespace {
${data}}  // namespace

std::span<const WebFile> EmbeddedWebFiles();
std::span<const WebFile> EmbeddedWebFiles() {
  static const std::array<WebFile, ${index}> files = {
${entries}  };
  return files;
}
}  // namespace lapidary
")
