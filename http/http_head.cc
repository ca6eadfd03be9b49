#include "http/http_head.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr size_t kLongestMethod = 32;
constexpr size_t kMostDigits = 15;  // of a length, decimal or hexadecimal: no sum of two overflows
constexpr std::string_view kDigits = "0123456789";

absl::string_view Abseil(std::string_view text) {
  return {text.data(), text.size()};
}

bool HasOnly(std::string_view text, std::string_view alphabet) {
  return text.find_first_not_of(alphabet) == std::string_view::npos;
}

bool IsOneOf(char letter, std::string_view letters) {
  return letters.find(letter) != std::string_view::npos;
}

// RFC 9110, section 5.6.2.
bool IsToken(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char each) {
    return absl::ascii_isalnum(static_cast<unsigned char>(each)) ||
           IsOneOf(each, "!#$%&'*+-.^_`|~");
  });
}

// "HTTP/1.1"; a fault if it is another major version, or no version.
HttpFault ParseVersion(std::string_view text, int& minor_version) {
  if (text.size() != 8 || !text.starts_with("HTTP/") || text[6] != '.' ||
      !HasOnly(text.substr(5, 1), kDigits) || !HasOnly(text.substr(7), kDigits)) {
    return {400, absl::StrFormat("'%s' is no version of HTTP; speak HTTP/1.1", text)};
  }
  if (text[5] != '1') return {505, absl::StrFormat("%s is not spoken here; speak HTTP/1.1", text)};
  minor_version = text[7] == '0' ? 0 : 1;
  return {};
}

HttpFault CheckPath(std::string_view path, std::string_view encoded) {
  for (const absl::string_view segment : absl::StrSplit(Abseil(path), '/')) {
    if (segment != "." && segment != "..") continue;
    return {400, absl::StrFormat("the path '%s' has a part '%s'; write it without", path, segment)};
  }
  // One that is encoded belongs to a part's name, and nobody could tell it from the others any
  // more.
  if (encoded.find("%2f") != std::string_view::npos ||
      encoded.find("%2F") != std::string_view::npos) {
    return {400, absl::StrFormat("the path '%s' has an encoded '/'; no name has one", encoded)};
  }
  return CheckText(path);
}

// Section 3.2: origin-form, absolute-form, and asterisk-form for OPTIONS.
HttpFault ParseTarget(std::string_view target, HttpRequest& request) {
  if (target == "*" && request.method == "OPTIONS") {
    request.path = target;
    return {};
  }
  constexpr std::string_view kScheme = "http://";
  if (absl::StartsWithIgnoreCase(Abseil(target), Abseil(kScheme))) {
    target.remove_prefix(kScheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    if (target.empty()) target = "/";
  }
  if (!target.starts_with('/')) {
    return {400, absl::StrFormat("the target '%s' does not begin with '/'; give a path", target)};
  }
  const auto bad = std::ranges::find_if(
      target, [](char each) { return each <= 0x20 || each >= 0x7f || each == '#'; });
  if (bad != target.end()) {
    return {400,
            absl::StrFormat("byte 0x%02x in the target; encode it as %%%02X",
                            static_cast<unsigned char>(*bad), static_cast<unsigned char>(*bad))};
  }
  const size_t mark = target.find('?');
  if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
  const std::string_view encoded = target.substr(0, mark);
  absl::StatusOr<std::string> path = PercentDecode(encoded);
  if (!path.ok()) return {400, "the target: " + std::string(Message(path.status()))};
  request.path = *std::move(path);
  return CheckPath(request.path, encoded);
}

size_t Count(const std::vector<HttpField>& fields, std::string_view name) {
  return std::ranges::count_if(fields, [name](const HttpField& field) {
    return absl::EqualsIgnoreCase(field.name, Abseil(name));
  });
}

// Whether a list such as Connection's has the word.
bool Lists(const std::vector<HttpField>& fields, std::string_view name, std::string_view word) {
  return std::ranges::any_of(fields, [&](const HttpField& field) {
    if (!absl::EqualsIgnoreCase(field.name, Abseil(name))) return false;
    const std::vector<absl::string_view> words = absl::StrSplit(field.value, ',');
    return std::ranges::any_of(words, [word](absl::string_view each) {
      return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(each), Abseil(word));
    });
  });
}

HttpFault ParseContentLength(std::string_view text, uint64_t& length) {
  if (text.empty() || text.size() > kMostDigits || !HasOnly(text, kDigits)) {
    return {400,
            absl::StrFormat("Content-Length is '%s'; give one decimal number of at most %d digits",
                            text.substr(0, 64), kMostDigits)};
  }
  std::from_chars(text.data(), text.data() + text.size(), length);
  return {};
}

// Sections 6.1 to 6.3, as far as both kinds of message have them. `is_framed`: the fields say it.
HttpFault FrameBody(const std::vector<HttpField>& fields, int minor_version, HttpFraming& framing,
                    bool& is_framed) {
  const size_t lengths = Count(fields, "Content-Length");
  const size_t codings = Count(fields, "Transfer-Encoding");
  is_framed = lengths + codings > 0;
  if (lengths > 0 && codings > 0) {
    return {400, "both Content-Length and Transfer-Encoding; send one of them"};
  }
  if (lengths > 1) return {400, "Content-Length comes more than once; send it once"};
  if (lengths == 1) {
    return ParseContentLength(FindField(fields, "Content-Length")->value, framing.length);
  }
  if (codings == 0) return {};
  if (minor_version == 0) return {400, "HTTP/1.0 has no Transfer-Encoding; speak HTTP/1.1"};
  const HttpField& coding = *FindField(fields, "Transfer-Encoding");
  if (codings > 1 || !absl::EqualsIgnoreCase(coding.value, "chunked")) {
    return {501, absl::StrFormat("Transfer-Encoding '%s' is not understood; send 'chunked' alone",
                                 coding.value)};
  }
  framing.body = HttpFraming::Body::kChunked;
  return {};
}

