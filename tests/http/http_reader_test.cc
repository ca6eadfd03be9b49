#include "http/http_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "http/http_writer.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;

constexpr HttpMessageLimits kLimits = {.line = 64, .header = 256, .fields = 4, .body = 16};

// What a reader makes of a text: "METHOD path?query fields|body|what it left", or the fault.
std::string Summary(const HttpRequestReader& reader, HttpRequest request, std::string_view rest) {
  if (reader.fault()) return std::to_string(reader.fault().status) + " " + reader.fault().reason;
  if (!reader.is_complete()) return "incomplete";
  std::string text = request.method + " " + request.path;
  if (!request.query.empty()) text += "?" + request.query;
  for (const HttpField& field : request.fields) text += " " + field.name + "=" + field.value;
  return text + "|" + request.body + "|" + std::string(rest);
}

std::string Read(const std::vector<std::string_view>& pieces) {
  HttpRequestReader reader(kLimits);
  std::string rest;
  for (const std::string_view piece : pieces) rest += piece.substr(reader.Feed(piece));
  HttpRequest request = reader.is_complete() ? reader.Take() : HttpRequest();
  return Summary(reader, std::move(request), rest);
}

// Also split in two at each place, and into bytes: that may make no difference.
std::string ReadInAllWays(const std::string& text) {
  const std::string whole = Read({text});
  const std::string_view view = text;
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(Read({view.substr(0, i), view.substr(i)}), whole) << "split at " << i;
    bytes.push_back(view.substr(i, 1));
  }
  EXPECT_EQ(Read(bytes), whole) << "byte by byte";
  return whole;
}

struct Good {
  const char* text;
  const char* summary;
};

