#include "tests/process/mortarmqd.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "core/base/hash.h"

namespace mortar::process {
namespace {

constexpr Millis POLL_STEP(5);
constexpr std::size_t READ_BYTES = 64 * 1024;

int left_ms(SteadyTime deadline) {
    const auto left = std::chrono::duration_cast<Millis>(deadline - now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
}

// In the child, between fork and exec: nothing that allocates.
[[noreturn]] void become(char* const* arguments, int output, const ProgramOptions& options) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, STDIN_FILENO);
    if (options.ignores_file_limit) ::signal(SIGXFSZ, SIG_IGN);
    if (options.uid != 0) {
        if (::setgroups(0, nullptr) != 0 || ::setgid(options.uid) != 0 ||
            ::setuid(options.uid) != 0)
            ::_exit(126);
    }
    ::execv(arguments[0], arguments);
    ::_exit(127);
}

std::uint16_t port_behind(const std::string& text, const std::string& word) {
    const std::size_t at = text.find(word);
    if (at == std::string::npos) return 0;
    const std::size_t colon = text.find(':', at);
    return static_cast<std::uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10));
}

}  // namespace

TempFolder::TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mortarmq-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
    ::chmod(path_.c_str(), 0755);
}

TempFolder::~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << bytes;
    file.flush();
    EXPECT_TRUE(file.good()) << path;
}

void poke_file(const std::string& path, std::uint64_t file_offset, std::uint8_t value) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_GE(file, 0) << path;
    EXPECT_EQ(::pwrite(file, &value, 1, static_cast<off_t>(file_offset)), 1) << path;
    ::close(file);
}

std::string listing(const std::string& folder) {
    std::vector<std::string> lines;
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator at(folder, error), end; at != end;
         at.increment(error)) {
        if (at->path().filename() == "LOCK") continue;
        const std::string path = at->path().string();
        struct stat status {};
        EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
        std::string line = path.substr(folder.size());
        line += at->is_directory() ? " folder " : " file ";
        line += std::to_string(status.st_mode);
        if (!at->is_directory()) {
            const std::string bytes = read_file(path);
            line += " " + std::to_string(bytes.size()) + " " + to_hex(sha256(as_byte_span(bytes)));
        }
        lines.push_back(line);
    }
    std::sort(lines.begin(), lines.end());
    std::string text;
    for (const std::string& line : lines)
        text += line + "\n";
    return text;
}

std::string changes(const std::string& before, const std::string& after) {
    const auto lines_of = [](const std::string& text) {
        std::set<std::string> lines;
        std::istringstream stream(text);
        for (std::string line; std::getline(stream, line);)
            lines.insert(line);
        return lines;
    };
    const std::set<std::string> old_lines = lines_of(before);
    const std::set<std::string> new_lines = lines_of(after);
    std::string text;
    for (const std::string& line : old_lines) {
        if (new_lines.count(line) == 0) text += "- " + line + "\n";
    }
    for (const std::string& line : new_lines) {
        if (old_lines.count(line) == 0) text += "+ " + line + "\n";
    }
    return text;
}

// --- Program

