// real_world: a RealEnv on a temporary folder for tests; run_fiber runs one body to its end on the
// loop.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "io-real/real_env.h"

namespace mortar::testing {

class TempFolder {
  public:
    TempFolder() {
        std::string name = ::testing::TempDir() + "mortar-io-XXXXXX";
        path = ::mkdtemp(name.data());
    }
    ~TempFolder() { std::filesystem::remove_all(path); }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    std::string path;
};

struct RealWorld {
    RealWorld() { open(folder.path); }
    explicit RealWorld(const std::string& root) { open(root); }

    void open(const std::string& root) {
        RealEnvOptions options;
        options.root = root;
        options.log_level = LogLevel::WARN;
        real = RealEnv::create(options).value();
    }
    RealScheduler& loop() { return real->scheduler(); }
    Env env() { return real->env(); }
    MonoTime in(Duration duration) { return env().clock.now() + duration; }
    // The loop stops when the body has ended.
    void run_fiber(FiberBody body) {
        loop().spawn("test.main", [this, body = std::move(body)](Fiber& fiber) {
            body(fiber);
            loop().stop();
        });
        real->run();
    }

    TempFolder folder;
    std::unique_ptr<RealEnv> real;
};

inline ByteVector to_bytes(const std::string& text) {
    const ByteSpan bytes = as_byte_span(text);
    return ByteVector(bytes.begin(), bytes.end());
}

}  // namespace mortar::testing
