#include "tools/bench/broker_process.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/base/json.h"
#include "io-real/os_error.h"
#include "tools/bench/disk_probe.h"

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

bool is_healthy(std::uint16_t admin_port) {
    const Socket socket;
    const sockaddr_in address = loopback(admin_port);
    if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return false;
    constexpr std::string_view REQUEST =
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (::send(socket.fd(), REQUEST.data(), REQUEST.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(REQUEST.size()))
        return false;
    constexpr std::string_view YES = "HTTP/1.1 200";
    std::array<char, YES.size()> answer{};
    const ssize_t count = ::recv(socket.fd(), answer.data(), answer.size(), MSG_WAITALL);
    return count == static_cast<ssize_t>(YES.size()) &&
           std::string_view(answer.data(), answer.size()) == YES;
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

}  // namespace

std::string default_broker_program() {
    std::error_code ignored;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    return (self.parent_path() / "mortarmqd").string();
}

Result<std::unique_ptr<BrokerProcess>> BrokerProcess::start(Workspace& workspace,
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
    broker->admin_port_ = ports[2];
    std::string config;
    JsonWriter(config)
        .begin_object()
        .key("listen_client")
        .string(broker->client_address_)
        .key("listen_peer")
        .string(fmt::format("127.0.0.1:{}", ports[1]))
        .key("listen_admin")
        .string(fmt::format("127.0.0.1:{}", ports[2]))
        .key("data_dir")
        .string(broker->data_dir())
        .end_object();
    const std::string config_path = folder + "/config.json";
    std::ofstream(config_path) << config;
    broker->started_ns_ = now_ns();
    broker->pid_ = MORTAR_TRY(workspace.spawn({program, "--config", config_path}, folder + "/log"));
    return broker;
}

BrokerProcess::~BrokerProcess() {
    workspace_.end_child(SIGTERM);
}

void BrokerProcess::kill() {
    workspace_.end_child(SIGKILL);
}

Result<Duration> BrokerProcess::wait_healthy(Duration patience) {
    while (true) {
        const bool healthy = is_healthy(admin_port_);
        const Duration took{now_ns() - started_ns_};
        if (healthy) return took;
        if (workspace_.child_has_ended()) {
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
