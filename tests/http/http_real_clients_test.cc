// Clients that others have written: curl, and Python's http.client.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/http/http_test_server.h"
#include "tests/support/subprocess.h"

namespace ringside {
namespace {

using testing::Echo;
using ::testing::HasSubstr;
using testing::TestHandler;
using testing::TestServer;

class HttpRealClientsTest : public ::testing::Test {
 protected:
  // What curl prints, given these arguments and the server's socket.
  std::string Curl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"/usr/bin/curl", "--silent", "--show-error", "--max-time",
                                         "20", "--unix-socket", server_.path()});
    const ProcessResult result = RunProcess(arguments);
    EXPECT_EQ(result.status, 0) << result.errors;
    return result.output;
  }

  const std::shared_ptr<HttpFeed> feed_ = std::make_shared<HttpFeed>(1 << 16);
  TestHandler handler_{[this](HttpRequest request, HttpAnswer answer) {
    if (request.path != "/events") return Echo(std::move(request), std::move(answer));
    answer.Follow(feed_, "text/plain");
    feed_->Publish("one ");
    feed_->Publish("two");
    feed_->End();
  }};
  const HttpLimits limits_ = {.message = {.body = 4 << 20}};
  const TestServer server_{handler_, limits_};
};

TEST_F(HttpRealClientsTest, Curl) {
  EXPECT_EQ(Curl({"http://localhost/a%20b?c"}), "GET /a b ");
  EXPECT_EQ(Curl({"-X", "PUT", "-d", "{}", "http://localhost/x"}), "PUT /x {}");
  EXPECT_THAT(
      Curl({"-I", "http://localhost/x"}),
      ::testing::AllOf(HasSubstr("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 8\r\n")));
  EXPECT_EQ(Curl({"http://localhost/1", "http://localhost/2"}), "GET /1 GET /2 ");
  EXPECT_EQ(Curl({"-0", "http://localhost/old"}), "GET /old ");
  EXPECT_EQ(Curl({"--no-buffer", "http://localhost/events"}), "one two");
}

// Of more than 1 MiB curl asks first: Expect: 100-continue.
TEST_F(HttpRealClientsTest, CurlSendsLongBodies) {
  const std::string body(2 << 20, 'x');
  const testing::TempDirectory directory;
  std::ofstream(directory / "body") << body;
  const std::string file = "@" + (directory / "body");
  for (const char* field : {"X: y", "Transfer-Encoding: chunked", "Expect:"}) {
    EXPECT_EQ(Curl({"-H", field, "--data-binary", file, "http://localhost/x"}).size(),
              body.size() + 8)
        << field;
  }
}

TEST_F(HttpRealClientsTest, Python) {
  const ProcessResult result = RunProcess({"/usr/bin/python3", "-c", R"(
import http.client, socket, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(sys.argv[1])
connection = Connection("localhost")
def ask(method, target, **more):
    connection.request(method, target, **more)
    response = connection.getresponse()
    print(response.status, response.read().decode())
ask("GET", "/first")
ask("PUT", "/second", body="abc")
ask("PUT", "/chunked", body=iter([b"de", b"f"]), encode_chunked=True)
ask("HEAD", "/third")
ask("GET", "/events")
ask("GET", "/../x")
)",
                                           server_.path()});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output,
              ::testing::StartsWith("200 GET /first \n200 PUT /second abc\n200 PUT /chunked def\n"
                                    "200 \n200 one two\n400 {\"error\":"));
}

}  // namespace
}  // namespace ringside
