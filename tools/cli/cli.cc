#include "tools/cli/cli.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/admin/config.h"
#include "core/fiber/deadline.h"
#include "io-real/real_env.h"
#include "tools/common/program.h"

namespace mortar::cli {

namespace {

// What a line end may add to the longest token.
constexpr std::size_t TOKEN_FILE_BYTES_MAX = wire::MAX_TOKEN_LEN + 2;

bool read_token(const GlobalOptions& options, std::string& token) {
    if (options.token_file.empty()) return true;
    Result<std::string> text = read_text_file(options.token_file, TOKEN_FILE_BYTES_MAX);
    if (!text.ok()) {
        fmt::print(stderr, "mortarmq: --token-file: {}\n", text.error().detail);
        return false;
    }
    token = std::move(*text);
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r'))
        token.pop_back();
    if (token.size() <= wire::MAX_TOKEN_LEN) return true;
    fmt::print(stderr, "mortarmq: the token in {} is longer than {} bytes\n", options.token_file,
               wire::MAX_TOKEN_LEN);
    return false;
}

// What no waiting makes right.
bool check_address(const char* option, const std::string& address) {
    const Result<ListenAddress> parsed = parse_address(address);
    if (parsed.ok() && parsed->port != 0) return true;
    fmt::print(stderr, "mortarmq: {} \"{}\": {}\n", option, address,
               parsed.ok() ? "port 0 cannot be connected to" : parsed.error().detail);
    return false;
}

bool check_addresses(const GlobalOptions& options) {
    if (options.addresses.empty()) {
        fmt::print(stderr, "mortarmq: --addr names no address: write HOST:PORT,HOST:PORT\n");
        return false;
    }
    for (const std::string& address : options.addresses) {
        if (!check_address("--addr", address)) return false;
    }
    return check_address("--admin", options.admin);
}

const char* next_step(ErrorCode code) {
    switch (code) {
        case ErrorCode::UNKNOWN_TOPIC:
            return "`mortarmq topics create NAME` makes a topic, `topics list` shows them";
        case ErrorCode::AUTH_FAILED:
            return "check --token-file against auth/client.sha256 of the broker";
        case ErrorCode::TOPIC_EXISTS_MISMATCH:
            return "use the partition count it has, or another name";
        case ErrorCode::GROUP_EXISTS_MISMATCH:
            return "this group reads another topic: use another --group";
        case ErrorCode::UNSUPPORTED_VERSION:
            return "use a mortarmq of the broker's version";
        default:
            return nullptr;
    }
}

}  // namespace

client::LinkOptions Session::link_options() const {
    client::LinkOptions link;
    link.addresses = options.addresses;
    link.token = token;
    return link;
}

MonoTime Session::connect_deadline() const {
    return deadline_after(env.clock, seconds(options.connect_timeout_s));
}

int run_command(const GlobalOptions& given, const Command& command) {
    GlobalOptions options = given;
    options.addresses = client::split_addresses(given.addresses);
    std::string token;
    if (!check_addresses(options) || !read_token(options, token)) return EXIT_ARGUMENTS;
    RealEnvOptions env_options;
    env_options.log_level = LogLevel::WARN;
    Result<std::unique_ptr<RealEnv>> created = RealEnv::create(env_options);
    if (!created.ok()) return report(created.error());
    RealEnv& real = **created;
    const Env env = real.env();
    Session session{options, client::client_env(env), real.scheduler(), std::move(token)};
    int exit_code = EXIT_DONE;
    real.scheduler().spawn("cli.command", [&](Fiber& fiber) {
        exit_code = command(fiber, session);
        real.scheduler().stop();
    });
    real.run();
    real.shutdown();
    return finish_output("mortarmq", exit_code, EXIT_ARGUMENTS);
}

int report(const Error& error, const std::string& subject) {
    const ErrorInfo& info = error_info(error.code);
    const char* step = next_step(error.code);
    const std::string_view advice = step != nullptr ? std::string_view(step) : info.client_does;
    fmt::print(stderr, "mortarmq: {}{} ({})\n", subject, error.to_string(), advice);
    if (error.code == ErrorCode::INVALID_ARGUMENT) return EXIT_ARGUMENTS;
    return is_local(error.code) ? EXIT_UNREACHABLE : EXIT_REFUSED;
}

int report_unreachable(const Session& session, const Error& error) {
    if (!is_local(error.code)) return report(error);
    fmt::print(stderr,
               "mortarmq: {}\nmortarmq: is the broker running? `mortarmqd --dev` starts one; "
               "--addr HOST:PORT "
               "names another ({} s were spent, --connect-timeout changes that)\n",
               error.detail, session.options.connect_timeout_s);
    return EXIT_UNREACHABLE;
}

}  // namespace mortar::cli
