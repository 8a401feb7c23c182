// broker_process: a mortarmqd of our own on free ports of 127.0.0.1, as a child; alone, or one of a cluster.
// Shape:    data, configuration and log lie in a folder of the workspace; /healthz tells when it serves.
// Owns:     its process.
// Errors:   start: NOT_FOUND when there is no program; IO_ERROR with the end of the broker's log when it does not come up.
// Source:   contract 4, 5.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/env/clock.h"
#include "tools/bench/workspace.h"

namespace mortar::bench {

// mortarmqd beside this program.
std::string default_broker_program();

class BrokerProcess {
  public:
    // Returns at once; name is the folder's in the workspace, made when absent.
    static Result<std::unique_ptr<BrokerProcess>> start(Workspace& workspace,
                                                        const std::string& program,
                                                        const std::string& name);
    // node_count of them, 1 or 3, peers of each other with one peer.key.
    static Result<std::vector<std::unique_ptr<BrokerProcess>>> start_cluster(
        Workspace& workspace, const std::string& program, std::size_t node_count);
    ~BrokerProcess();
    BrokerProcess(const BrokerProcess&) = delete;
    BrokerProcess& operator=(const BrokerProcess&) = delete;

    // Returns how long it took from start until /healthz said yes.
    Result<Duration> wait_healthy(Duration patience);
    const std::string& client_address() const { return client_address_; }
    const std::string& admin_address() const { return admin_address_; }
    std::string data_dir() const { return folder_ + "/data"; }
    void kill();
    // After kill: as it was started before.
    Result<void> start_again();

    // Processor time of all its threads; what its system calls have read, from the page cache too.
    Result<Duration> cpu_time() const;
    Result<std::uint64_t> read_bytes() const;

  private:
    BrokerProcess(Workspace& workspace, std::string folder)
        : workspace_(workspace), folder_(std::move(folder)) {}
    static Result<std::unique_ptr<BrokerProcess>> prepare(Workspace& workspace,
                                                          const std::string& program,
                                                          const std::string& name);
    // Writes the configuration. peers: a JSON array, or empty.
    Result<void> launch(const std::string& program, std::size_t node_id, const std::string& peers);
    std::string log_tail() const;

    Workspace& workspace_;
    std::string folder_;
    std::string client_address_;
    std::string peer_address_;
    std::string admin_address_;
    std::vector<std::string> command_;
    pid_t pid_ = 0;
    std::int64_t started_ns_ = 0;
};

}  // namespace mortar::bench
