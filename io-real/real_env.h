// real_env: the real world as one object: clock, loop, sockets, files, randomness, log.
// Use:    create, spawn the first fiber on scheduler(), run. At the end shutdown, then destroy what
// the fibers used,
//         then the RealEnv.
// Owns:   everything behind env(). Threads start when first needed, so a program that touches no
// file has none but the
//         log's.
// Errors: create: LIMIT_REACHED.
#pragma once

#include <memory>
#include <string>

#include "core/env/env.h"
#include "io-real/loop.h"
#include "io-real/real_clock.h"
#include "io-real/real_disk.h"
#include "io-real/real_log.h"
#include "io-real/real_net.h"
#include "io-real/real_rng.h"
#include "io-real/stack_pool.h"

namespace mortar {

struct RealEnvOptions {
    std::string root = ".";  // Disk's paths are relative to it; made by make_folders(fiber, "")
    LogLevel log_level = LogLevel::INFO;
    Duration loop_spin = RealScheduler::SPIN_BEFORE_SLEEP;
};

class RealEnv {
  public:
    // Raises the limit of open descriptors to what the process may have.
    static Result<std::unique_ptr<RealEnv>> create(RealEnvOptions options = {});
    ~RealEnv();
    RealEnv(const RealEnv&) = delete;
    RealEnv& operator=(const RealEnv&) = delete;

    Env env();
    RealScheduler& scheduler() { return *loop_; }
    RealLog& log() { return log_; }
    // Until scheduler().stop().
    void run() { loop_->run(); }
    // Ends the disk threads and unwinds all fibers. Not from a fiber. Idempotent; nothing runs
    // afterwards.
    void shutdown();

  private:
    explicit RealEnv(const RealEnvOptions& options);

    RealClock clock_;
    GuardedStackPool stacks_;
    RealLog log_;
    RealRng rng_;
    std::unique_ptr<RealScheduler> loop_;
    std::unique_ptr<RealNet> net_;
    std::unique_ptr<RealDisk> disk_;
};

}  // namespace mortar
