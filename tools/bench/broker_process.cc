#include "tools/bench/broker_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/base/json.h"
#include "io-real/os_error.h"
#include "io-real/real_rng.h"
#include "tools/bench/disk_probe.h"
#include "tools/bench/http.h"

namespace mortar::bench {
namespace {

constexpr useconds_t HEALTH_POLL_US = 1000;
constexpr std::size_t LOG_TAIL_BYTES = 2000;

class Socket {
  public:
    Socket() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
    ~Socket() { ::close(fd_); }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    int fd() const { return fd_; }

  private:
    int fd_;
};

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// Ports that nobody uses now; held together while they are chosen, so that they differ.
Result<std::vector<std::uint16_t>> free_ports(std::size_t count) {
    std::vector<Socket> sockets(count);
    std::vector<std::uint16_t> ports;
    for (const Socket& socket : sockets) {
        sockaddr_in address = loopback(0);
        socklen_t length = sizeof address;
        auto* generic = reinterpret_cast<sockaddr*>(&address);
        if (::bind(socket.fd(), generic, length) != 0 ||
            ::getsockname(socket.fd(), generic, &length) != 0) {
            return make_error(ErrorCode::IO_ERROR, "no free port: " + os_reason(errno));
        }
        ports.push_back(ntohs(address.sin_port));
    }
    return ports;
}

bool is_healthy(const std::string& admin_address) {
    constexpr int HTTP_OK = 200;
    const Result<cli::HttpAnswer> answer = http_get(admin_address, "/healthz");
    return answer.ok() && answer->status == HTTP_OK;
}

std::string read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

std::uint64_t number_at(std::string_view text) {
    std::uint64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

std::string new_peer_key() {
    constexpr int WORDS = 4;  // 32 bytes
    Rng rng = RealRng().stream("bench.peer_key");
    std::string key;
    for (int i = 0; i < WORDS; ++i)
        key += fmt::format("{:016x}", rng.next());
    return key;
}

Result<void> write_peer_key(const std::string& data_dir, const std::string& key) {
    const std::string folder = data_dir + "/auth";
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    const std::string path = folder + "/peer.key";
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return make_error(ErrorCode::IO_ERROR, path + ": " + os_reason(errno));
    const std::string line = key + "\n";
    const bool written = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    ::close(fd);
    if (!written) return make_error(ErrorCode::IO_ERROR, "cannot write " + path);
    return {};
}

}  // namespace

std::string default_broker_program() {
    std::error_code ignored;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    return (self.parent_path() / "mortarmqd").string();
}

Result<std::unique_ptr<BrokerProcess>> BrokerProcess::start(Workspace& workspace,
                                                            const std::string& program,
                                                            const std::string& name) {
    std::unique_ptr<BrokerProcess> broker = MORTAR_TRY(prepare(workspace, program, name));
    MORTAR_TRY(broker->launch(program, 0, {}));
    return broker;
}

Result<std::vector<std::unique_ptr<BrokerProcess>>> BrokerProcess::start_cluster(
    Workspace& workspace, const std::string& program, std::size_t node_count) {
    std::vector<std::unique_ptr<BrokerProcess>> brokers;
    for (std::size_t i = 0; i < node_count; ++i)
        brokers.push_back(MORTAR_TRY(prepare(workspace, program, fmt::format("node-{}", i))));
    if (node_count == 1) {
        MORTAR_TRY(brokers.front()->launch(program, 0, {}));
        return brokers;
    }
    std::string peers;
    JsonWriter writer(peers);
    writer.begin_array();
    for (std::size_t i = 0; i < node_count; ++i) {
        writer.begin_object().key("node_id").number(i);
        writer.key("addr").string(brokers[i]->peer_address_).end_object();
    }
    writer.end_array();
    const std::string key = new_peer_key();
    for (const auto& broker : brokers)
        MORTAR_TRY(write_peer_key(broker->data_dir(), key));
    for (std::size_t i = 0; i < node_count; ++i)
        MORTAR_TRY(brokers[i]->launch(program, i, peers));
    return brokers;
}

Result<std::unique_ptr<BrokerProcess>> BrokerProcess::prepare(Workspace& workspace,
                                                              const std::string& program,
                                                              const std::string& name) {
    if (::access(program.c_str(), X_OK) != 0) {
        return make_error(ErrorCode::NOT_FOUND, program + ": " + os_reason(errno) +
                                                    "; build mortarmqd, or name it with --broker");
    }
    const std::string folder = workspace.path() + "/" + name;
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) return make_error(ErrorCode::IO_ERROR, folder + ": " + failed.message());
    std::unique_ptr<BrokerProcess> broker(new BrokerProcess(workspace, folder));
    const std::vector<std::uint16_t> ports = MORTAR_TRY(free_ports(3));
    broker->client_address_ = fmt::format("127.0.0.1:{}", ports[0]);
    broker->peer_address_ = fmt::format("127.0.0.1:{}", ports[1]);
    broker->admin_address_ = fmt::format("127.0.0.1:{}", ports[2]);
    return broker;
}

Result<void> BrokerProcess::launch(const std::string& program, std::size_t node_id,
                                   const std::string& peers) {
    std::string config;
    JsonWriter writer(config);
    writer.begin_object().key("node_id").number(node_id);
    writer.key("listen_client").string(client_address_);
    writer.key("listen_peer").string(peer_address_);
    writer.key("listen_admin").string(admin_address_);
    writer.key("data_dir").string(data_dir()).end_object();
    if (!peers.empty()) config.insert(config.rfind('}'), ",\"peers\":" + peers);
    const std::string config_path = folder_ + "/config.json";
    std::ofstream(config_path) << config;
    command_ = {program, "--config", config_path};
    return start_again();
}

Result<void> BrokerProcess::start_again() {
    started_ns_ = now_ns();
    pid_ = MORTAR_TRY(workspace_.spawn(command_, folder_ + "/log"));
    return {};
}

BrokerProcess::~BrokerProcess() {
    workspace_.end_child(pid_, SIGTERM);
}

void BrokerProcess::kill() {
    workspace_.end_child(pid_, SIGKILL);
}

Result<Duration> BrokerProcess::wait_healthy(Duration patience) {
    while (true) {
        const bool healthy = is_healthy(admin_address_);
        const Duration took{now_ns() - started_ns_};
        if (healthy) return took;
        if (workspace_.child_has_ended(pid_)) {
            return make_error(ErrorCode::IO_ERROR,
                              "the broker ended; its log says:\n" + log_tail());
        }
        if (took > patience) {
            return make_error(ErrorCode::TIMED_OUT,
                              "the broker is not healthy yet; its log says:\n" + log_tail());
        }
        ::usleep(HEALTH_POLL_US);
    }
}

std::string BrokerProcess::log_tail() const {
    const std::string log = read_text(folder_ + "/log");
    return log.size() <= LOG_TAIL_BYTES ? log : log.substr(log.size() - LOG_TAIL_BYTES);
}

Result<Duration> BrokerProcess::cpu_time() const {
    const std::string text = read_text(fmt::format("/proc/{}/stat", pid_));
    // The second field is the name in parentheses; utime and stime are fields 14 and 15.
    std::size_t at = text.rfind(')');
    for (int field = 2; at != std::string::npos && field < 14; ++field)
        at = text.find(' ', at + 1);
    if (at == std::string::npos) return make_error(ErrorCode::IO_ERROR, "the broker is gone");
    const std::size_t next = text.find(' ', at + 1);
    const std::uint64_t ticks = number_at(std::string_view(text).substr(at + 1)) +
                                number_at(std::string_view(text).substr(next + 1));
    return Duration{static_cast<std::int64_t>(ticks) * 1'000'000'000 / ::sysconf(_SC_CLK_TCK)};
}

Result<std::uint64_t> BrokerProcess::read_bytes() const {
    const std::string text = read_text(fmt::format("/proc/{}/io", pid_));
    constexpr std::string_view KEY = "rchar: ";
    const std::size_t at = text.find(KEY);
    if (at == std::string::npos) return make_error(ErrorCode::IO_ERROR, "no /proc/PID/io");
    return number_at(std::string_view(text).substr(at + KEY.size()));
}

}  // namespace mortar::bench
