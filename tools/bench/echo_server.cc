#include "tools/bench/echo_server.h"

#include <algorithm>

#include "core/wire/codec.h"
#include "io-real/threads.h"
#include "tools/bench/disk_probe.h"

namespace mortar::bench {
namespace {

constexpr const char* FILE_NAME = "echo";
constexpr std::size_t READ_BYTES = 64u << 10;

ByteVector answer_frame() {
    ByteVector frame;
    wire::encode_ok(frame, wire::PubResult{});
    return frame;
}

}  // namespace

Result<std::unique_ptr<EchoServer>> EchoServer::start(const std::string& folder) {
    MORTAR_TRY(preallocate(folder + "/" + FILE_NAME));
    RealEnvOptions options;
    options.root = folder;
    options.log_level = LogLevel::ERROR;
    std::unique_ptr<EchoServer> server(new EchoServer(MORTAR_TRY(RealEnv::create(options))));
    server->listener_ = MORTAR_TRY(server->env_->env().net.listen("127.0.0.1:0"));
    server->address_ = "127.0.0.1:" + std::to_string(server->listener_->port());
    EchoServer& self = *server;
    self.env_->scheduler().spawn("echo.accept", [&self](Fiber& fiber) { self.accept_all(fiber); });
    self.thread_ = start_thread("echo", [&self] { self.env_->run(); });
    return server;
}

EchoServer::~EchoServer() {
    if (thread_.joinable()) {
        env_->scheduler().stop();
        thread_.join();
    }
    env_->shutdown();
}

void EchoServer::accept_all(Fiber& fiber) {
    while (true) {
        Result<std::unique_ptr<Conn>> accepted = listener_->accept(fiber);
        if (!accepted.ok()) return;
        const std::shared_ptr<Conn> conn = std::move(accepted).value();
        env_->scheduler().spawn("echo.serve", [this, conn](Fiber& own) {
            // Its end is the client's business, who sees it.
            (void)serve(own, *conn);
        });
    }
}

Result<void> EchoServer::serve(Fiber& fiber, Conn& conn) {
    const std::unique_ptr<File> file =
        MORTAR_TRY(env_->env().disk.open(fiber, FILE_NAME, OpenMode::READ_WRITE));
    const ByteVector answer = answer_frame();
    ByteVector received(READ_BYTES);
    std::size_t held = 0;
    while (true) {
        const std::size_t count =
            MORTAR_TRY(conn.read(fiber, MutableByteSpan(received).subspan(held), NEVER));
        if (count == 0) return {};
        held += count;
        while (held >= wire::LENGTH_BYTES) {
            const std::size_t frame_bytes =
                wire::LENGTH_BYTES + load_be<std::uint32_t>(received.data());
            if (frame_bytes > received.size()) received.resize(frame_bytes);
            if (held < frame_bytes) break;
            const ByteSpan part =
                ByteSpan(received).first(std::min(frame_bytes, PREALLOCATED_BYTES));
            if (file_offset_ + part.size() > PREALLOCATED_BYTES) file_offset_ = 0;
            const std::uint64_t at = file_offset_;
            file_offset_ += part.size();
            MORTAR_TRY(file->write_and_sync(fiber, at, std::span(&part, 1)));
            const ByteSpan parts[] = {answer};
            MORTAR_TRY(conn.write(fiber, parts, NEVER));
            const auto rest = received.begin() + static_cast<std::ptrdiff_t>(frame_bytes);
            std::copy(rest, received.begin() + static_cast<std::ptrdiff_t>(held), received.begin());
            held -= frame_bytes;
        }
    }
}

}  // namespace mortar::bench
