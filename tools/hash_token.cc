// mortarmq-hash-token: makes a token, or turns one into the digest line that the broker stores.
#include <sodium/randombytes.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "core/base/hash.h"
#include "tools/common/program.h"

namespace {
using mortar::ByteSpan;

constexpr int DONE = 0;
constexpr int OUTPUT_LOST = 1;
constexpr int BAD_ARGUMENTS = 2;
constexpr std::size_t TOKEN_RANDOM_BYTES = 32;
constexpr std::size_t TOKEN_BYTES_MAX = 4096;  // what CONNECT can carry

constexpr char HELP[] =
    "usage: mortarmq-hash-token [--new]\n"
    "\n"
    "Prints the digest of a client token: a line for data_dir/auth/client.sha256.\n"
    "Without arguments one token is read from the standard input (one line; its end does not "
    "count).\n"
    "\n"
    "  --new       make a token from 32 random bytes; prints two lines, `token ...` and `digest "
    "...`\n"
    "  --help      this text\n"
    "  --version   the version\n"
    "\n"
    "examples:\n"
    "  mortarmq-hash-token --new\n"
    "  mortarmq-hash-token < token.txt >> data/auth/client.sha256\n"
    "\n"
    "exit status: 0 done, 1 the output could not be written, 2 bad arguments or no token\n";

std::string digest_line(std::string_view token) {
    return mortar::to_hex(mortar::sha256(mortar::as_byte_span(token)));
}

int make_new() {
    std::array<std::byte, TOKEN_RANDOM_BYTES> random;
    randombytes_buf(random.data(), random.size());
    const std::string token = mortar::to_hex(random);
    std::printf("token  %s\ndigest %s\n", token.c_str(), digest_line(token).c_str());
    return DONE;
}

int hash_input() {
    std::string token;
    char buffer[1024];
    while (token.size() <= TOKEN_BYTES_MAX) {
        const std::size_t count = std::fread(buffer, 1, sizeof buffer, stdin);
        if (count == 0) break;
        token.append(buffer, count);
    }
    if (token.ends_with('\n')) token.pop_back();
    if (token.ends_with('\r')) token.pop_back();
    if (token.empty() || token.size() > TOKEN_BYTES_MAX || token.find('\n') != std::string::npos) {
        std::fprintf(stderr, "mortarmq-hash-token: a token is one line of 1..%zu bytes\n",
                     TOKEN_BYTES_MAX);
        return BAD_ARGUMENTS;
    }
    std::printf("%s\n", digest_line(token).c_str());
    return DONE;
}
int run(int argument_count, char** arguments) {
    if (argument_count == 1) return hash_input();
    const std::string_view argument = arguments[1];
    if (argument_count == 2 && argument == "--new") return make_new();
    if (argument_count == 2 && argument == "--help") {
        std::fputs(HELP, stdout);
        return DONE;
    }
    if (argument_count == 2 && argument == "--version") {
        std::puts("mortarmq-hash-token " MORTAR_VERSION);
        return DONE;
    }
    std::fputs(HELP, stderr);
    return BAD_ARGUMENTS;
}
}  // namespace

int main(int argument_count, char** arguments) {
    mortar::open_standard_files();
    return mortar::finish_output("mortarmq-hash-token", run(argument_count, arguments),
                                 OUTPUT_LOST);
}
