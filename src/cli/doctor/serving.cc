#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/doctor/findings.h"
#include "engine/programs/process/interpreter.h"
#include "runtime/cost_table.h"
#include "server/server.h"

namespace chairlift::doctor {
namespace {

// Empty if a server could listen there.
std::string WhyTaken(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string why;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, 1) != 0) {
    why = std::strerror(errno);
  }
  close(fd);
  return why;
}

Finding Port(const char* flag, int port) {
  const std::string why = WhyTaken(port);
  const std::string about = fmt::format("port {}", port);
  if (why.empty()) return {Level::kOk, about, "free"};
  return {Level::kHint, about, why, fmt::format("use another port: {} {}", flag, port + 10)};
}

Finding CacheFolder() {
  const std::filesystem::path folder = CostTablePath({}).parent_path();
  // Rights alone do not tell: it may lie on a file system that takes no files.
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::string why = error ? error.message() : "";
  if (why.empty()) {
    std::string file = (folder / "doctor.XXXXXX").string();
    const int written = mkstemp(file.data());
    if (written < 0 || write(written, "x", 1) != 1) why = std::strerror(errno);
    if (written >= 0) {
      close(written);
      unlink(file.c_str());
    }
  }
  if (why.empty()) return {Level::kOk, "cache", folder.string()};
  return {Level::kHint, "cache", fmt::format("{} cannot be written: {}", folder.string(), why),
          "set XDG_CACHE_HOME to a writable folder; until then models are timed at every start"};
}

// For models with text inputs and Python models.
Finding Python() {
  FunctionConfig function;
  function.packages = {"numpy", "tokenizers", "jinja2"};
  const auto chosen = TryInterpreter(function, {}, /*runs_their_code=*/false);
  if (!chosen.ok()) return {Level::kHint, "Python", Message(chosen.status())};
  const std::string said = fmt::format("{} ({})", chosen->python, chosen->where);
  if (chosen->lacks.empty()) return {Level::kOk, "Python", said};
  return {Level::kHint, "Python", said,
          "text models need more packages: this Python " + chosen->lacks};
}

}  // namespace

std::vector<Finding> OfServing() {
  const ServerOptions defaults;
  return {Port("--http-port", defaults.http_port), Port("--metrics-port", defaults.metrics_port),
          CacheFolder(), Python()};
}

}  // namespace chairlift::doctor