// Section 3.2: one Host in HTTP/1.1, which may be empty and here says nothing.
HttpFault CheckHost(const std::vector<HttpField>& fields, int minor_version) {
  const size_t hosts = Count(fields, "Host");
  if (hosts == 0 && minor_version == 0) return {};
  if (hosts != 1) return {400, absl::StrFormat("%d Host fields; HTTP/1.1 wants one", hosts)};
  const std::string& host = FindField(fields, "Host")->value;
  const bool is_valid = std::ranges::all_of(host, [](char each) {
    return absl::ascii_isalnum(static_cast<unsigned char>(each)) ||
           IsOneOf(each, "-._~%!$&'()*+,;=:[]");
  });
  if (!is_valid) return {400, absl::StrFormat("Host '%s' is no host", host)};
  return {};
}

}  // namespace

HttpFault CheckText(std::string_view line) {
  const auto bad = std::ranges::find_if(line, [](char each) {
    return each != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(each));
  });
  if (bad == line.end()) return {};
  return {400, absl::StrFormat("a control character, 0x%02x; send text in lines that end in CRLF",
                               static_cast<unsigned char>(*bad))};
}

HttpFault ParseRequestLine(std::string_view line, HttpRequest& request, int& minor_version) {
  const std::vector<absl::string_view> words = absl::StrSplit(Abseil(line), ' ');
  if (words.size() != 3) {
    return {400, absl::StrFormat("'%s' is no request; write 'METHOD /path HTTP/1.1'",
                                 line.substr(0, 128))};
  }
  request.method = std::string(words[0]);
  if (!IsToken(request.method)) {
    return {400, absl::StrFormat("'%s' is no method; methods are words such as GET",
                                 request.method.substr(0, 64))};
  }
  if (request.method.size() > kLongestMethod) {
    return {501, absl::StrFormat("a method of %d letters; none has more than %d",
                                 request.method.size(), kLongestMethod)};
  }
  if (HttpFault fault = ParseVersion({words[2].data(), words[2].size()}, minor_version)) {
    return fault;
  }
  return ParseTarget({words[1].data(), words[1].size()}, request);
}

HttpFault ParseStatusLine(std::string_view line, int& status, int& minor_version) {
  if (line.size() < 12 || line[8] != ' ' || (line.size() > 12 && line[12] != ' ') ||
      !HasOnly(line.substr(9, 3), kDigits)) {
    return {400, absl::StrFormat("'%s' is no status line", line.substr(0, 128))};
  }
  std::from_chars(line.data() + 9, line.data() + 12, status);
  if (status < 100) return {400, absl::StrFormat("%d is no status", status)};
  return ParseVersion(line.substr(0, 8), minor_version);
}

HttpFault ParseFieldLine(std::string_view line, HttpField& field) {
  if (line.starts_with(' ') || line.starts_with('\t')) {
    return {400, "a header line that goes on in the next; write it as one line"};  // section 5.2
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) {
    return {400,
            absl::StrFormat("'%s' is no header field; write 'Name: value'", line.substr(0, 128))};
  }
  field.name = line.substr(0, colon);
  if (!IsToken(field.name)) {  // also whitespace before the colon: section 5.1
    return {400, absl::StrFormat("'%s' is no name of a header field; names have no spaces",
                                 field.name.substr(0, 128))};
  }
  const absl::string_view value = Abseil(line.substr(colon + 1));
  field.value = std::string(absl::StripAsciiWhitespace(value));
  return {};
}

HttpFault ParseChunkSize(std::string_view line, uint64_t& size) {
  const std::string_view digits = line.substr(0, line.find(';'));
  if (digits.empty() || digits.size() > kMostDigits || !HasOnly(digits, "0123456789abcdefABCDEF")) {
    return {400, absl::StrFormat("'%s' is no size of a chunk; give at most %d hexadecimal digits",
                                 digits.substr(0, 64), kMostDigits)};
  }
  std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
  return {};
}

HttpFault FrameRequest(const std::vector<HttpField>& fields, int minor_version,
                       HttpFraming& framing) {
  bool is_framed = false;
  if (HttpFault fault = FrameBody(fields, minor_version, framing, is_framed)) return fault;
  if (HttpFault fault = CheckHost(fields, minor_version)) return fault;
  framing.keeps_alive = minor_version > 0 && !Lists(fields, "Connection", "close");
  const HttpField* expect = FindField(fields, "Expect");
  if (expect == nullptr || minor_version == 0) return {};  // RFC 9110, section 10.1.1
  framing.expects_continue = absl::EqualsIgnoreCase(expect->value, "100-continue");
  if (framing.expects_continue) return {};
  return {417,
          absl::StrFormat("Expect '%s' cannot be met; only '100-continue' can", expect->value)};
}

HttpFault FrameResponse(const std::vector<HttpField>& fields, int status, int minor_version,
                        bool to_head, HttpFraming& framing) {
  bool is_framed = false;
  if (HttpFault fault = FrameBody(fields, minor_version, framing, is_framed)) return fault;
  if (to_head || status < 200 || status == 204 || status == 304) {
    framing.body = HttpFraming::Body::kLength;
    framing.length = 0;
  } else if (!is_framed) {
    framing.body = HttpFraming::Body::kUntilClose;
  }
  framing.keeps_alive = minor_version > 0 && !Lists(fields, "Connection", "close") &&
                        framing.body != HttpFraming::Body::kUntilClose;
  return {};
}

}  // namespace ringside
