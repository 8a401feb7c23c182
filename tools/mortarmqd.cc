// mortarmqd: the broker as a process: arguments, configuration, signals, exit codes. Everything
// else is core/broker.
// Source: contract 1, 4.
#include <malloc.h>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "core/admin/config.h"
#include "core/admin/data_folder.h"
#include "core/broker.h"
#include "io-real/real_env.h"
#include "tools/common/program.h"

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
    "  mortarmqd --config mq.json --check-config    would it start, and what does it come to?\n"
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

constexpr std::string_view DAMAGE_ADVICE =
    "restore the data_dir from a backup, or start with an empty one; mortarmq-dump shows what is "
    "damaged";

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
    std::string_view advice = mortar::error_info(error.code).client_does;
    if (error.code == ErrorCode::DAMAGED || error.code == ErrorCode::CHECKSUM_MISMATCH)
        advice = DAMAGE_ADVICE;
    if (error.code == ErrorCode::INVALID_CONFIG) {
        std::fprintf(stderr, "mortarmqd: %s\n", error.detail.c_str());
    } else {
        std::fprintf(stderr, "mortarmqd: %s (%.*s)\n", error.to_string().c_str(),
                     static_cast<int>(advice.size()), advice.data());
    }
    return exit_code_of(error.code);
}

// The disk would only say that it failed.
bool check_data_dir(const std::string& path) {
    std::error_code failed;
    const std::filesystem::file_status status = std::filesystem::status(path, failed);
    if (!std::filesystem::exists(status) || std::filesystem::is_directory(status)) return true;
    std::fprintf(stderr, "mortarmqd: data_dir %s: it is a file; give the path of a folder\n",
                 path.c_str());
    return false;
}

Result<Config> load_config(const Arguments& arguments) {
    Config config;
    if (arguments.dev) {
        config = mortar::dev_config();
        if (!arguments.data_dir.empty()) config.data_dir = arguments.data_dir;
    } else {
        const Result<std::string> text =
            mortar::read_text_file(arguments.config_path, mortar::CONFIG_BYTES_MAX);
        if (!text.ok())
            return mortar::make_error(ErrorCode::INVALID_CONFIG,
                                      "--config: " + text.error().detail);
        config = MORTAR_TRY(mortar::parse_config(*text));
    }
    MORTAR_TRY(mortar::check_supported(config));
    return config;
}

mortar::RealEnvOptions env_options(const Config& config) {
    mortar::RealEnvOptions options;
    options.root = config.data_dir;
    options.log_level = config.log_level;
    return options;
}

// The same that the broker looks at when it starts.
int check_config(const Config& config) {
    Result<std::unique_ptr<mortar::RealEnv>> created = mortar::RealEnv::create(env_options(config));
    if (!created.ok()) return fail(created.error());
    mortar::RealEnv& env = **created;
    std::optional<Error> refused;
    env.scheduler().spawn("check", [&](mortar::Fiber& fiber) {
        const auto checked = mortar::check_folder(fiber, env.env().disk, config);
        if (!checked.ok()) refused = checked.error();
        env.scheduler().stop();
    });
    env.run();
    env.shutdown();
    if (refused) return fail(*refused);
    std::fputs(mortar::print_config(config).c_str(), stdout);
    return EXIT_STOPPED;
}

int serve(Config config, bool is_dev) {
    // People look for their data later, and from other folders.
    std::error_code failed;
    const std::filesystem::path absolute = std::filesystem::absolute(config.data_dir, failed);
    if (!failed) config.data_dir = absolute.lexically_normal().string();
    Result<std::unique_ptr<mortar::RealEnv>> created = mortar::RealEnv::create(env_options(config));
    if (!created.ok()) return fail(created.error());
    mortar::RealEnv& env = **created;
    std::optional<Result<void>> ended;
    {
        mortar::BrokerOptions options;
        options.config = config;
        options.is_dev = is_dev;
        mortar::Broker broker(env.env(), std::move(options));
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

// The logs' memory comes and goes in pieces of up to 1 MiB. Given back to the system each time, its page faults cost a fifth
// of the messages a second (16 connections, 16 partitions, three brokers on two cores).
void keep_freed_memory() {
    mallopt(M_MMAP_THRESHOLD, 16 << 20);
    mallopt(M_TRIM_THRESHOLD, 128 << 20);
    mallopt(M_TOP_PAD, 4 << 20);
}

}  // namespace

int main(int argc, char** argv) {
    keep_freed_memory();
    mortar::open_standard_files();
    const auto finish = [](int exit_code) {
        return mortar::finish_output("mortarmqd", exit_code, EXIT_ENVIRONMENT);
    };
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
        return finish(app.exit(error) == 0 ? EXIT_STOPPED : EXIT_CONFIG);
    }
    if (arguments.print_default_config) {
        std::fputs(mortar::default_config_text().c_str(), stdout);
        return finish(EXIT_STOPPED);
    }
    if (arguments.config_path.empty() && !arguments.dev) {
        std::fprintf(stderr, "mortarmqd: give --config FILE or --dev; --help shows examples\n");
        return EXIT_CONFIG;
    }
    const Result<Config> loaded = load_config(arguments);
    if (!loaded.ok()) return fail(loaded.error());
    if (!check_data_dir(loaded->data_dir)) return EXIT_ENVIRONMENT;
    if (arguments.check_config) return finish(check_config(*loaded));
    return serve(*loaded, arguments.dev);
}
