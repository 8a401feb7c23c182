#include "io-real/real_env.h"

#include <sys/resource.h>

namespace mortar {
namespace {

void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    // Refused only by a security policy; then the limit that was there is the one that counts.
    setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<std::unique_ptr<RealEnv>> RealEnv::create(RealEnvOptions options) {
    raise_descriptor_limit();
    std::unique_ptr<RealEnv> made(new RealEnv(options));
    made->loop_ = MORTAR_TRY(RealScheduler::create(made->clock_, made->stacks_, options.loop_spin));
    made->net_ = std::make_unique<RealNet>(*made->loop_, made->log_);
    made->disk_ = std::make_unique<RealDisk>(*made->loop_, options.root);
    return made;
}

RealEnv::RealEnv(const RealEnvOptions& options) : log_(clock_, options.log_level) {}

RealEnv::~RealEnv() {
    shutdown();
}

Env RealEnv::env() {
    return Env{clock_, *loop_, *net_, *disk_, rng_, log_};
}

void RealEnv::shutdown() {
    if (disk_ != nullptr) disk_->stop();
    if (loop_ != nullptr) loop_->shutdown();
}

}  // namespace mortar