TEST(HttpReaderTest, ReadsRequests) {
  const Good cases[] = {
      {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / Host=a||"},
      {"GET /a%20b/c?d=%20&e HTTP/1.1\r\nHost:\r\n\r\n", "GET /a b/c?d=%20&e Host=||"},
      {"GET http://host:1/a?b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a?b Host=a||"},
      {"GET http://host HTTP/1.1\r\nHost: a\r\n\r\n", "GET / Host=a||"},
      {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * Host=a||"},
      {"GET / HTTP/1.0\r\n\r\n", "GET /||"},
      {"GET / HTTP/1.7\r\nHost: a\r\n\r\n", "GET / Host=a||"},
      {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / Host=a||"},
      {"GET / HTTP/1.1\r\nHost: [::1]:80\r\nX: \t a b\t \r\n\r\n", "GET / Host=[::1]:80 X=a b||"},
      {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET",
       "PUT / Host=a Content-Length=3|abc|GET"},
      {"PUT / HTTP/1.1\r\nHost: a\r\ncontent-length: 016\r\n\r\n0123456789abcdef",
       "PUT / Host=a content-length=016|0123456789abcdef|"},
      {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nX",
       "PUT / Host=a Content-Length=0||X"},
      {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
       "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: dropped\r\n\r\nGET",
       "PUT / Host=a Transfer-Encoding=Chunked|abc0123456789|GET"},
      {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "PUT / Host=a Transfer-Encoding=chunked||"},
  };
  for (const Good& each : cases) EXPECT_EQ(ReadInAllWays(each.text), each.summary);
}

struct Bad {
  std::string text;
  int status;
  const char* reason;
};

std::string WithHead(const std::string& fields, const std::string& body = "") {
  return "PUT / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n" + body;
}
std::string WithTarget(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n";
}
std::string Chunked(const std::string& body) {
  return WithHead("Transfer-Encoding: chunked\r\n", body);
}

void ExpectRefused(const std::vector<Bad>& cases) {
  for (const Bad& each : cases) {
    const std::string summary = ReadInAllWays(each.text);
    EXPECT_THAT(summary, ::testing::StartsWith(std::to_string(each.status) + " ")) << each.text;
    EXPECT_THAT(summary, HasSubstr(each.reason)) << each.text;
  }
}

TEST(HttpReaderTest, RefusesWrongRequestLines) {
  ExpectRefused({
      {"\r\n\r\nGET / HTTP/1.1\r\n", 400, "no request"},
      {"GET /\r\n", 400, "no request"},
      {"GET  / HTTP/1.1\r\n", 400, "no request"},
      {"GET / HTTP/1.1 \r\n", 400, "no request"},
      {"GET\t/ HTTP/1.1\r\n", 400, "no request"},
      {" GET / HTTP/1.1\r\n", 400, "no request"},
      {"G(T / HTTP/1.1\r\n", 400, "no method"},
      {"GET / HTTP/1.1\n", 400, "LF alone"},
      {"GET /\r HTTP/1.1\r\n", 400, "0x0d"},
      {std::string("GET /\0 HTTP/1.1\r\n", 17), 400, "0x00"},
      {"GET / HTTP/2.0\r\n", 505, "HTTP/2.0"},
      {"PRI * HTTP/2.0\r\n", 505, "HTTP/2.0"},
      {"GET / HTTP/1\r\n", 400, "no version"},
      {"GET / http/1.1\r\n", 400, "no version"},
      {"GET / HTTP/1.10\r\n", 400, "no version"},
      {std::string(33, 'A') + " / HTTP/1.1\r\n", 501, "33 letters"},
      {"GET /" + std::string(64, 'a'), 414, "64 bytes"},
  });
}

TEST(HttpReaderTest, RefusesWrongTargets) {
  ExpectRefused({
      {WithTarget("x"), 400, "does not begin with '/'"},
      {WithTarget("*"), 400, "does not begin with '/'"},
      {WithTarget("host:80"), 400, "does not begin with '/'"},
      {WithTarget("https://a/"), 400, "does not begin with '/'"},
      {WithTarget("/a/../b"), 400, "part '..'"},
      {WithTarget("/a/%2e%2E"), 400, "part '..'"},
      {WithTarget("/./b"), 400, "part '.'"},
      {WithTarget("/a%2Fb"), 400, "encoded '/'"},
      {WithTarget("/a%2fb"), 400, "encoded '/'"},
      {WithTarget("/a%"), 400, "'%' is no encoded byte"},
      {WithTarget("/a%4"), 400, "'%4' is no encoded byte"},
      {WithTarget("/a%4g"), 400, "'%4g' is no encoded byte"},
      {WithTarget("/a%00"), 400, "not both zero"},
      {WithTarget("/a%0ab"), 400, "0x0a"},
      {WithTarget("/a#b"), 400, "%23"},
      {WithTarget("/\x80"), 400, "%80"},
      {WithTarget("/?a\tb"), 400, "%09"},
  });
}

TEST(HttpReaderTest, RefusesWrongHeaders) {
  ExpectRefused({
      {"GET / HTTP/1.1\r\n\r\n", 400, "0 Host fields"},
      {WithHead("Host: a\r\n"), 400, "2 Host fields"},
      {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "no host"},
      {WithHead("X : y\r\n"), 400, "no name"},
      {WithHead(": y\r\n"), 400, "no name"},
      {WithHead("X\r\n"), 400, "no header field"},
      {WithHead("X: y\r\n z\r\n"), 400, "goes on in the next"},
      {WithHead("X: y\rz\r\n"), 400, "0x0d"},
      {WithHead(std::string("X: \0\r\n", 6)), 400, "0x00"},
      {WithHead("X: y\n"), 400, "LF alone"},
      {WithHead("X: " + std::string(64, 'y')), 431, "64 bytes"},
      {WithHead("A:\r\nB:\r\nC:\r\nD:\r\n"), 431, "more than 4 header fields"},
      {"GET / HTTP/1.1\r\nA: " + std::string(60, 'a') + "\r\nB: " + std::string(60, 'a') +
           "\r\nC: " + std::string(60, 'a') + "\r\nD: " + std::string(60, 'a') + "\r\n",
       431, "more than 256 bytes"},
      {WithHead("Expect: 200\r\n"), 417, "Expect '200'"},
  });
}

TEST(HttpReaderTest, RefusesDoubtfulBodies) {
  ExpectRefused({
      {WithHead("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400, "both"},
      {WithHead("Content-Length: 1\r\nContent-Length: 1\r\n"), 400, "more than once"},
      {WithHead("Content-Length: 1, 1\r\n"), 400, "'1, 1'"},
      {WithHead("Content-Length: +1\r\n"), 400, "'+1'"},
      {WithHead("Content-Length: -1\r\n"), 400, "'-1'"},
      {WithHead("Content-Length: 0x1\r\n"), 400, "'0x1'"},
      {WithHead("Content-Length:\r\n"), 400, "''"},
      {WithHead("Content-Length: 18446744073709551617\r\n"), 400, "at most 15 digits"},
      {WithHead("Content-Length: 17\r\n"), 413, "more than 16 bytes"},
      {WithHead("Transfer-Encoding: gzip, chunked\r\n"), 501, "'gzip, chunked'"},
      {WithHead("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 501, "alone"},
      {WithHead("Transfer-Encoding: identity\r\n"), 501, "'identity'"},
      {"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HTTP/1.0"},
      {Chunked("\r\n"), 400, "no size"},
      {Chunked("g\r\n"), 400, "'g'"},
      {Chunked("-1\r\n"), 400, "'-1'"},
      {Chunked("0x1\r\n"), 400, "'0x1'"},
      {Chunked("1 \r\n"), 400, "'1 '"},
      {Chunked("10000000000000000\r\n"), 400, "at most 15"},
      {Chunked("11\r\n"), 413, "more than 16 bytes"},
      {Chunked("9\r\n123456789\r\n8\r\n"), 413, "more than 16 bytes"},
      {Chunked("1\r\nab\r\n"), 400, "longer than its size"},
      {Chunked("1\na"), 400, "LF alone"},
      {Chunked("1;" + std::string(65, 'x')), 400, "64 bytes"},
      {Chunked("0\r\nX y\r\n"), 400, "no header field"},
      {Chunked("0\r\nA:\r\nB:\r\nC:\r\n"), 431, "more than 4 header fields"},
  });
}

TEST(HttpReaderTest, APieceOfABodyIsNoPartOfTheHeader) {
  HttpRequestReader reader({.line = 64, .header = 256, .fields = 4, .body = 4000});
  std::string body;
  for (int i = 0; i < 4000; ++i) body += "1\r\na\r\n";
  reader.Feed(Chunked(body + "0\r\n\r\n"));
  EXPECT_EQ(reader.fault().reason, "");
  ASSERT_TRUE(reader.is_complete());
  EXPECT_EQ(reader.Take().body, std::string(4000, 'a'));
}

TEST(HttpReaderTest, AnEndInTheMiddleIsAFault) {
  HttpRequestReader reader(kLimits);
  reader.Feed(WithHead("Content-Length: 3\r\n", "ab"));
  EXPECT_TRUE(reader.has_head());
  reader.End();
  EXPECT_EQ(reader.fault().status, 400);
}

TEST(HttpReaderTest, SaysWhatARequestWants) {
  const auto framing = [](const std::string& text) {
    HttpRequestReader reader(kLimits);
    reader.Feed(text);
    EXPECT_TRUE(reader.has_head()) << reader.fault().reason;
    return reader.framing();
  };
  EXPECT_TRUE(framing(WithHead("")).keeps_alive);
  EXPECT_TRUE(framing(WithHead("Connection: keep-alive, closed\r\n")).keeps_alive);
  EXPECT_FALSE(framing(WithHead("Connection: x, Close\r\n")).keeps_alive);
  EXPECT_FALSE(framing("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keeps_alive);
  EXPECT_TRUE(framing(WithHead("Expect: 100-Continue\r\nContent-Length: 1\r\n")).expects_continue);
  EXPECT_FALSE(framing("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue);
}

// "status type body", or the fault; at the end of the text the connection is closed.
std::string ReadResponse(const std::string& text, bool to_head = false) {
  std::string result;
  for (size_t i = 0; i <= text.size(); ++i) {
    HttpResponseReader reader(kLimits, to_head);
    const size_t taken = reader.Feed(std::string_view(text).substr(0, i));
    if (taken == i) reader.Feed(std::string_view(text).substr(i));
    reader.End();
    std::string summary = "fault " + reader.fault().reason;
    if (!reader.fault()) {
      const HttpResponse response = reader.Take();
      summary = std::to_string(response.status) + " " + response.content_type + " " + response.body;
    }
    EXPECT_TRUE(i == 0 || summary == result) << summary << ", split at " << i;
    result = summary;
  }
  return result;
}

TEST(HttpReaderTest, ReadsResponses) {
  EXPECT_EQ(ReadResponse("HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: 2\r\n\r\nab"),
            "200 x ab");
  EXPECT_EQ(ReadResponse("HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
            "404  ab");
  EXPECT_EQ(ReadResponse("HTTP/1.0 200\r\n\r\nuntil the end"), "200  until the end");
  EXPECT_EQ(ReadResponse("HTTP/1.1 204 No Content\r\n\r\nx"), "204  ");
  EXPECT_EQ(ReadResponse("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true), "200  ");
}

TEST(HttpReaderTest, RefusesWrongResponses) {
  for (const char* text :
       {"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n", "",
        "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n0123456789abcdefg",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"}) {
    EXPECT_THAT(ReadResponse(text), ::testing::StartsWith("fault ")) << text;
  }
}

TEST(HttpReaderTest, ABodyThatIsTakenAsItComesHasNoLimit) {
  HttpResponseReader reader(kLimits, false);
  reader.Feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string body;
  for (int i = 0; i < 10; ++i) {
    reader.Feed("8\r\n01234567\r\n");
    body += reader.TakeBody();
  }
  EXPECT_EQ(body.size(), 80) << reader.fault().reason;
}

TEST(HttpWriterTest, ReadersReadWhatItWrites) {
  HttpRequestReader request({});
  request.Feed(WriteRequest("PUT", "/a?b", "body", "text/plain"));
  ASSERT_TRUE(request.is_complete()) << request.fault().reason;
  EXPECT_EQ(request.Take().body, "body");
  HttpResponseReader response({}, false);
  response.Feed(WriteResponse({.status = 201, .body = "made", .fields = {{"X", "y"}}},
                              HttpBodyForm::kWhole, true, absl::UnixEpoch()));
  ASSERT_TRUE(response.is_complete()) << response.fault().reason;
  const HttpResponse read = response.Take();
  EXPECT_EQ(FindField(read.fields, "x")->value, "y");
  EXPECT_EQ(FindField(read.fields, "date")->value, "Thu, 01 Jan 1970 00:00:00 GMT");
}

TEST(HttpWriterTest, ResponsesWithoutABodyHaveNoLengthOfIt) {
  const auto write = [](const HttpResponse& response, HttpBodyForm form) {
    return WriteResponse(response, form, true, absl::UnixEpoch());
  };
  const std::string none = write({.status = 204, .body = "x"}, HttpBodyForm::kWhole);
  EXPECT_THAT(none, ::testing::Not(HasSubstr("Content-")));
  EXPECT_THAT(none, ::testing::EndsWith("\r\n\r\n"));
  EXPECT_THAT(write({}, HttpBodyForm::kWhole), HasSubstr("Content-Length: 0\r\n"));
  EXPECT_THAT(write({.body = "xyz"}, HttpBodyForm::kHeadOnly), HasSubstr("Content-Length: 3\r\n"));
}

TEST(HttpWriterTest, AValueMakesNoFieldMore) {
  const HttpResponse response = {.fields = {{"X", "y\r\nEvil: 1"}, {"Z", "kept"}}};
  const std::string text = WriteResponse(response, HttpBodyForm::kWhole, true, absl::UnixEpoch());
  EXPECT_THAT(text, ::testing::Not(HasSubstr("Evil")));
  EXPECT_THAT(text, HasSubstr("Z: kept\r\n"));
}

TEST(HttpMessageTest, ParsesQueries) {
  const auto parsed = ParseQuery("a=b+c&d=%26%3d&e&f=");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::string> pairs;
  for (const HttpField& each : *parsed) pairs.push_back(each.name + "=" + each.value);
  EXPECT_THAT(pairs, ::testing::ElementsAre("a=b c", "d=&=", "e=", "f="));
  EXPECT_TRUE(ParseQuery("")->empty());
}

TEST(HttpMessageTest, RefusesWrongQueries) {
  for (const char* query : {"=a", "a&&b", "a=%zz", "%", "a=%00"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseQuery(query).status())) << query;
  }
  std::string many = "a";
  for (size_t i = 1; i < kMostParameters; ++i) many += "&a";
  EXPECT_TRUE(ParseQuery(many).ok());
  EXPECT_FALSE(ParseQuery(many + "&a").ok());
}

TEST(HttpMessageTest, AnErrorIsOneLineOfJson) {
  EXPECT_EQ(JsonError(400, "a \"b\"\n\xff").body, "{\"error\":\"a \\\"b\\\"\\\\x0a\\\\xff\"}\n");
}

}  // namespace
}  // namespace ringside