Program::Program(const std::vector<std::string>& arguments, const ProgramOptions& options) {
    std::vector<char*> pointers;
    for (const std::string& argument : arguments)
        pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    const int output =
        ::open((folder_ / "output").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    EXPECT_GE(output, 0);
    pid_ = ::fork();
    if (pid_ == 0) become(pointers.data(), output, options);
    ::close(output);
    EXPECT_GT(pid_, 0);
}

Program::~Program() {
    if (exit_code_.has_value() || pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
}

bool Program::wait_for_output(const std::string& text, Millis timeout) const {
    for (const SteadyTime deadline = now() + timeout; now() < deadline;
         std::this_thread::sleep_for(POLL_STEP)) {
        if (output().find(text) != std::string::npos) return true;
    }
    return false;
}

void Program::signal(int number) const {
    if (!exit_code_.has_value()) ::kill(pid_, number);
}

std::optional<int> Program::wait(Millis timeout) {
    const SteadyTime deadline = now() + timeout;
    while (!exit_code_.has_value()) {
        int status = 0;
        if (::waitpid(pid_, &status, WNOHANG) == pid_) {
            exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        } else if (now() >= deadline) {
            return std::nullopt;
        } else {
            std::this_thread::sleep_for(POLL_STEP);
        }
    }
    return exit_code_;
}

Ran run(const std::vector<std::string>& arguments, const ProgramOptions& options) {
    Program program(arguments, options);
    const std::optional<int> exit_code = program.wait(Millis(30'000));
    EXPECT_TRUE(exit_code.has_value()) << arguments[0] << " does not end: " << program.output();
    return {exit_code.value_or(-1), program.output()};
}

// --- Broker

std::string broker_path() {
    return MORTARMQD_PATH;
}

std::string broker_config(const std::string& data_dir, const std::string& more) {
    std::string text = "{\"data_dir\": \"" + data_dir + "\"";
    for (const char* key : {"listen_client", "listen_peer", "listen_admin"}) {
        if (more.find(key) == std::string::npos)
            text += std::string(", \"") + key + "\": \"127.0.0.1:0\"";
    }
    return text + (more.empty() ? "" : ", " + more) + "}";
}

Broker::Broker(const std::string& data_dir, const std::string& more_config) {
    write_file(folder_ / "config.json", broker_config(data_dir, more_config));
    ProgramOptions options;
    options.ignores_file_limit = true;
    program_ = std::make_unique<Program>(
        std::vector<std::string>{broker_path(), "--config", folder_ / "config.json"}, options);
    EXPECT_TRUE(program_->wait_for_output(" ready ")) << program_->output();
    const std::string output = program_->output();
    client_port_ = port_behind(output, "client=");
    admin_port_ = port_behind(output, "admin=");
}

std::uint64_t Broker::rss_bytes() const {
    const std::string text = read_file("/proc/" + std::to_string(program_->pid()) + "/status");
    const std::size_t at = text.find("VmRSS:");
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 6, nullptr, 10) * 1024;
}

std::uint64_t Broker::read_bytes() const {
    const std::string text = read_file("/proc/" + std::to_string(program_->pid()) + "/io");
    const std::size_t at = text.find("rchar:");
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 6, nullptr, 10);
}

std::string Broker::http_get(const std::string& path) const {
    RawClient socket(admin_port_);
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    socket.send(as_byte_span(request));
    std::string text;
    char buffer[4096];
    const SteadyTime deadline = now() + Millis(10'000);
    while (now() < deadline) {
        pollfd waited{socket.descriptor(), POLLIN, 0};
        if (::poll(&waited, 1, left_ms(deadline)) <= 0) break;
        const ssize_t count = ::recv(socket.descriptor(), buffer, sizeof buffer, 0);
        if (count <= 0) break;
        text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
}

bool Broker::is_healthy() const {
    const std::string answer = http_get("/healthz");
    const bool healthy = answer.find(" 200 ") != std::string::npos &&
                         answer.find("\"status\":\"healthy\"") != std::string::npos;
    EXPECT_TRUE(healthy) << answer;
    return healthy;
}

void Broker::kill() {
    program_->signal(SIGKILL);
    program_->wait(Millis(20'000));
}

int Broker::stop() {
    program_->signal(SIGTERM);
    return program_->wait(Millis(30'000)).value_or(-1);
}

// --- RawClient

RawClient::RawClient(std::uint16_t port) {
    descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT_GE(descriptor_, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int connected =
        ::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (connected != 0 && errno == EINPROGRESS) {
        pollfd waited{descriptor_, POLLOUT, 0};
        int error = 0;
        socklen_t size = sizeof error;
        is_open_ = ::poll(&waited, 1, 20'000) == 1 &&
                   ::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
                   error == 0;
    } else {
        is_open_ = connected == 0;
    }
    const int on = 1;
    ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

RawClient::~RawClient() {
    ::close(descriptor_);
}

std::size_t RawClient::send_some(ByteSpan bytes) {
    const ssize_t count =
        ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EAGAIN && errno != EINTR) is_open_ = false;
    return 0;
}

bool RawClient::send(ByteSpan bytes, Millis timeout) {
    const SteadyTime deadline = now() + timeout;
    while (is_open_ && !bytes.empty()) {
        const std::size_t count = send_some(bytes);
        bytes = bytes.subspan(count);
        if (count > 0) continue;
        pollfd waited{descriptor_, POLLOUT, 0};
        if (!is_open_ || ::poll(&waited, 1, left_ms(deadline)) == 0) return false;
    }
    return is_open_;
}

bool RawClient::fill(SteadyTime deadline) {
    if (next_ > READ_BYTES) {
        received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(next_));
        next_ = 0;
    }
    pollfd waited{descriptor_, POLLIN, 0};
    if (::poll(&waited, 1, left_ms(deadline)) <= 0) return false;
    scratch_.resize(READ_BYTES);
    const ssize_t count = ::recv(descriptor_, scratch_.data(), scratch_.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (count <= 0) {
        is_open_ = false;
        return false;
    }
    received_.insert(received_.end(), scratch_.begin(), scratch_.begin() + count);
    return true;
}

std::optional<Answer> RawClient::read(Millis timeout) {
    const SteadyTime deadline = now() + timeout;
    while (true) {
        const std::size_t unread = received_.size() - next_;
        if (unread >= wire::LENGTH_BYTES) {
            const std::size_t length = load_be<std::uint32_t>(received_.data() + next_);
            if (unread >= wire::LENGTH_BYTES + length) {
                const ByteSpan frame =
                    ByteSpan(received_).subspan(next_ + wire::LENGTH_BYTES, length);
                next_ += wire::LENGTH_BYTES + length;
                Answer answer;
                answer.frame_op = std::to_integer<std::uint8_t>(frame[0]);
                answer.payload.assign(frame.begin() + 1, frame.end());
                if (wire::Op{answer.frame_op} == wire::Op::ERR) {
                    const wire::Err err = wire::decode_err(answer.payload).value();
                    answer.is_answer = true;
                    answer.op = wire::Op{err.request_op};
                    answer.code = static_cast<ErrorCode>(err.code);
                    answer.text = std::string(err.message);
                } else if (wire::Op{answer.frame_op} == wire::Op::OK) {
                    const wire::Ok ok = wire::decode_ok(answer.payload).value();
                    answer.is_answer = true;
                    answer.op = ok.request_op;
                    answer.result.assign(ok.result.begin(), ok.result.end());
                }
                return answer;
            }
        }
        if (!fill(deadline)) return std::nullopt;
    }
}

std::optional<Answer> RawClient::read_answer(Millis timeout) {
    const SteadyTime deadline = now() + timeout;
    while (std::optional<Answer> answer = read(Millis(left_ms(deadline)))) {
        if (answer->is_answer) return answer;
        pushes.push_back(std::move(*answer));
    }
    return std::nullopt;
}

Answer RawClient::closed_answer() {
    Answer answer;
    answer.code = ErrorCode::CONNECTION_CLOSED;
    return answer;
}

bool RawClient::connect(std::string_view token) {
    wire::Connect connect;
    connect.token = as_byte_span(token);
    const Answer answer = ask(connect);
    return answer.code == ErrorCode{} && answer.op == wire::Op::CONNECT;
}

bool RawClient::is_closed_within(Millis timeout) {
    for (const SteadyTime deadline = now() + timeout; now() < deadline;) {
        if (!fill(deadline) && !is_open_) return true;
    }
    return false;
}

std::unique_ptr<RawClient> connected_client(std::uint16_t port) {
    auto client = std::make_unique<RawClient>(port);
    EXPECT_TRUE(client->connect());
    return client;
}

TopicId declare_topic(RawClient& client, const std::string& name, std::uint16_t partition_count) {
    const Answer answer = client.ask(wire::Declare{name, partition_count, 0});
    EXPECT_EQ(answer.code, ErrorCode{}) << answer.text;
    const Result<wire::DeclareResult> result = wire::decode_declare_result(answer.result);
    EXPECT_TRUE(result.ok());
    return result.ok() ? result->topic_id : TopicId{};
}

wire::Pub pub_of(TopicId topic, std::string_view value, std::uint64_t producer, std::uint64_t seq) {
    wire::Pub pub;
    pub.topic_id = topic;
    pub.producer_id = ProducerId(producer);
    pub.producer_seq = ProducerSeq(seq);
    pub.value = as_byte_span(value);
    return pub;
}

std::optional<Subscribed> subscribe(RawClient& client, const std::string& group, TopicId topic,
                                    std::uint16_t partition_count, std::uint16_t credit_count,
                                    std::uint32_t credit_bytes) {
    wire::Sub sub;
    sub.group = group;
    sub.topic_id = topic;
    sub.credit_count = credit_count;
    sub.credit_bytes = credit_bytes;
    const Answer answer = client.ask(sub);
    EXPECT_EQ(answer.code, ErrorCode{}) << answer.text;
    if (answer.code != ErrorCode{}) return std::nullopt;
    Subscribed subscribed;
    subscribed.sub = wire::decode_sub_result(answer.result).value();
    while (subscribed.notices.size() < partition_count) {
        std::optional<Answer> push;
        if (!client.pushes.empty()) {
            push = client.pushes.front();
            client.pushes.erase(client.pushes.begin());
        } else {
            push = client.read();
        }
        if (!push.has_value()) return std::nullopt;
        const wire::Notice notice = wire::decode_notice(push->payload).value();
        subscribed.notices.push_back(notice);
    }
    for (const wire::Notice& notice : subscribed.notices) {
        const Answer confirmed = client.ask(wire::ControlAck{
            notice.notice_id, notice.kind, notice.group_id, notice.membership_epoch,
            notice.assignment_epoch, notice.ownership_epoch, wire::ControlResult::OK});
        EXPECT_EQ(confirmed.code, ErrorCode{}) << confirmed.text;
    }
    return subscribed;
}

wire::Pull pull_of(const Subscribed& subscribed, std::uint16_t max_msgs, std::uint16_t wait_ms) {
    wire::Pull pull;
    pull.subscription_id = subscribed.sub.subscription_id;
    pull.member_id = subscribed.sub.member_id;
    pull.membership_epoch = subscribed.sub.membership_epoch;
    pull.assignment_epoch = subscribed.sub.assignment_epoch;
    pull.max_msgs = max_msgs;
    pull.wait_ms = wait_ms;
    return pull;
}

wire::Ack ack_of(const wire::Msg& msg) {
    return {msg.subscription_id,
            msg.topic_id,
            msg.partition,
            msg.sequence,
            msg.delivery_id,
            msg.ownership_epoch,
            0};
}

std::string name_of(ErrorCode code) {
    if (code == ErrorCode{}) return "OK";
    return std::string(error_info(code).name);
}

}  // namespace mortar::process
