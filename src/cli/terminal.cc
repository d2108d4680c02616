#include "cli/terminal.h"

#include <simdjson.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace chairlift {
namespace {

bool IsNumber(const std::string& cell) {
  const bool list = cell.find(", ") != std::string::npos;
  return !cell.empty() && !list && (cell[0] == '-' || (cell[0] >= '0' && cell[0] <= '9'));
}

// In characters: those beyond ASCII take several bytes.
size_t Width(const std::string& cell) {
  return static_cast<size_t>(std::count_if(cell.begin(), cell.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    const std::string text = Indented(Printable({message.payload.data(), message.payload.size()}));
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

}  // namespace

std::string Printable(std::string_view text) {
  const bool utf8 = simdjson::validate_utf8(text.data(), text.size());
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are controls too, of two bytes.
    if (utf8 && byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else if (byte == '\n' || (byte >= 0x20 && byte != 0x7F && (utf8 || byte < 0x80))) {
      out += text[i];
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

std::string Indented(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

void LogWhatIsPrintable() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%^%l%$] %*");
  spdlog::set_formatter(std::move(formatter));
}

void Table::Add(std::vector<std::string> row) {
  for (std::string& cell : row) {
    cell = Printable(cell);
    for (size_t at = 0; (at = cell.find('\n', at)) != std::string::npos;) {
      cell.replace(at, 1, "\\x0a");
    }
  }
  rows_.push_back(std::move(row));
}

std::string Table::ToString() const {
  std::vector<size_t> width(rows_[0].size(), 0);
  std::vector<bool> right(rows_[0].size(), rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      width[c] = std::max(width[c], Width(rows_[r][c]));
      if (r > 0 && !rows_[r][c].empty() && !IsNumber(rows_[r][c])) right[c] = false;
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      line += right[c] ? fmt::format("{:>{}}", row[c], width[c])
                       : fmt::format("{:<{}}", row[c], width[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

ProgressBar::ProgressBar(std::string label, int64_t total)
    : label_(Printable(label)),
      total_(std::max<int64_t>(total, 1)),
      terminal_(isatty(STDERR_FILENO) != 0),
      begin_(std::chrono::steady_clock::now()),
      last_(begin_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressBar::Set(int64_t done) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - begin_ < std::chrono::milliseconds(500) || now - last_ < std::chrono::milliseconds(100))
    return;
  last_ = now;
  drawn_ = true;
  constexpr int64_t kWidth = 30;
  const int64_t filled = std::clamp<int64_t>(kWidth * done / total_, 0, kWidth);
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double left =
      done > 0 ? elapsed * static_cast<double>(total_ - done) / static_cast<double>(done) : 0;
  fmt::print(stderr, "\r\x1b[K{} [{:#<{}}{:.<{}}] {:3d}%  {:.0f} s left", label_, "", filled, "",
             kWidth - filled, 100 * done / total_, left);
  std::fflush(stderr);
}

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

void StatusLine::Show(std::string_view text) {
  if (!terminal_) return;
  drawn_ = true;
  fmt::print(stderr, "\r\x1b[K{} ...", Printable(text));
  std::fflush(stderr);
}

void StatusLine::Clear() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

std::string HumanBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 3) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string HumanSeconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string HumanNumber(double number) {
  if (!std::isfinite(number)) return fmt::format("{}", number);
  // Enough decimals for at least four digits, none for whole numbers.
  const double size = std::abs(number);
  int decimals = size < 100 ? 2 : 1;
  if (size >= 10'000 || number == std::round(number)) decimals = 0;
  std::string text = fmt::format("{:.{}f}", number, decimals);
  const size_t begin = text[0] == '-' ? 1 : 0;
  for (size_t at = std::min(text.find('.'), text.size()); at > begin + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string Counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", HumanNumber(static_cast<double>(number)), noun,
                     number == 1 ? "" : "s");
}

}  // namespace chairlift
