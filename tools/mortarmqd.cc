// mortarmqd: the broker as a process: arguments, configuration, signals, exit codes. Everything
// else is core/broker.
// Source: contract 1, 4.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "core/admin/config.h"
#include "core/broker.h"
#include "io-real/real_env.h"

namespace {

using mortar::Config;
using mortar::Error;
using mortar::ErrorCode;
using mortar::Result;

constexpr int EXIT_STOPPED = 0;
constexpr int EXIT_CONFIG = 2;
constexpr int EXIT_ENVIRONMENT = 3;
constexpr int EXIT_DATA_REFUSED = 4;

constexpr const char* EXAMPLES =
    "\nExamples:\n"
    "  mortarmqd --dev                              one node on 127.0.0.1, data in ./data\n"
    "  mortarmqd --dev --data-dir /tmp/mq           the same, data elsewhere\n"
    "  mortarmqd --print-default-config > mq.json   a file to start from\n"
    "  mortarmqd --config mq.json --check-config    is it right, and what does it come to?\n"
    "  mortarmqd --config mq.json                   run; SIGTERM or Ctrl-C stops it in good order\n"
    "\nExit codes: 0 stopped, 2 arguments or configuration, 3 environment (port, lock, "
    "permissions), 4 data refused.\n";

struct Arguments {
    std::string config_path;
    std::string data_dir;
    bool dev = false;
    bool check_config = false;
    bool print_default_config = false;
};

int exit_code_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::INVALID_CONFIG:
        case ErrorCode::ADDRESS_INVALID:
            return EXIT_CONFIG;
        case ErrorCode::UNSUPPORTED_FORMAT:
        case ErrorCode::DAMAGED:
        case ErrorCode::CHECKSUM_MISMATCH:
            return EXIT_DATA_REFUSED;
        default:
            return EXIT_ENVIRONMENT;
    }
}

int fail(const Error& error) {
    const std::string_view advice = mortar::error_info(error.code).client_does;
    if (error.code == ErrorCode::INVALID_CONFIG) {
        std::fprintf(stderr, "mortarmqd: %s\n", error.detail.c_str());
    } else {
        std::fprintf(stderr, "mortarmqd: %s (%.*s)\n", error.to_string().c_str(),
                     static_cast<int>(advice.size()), advice.data());
    }
    return exit_code_of(error.code);
}

Result<std::string> read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return mortar::make_error(ErrorCode::INVALID_CONFIG, "cannot read " + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<Config> load_config(const Arguments& arguments) {
    Config config;
    if (arguments.dev) {
        config = mortar::dev_config();
        if (!arguments.data_dir.empty()) config.data_dir = arguments.data_dir;
    } else {
        const std::string text = MORTAR_TRY(read_text(arguments.config_path));
        config = MORTAR_TRY(mortar::parse_config(text));
    }
    MORTAR_TRY(mortar::check_supported(config));
    return config;
}

int serve(const Config& config, bool is_dev) {
    mortar::RealEnvOptions options;
    options.root = config.data_dir;
    options.log_level = config.log_level;
    Result<std::unique_ptr<mortar::RealEnv>> created = mortar::RealEnv::create(options);
    if (!created.ok()) return fail(created.error());
    mortar::RealEnv& env = **created;
    std::optional<Result<void>> ended;
    {
        mortar::Broker broker(env.env(), {config, is_dev});
        const Result<void> caught =
            env.scheduler().catch_signals({SIGTERM, SIGINT}, [&broker](int) { broker.stop(); });
        if (!caught.ok()) return fail(caught.error());
        env.scheduler().spawn("broker.run", [&broker, &ended, &env](mortar::Fiber& fiber) {
            ended = broker.run(fiber);
            env.scheduler().stop();
        });
        env.run();
        // It stops already; a signal from now on must not turn the exit code into "killed".
        std::signal(SIGTERM, SIG_IGN);
        std::signal(SIGINT, SIG_IGN);
        env.shutdown();
    }
    if (!ended->ok()) return fail(ended->error());
    return EXIT_STOPPED;
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app("mortarmqd: the MortarMQ broker");
    app.footer(EXAMPLES);
    app.set_version_flag("--version", "mortarmqd " MORTAR_VERSION);
    auto* config = app.add_option("--config", arguments.config_path, "JSON configuration file");
    auto* dev = app.add_flag("--dev", arguments.dev,
                             "one node, every listener on 127.0.0.1, no configuration file");
    app.add_option("--data-dir", arguments.data_dir, "where --dev keeps its data")->needs(dev);
    app.add_flag("--check-config", arguments.check_config,
                 "check the configuration, print the effective values, exit");
    app.add_flag("--print-default-config", arguments.print_default_config,
                 "print a configuration to start from, exit");
    config->excludes(dev);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? EXIT_STOPPED : EXIT_CONFIG;
    }
    if (arguments.print_default_config) {
        std::fputs(mortar::default_config_text().c_str(), stdout);
        return EXIT_STOPPED;
    }
    if (arguments.config_path.empty() && !arguments.dev) {
        std::fprintf(stderr, "mortarmqd: give --config FILE or --dev; --help shows examples\n");
        return EXIT_CONFIG;
    }
    const Result<Config> loaded = load_config(arguments);
    if (!loaded.ok()) return fail(loaded.error());
    if (arguments.check_config) {
        std::fputs(mortar::print_config(*loaded).c_str(), stdout);
        return EXIT_STOPPED;
    }
    return serve(*loaded, arguments.dev);
}
