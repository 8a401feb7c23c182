#include "io-real/client.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "core/client/consumer.h"
#include "core/client/producer.h"
#include "core/fiber/deadline.h"
#include "io-real/address.h"
#include "io-real/real_env.h"
#include "io-real/threads.h"

namespace mortarmq {

namespace {

using mortar::ErrorCode;
using mortar::Fiber;

// How long a topic call may take in all.
constexpr mortar::Duration TOPIC_CALL_TIMEOUT = mortar::seconds(30);
// Between polls of a handler's thread, so that it sees close.
constexpr std::chrono::milliseconds HANDLER_POLL{200};

Error to_public(const mortar::Error& error) {
    const mortar::ErrorInfo& info = mortar::error_info(error.code);
    Outcome outcome = Outcome::UNKNOWN;
    if (info.outcome == mortar::ErrorOutcome::REFUSED) outcome = Outcome::REFUSED;
    if (info.outcome == mortar::ErrorOutcome::NOT_EXECUTED) outcome = Outcome::NOT_EXECUTED;
    const std::string text = error.detail.empty() ? std::string(info.client_does) : error.detail;
    return {static_cast<std::uint16_t>(error.code), std::string(info.name), text, outcome};
}

Error closed_error() {
    return to_public(mortar::make_error(ErrorCode::CONNECTION_CLOSED, "the client was closed"));
}

mortar::Duration to_duration(std::chrono::milliseconds time) {
    constexpr std::int64_t MS_MAX = mortar::NEVER.ns / 1'000'000;
    return mortar::milliseconds(
        std::min<std::int64_t>(std::max<std::int64_t>(time.count(), 0), MS_MAX));
}

mortar::wire::NackReason to_reason(Verdict verdict) {
    if (verdict == Verdict::REJECT) return mortar::wire::NackReason::REJECT;
    return verdict == Verdict::REQUEUE ? mortar::wire::NackReason::REQUEUE
                                       : mortar::wire::NackReason::RETRY;
}

Message to_public(mortar::client::Message&& from) {
    Message message;
    message.key = std::move(from.key);
    message.value = std::move(from.value);
    message.partition = from.partition.value;
    message.sequence = from.sequence.value;
    message.attempt = from.attempt;
    message.is_last_attempt = from.is_last_attempt;
    message.is_replayed = from.is_replayed;
    message.delivery_id = from.delivery_id.value;
    message.ownership_epoch = from.ownership_epoch.value;
    message.session = from.session;
    return message;
}

// What settling needs; key and value stay with the application.
mortar::client::Message to_settle(const Message& from) {
    mortar::client::Message message;
    message.partition = mortar::PartitionIndex(from.partition);
    message.sequence = mortar::Sequence(from.sequence);
    message.delivery_id = mortar::DeliveryId(from.delivery_id);
    message.ownership_epoch = mortar::OwnershipEpoch(from.ownership_epoch);
    message.session = from.session;
    return message;
}

}  // namespace

std::string version() {
    return MORTAR_VERSION;
}

// The loop thread, the producer, and the queue between application threads and the loop.
struct Client::Impl : std::enable_shared_from_this<Client::Impl> {
    struct Publication {
        std::string topic;
        std::string key;
        std::string value;
        PublishCallback callback;
        std::size_t bytes() const { return key.size() + value.size(); }
    };

    Impl(ClientOptions wanted, std::unique_ptr<mortar::RealEnv> world)
        : options(std::move(wanted)), real(std::move(world)), env(real->env()) {
        mortar::client::ProducerOptions producer_options;
        producer_options.idempotent = options.idempotent;
        producer_options.delivery_timeout = to_duration(options.delivery_timeout);
        producer_options.buffered_count_max = options.buffered_count_max;
        producer_options.buffered_bytes_max = options.buffered_bytes_max;
        producer.emplace(client_env(), link_options("app"), producer_options);
    }

    mortar::client::ClientEnv client_env() const { return mortar::client::client_env(env); }
    mortar::client::LinkOptions link_options(std::string rng_name) const {
        mortar::client::LinkOptions link;
        link.addresses = options.addresses;
        link.token = options.token;
        link.rng_name = std::move(rng_name);
        return link;
    }

    void start() {
        real->scheduler().post([this] {
            producer->start();
            real->scheduler().spawn("app.publish", [this](Fiber& fiber) { pump(fiber); });
        });
        thread = mortar::start_thread("client", [this] { real->run(); });
    }

    enum class Caller : std::uint8_t { APPLICATION, CLOSE };
    // Runs body as a fiber of the loop and waits for what it returns.
    template <class T>
    Result<T> call(std::function<Result<T>(Fiber&)> body, Caller caller = Caller::APPLICATION) {
        auto promise = std::make_shared<std::promise<Result<T>>>();
        std::future<Result<T>> answer = promise->get_future();
        {
            const std::lock_guard lock(mutex);
            if (stopping || (closing && caller == Caller::APPLICATION)) return closed_error();
            ++calls;
            real->scheduler().post([this, promise, body = std::move(body)] {
                real->scheduler().spawn(
                    "app.call", [promise, body](Fiber& fiber) { promise->set_value(body(fiber)); });
            });
        }
        Result<T> result = answer.get();
        const std::lock_guard lock(mutex);
        --calls;
        calls_changed.notify_all();
        return result;
    }

    // Fire and forget; dropped once the loop is stopping.
    void post(std::function<void()> body) {
        const std::lock_guard lock(mutex);
        if (!stopping) real->scheduler().post(std::move(body));
    }

    void publish(Publication publication) {
        {
            std::unique_lock lock(mutex);
            room.wait(lock, [&] {
                return closing || queue.empty() ||
                       (queue.size() < options.buffered_count_max &&
                        queue_bytes + publication.bytes() <= options.buffered_bytes_max);
            });
            if (!closing) {
                ++pushed_count;
                queue_bytes += publication.bytes();
                queue.push_back(std::move(publication));
                if (!std::exchange(pump_told, true)) {
                    real->scheduler().post([this] { pump_event.notify_all(); });
                }
                return;
            }
        }
        if (publication.callback) publication.callback(closed_error());
    }

    // Loop: hands what applications published to the producer, in order.
    void pump(Fiber& fiber) {
        while (true) {
            std::deque<Publication> batch;
            {
                const std::lock_guard lock(mutex);
                batch.swap(queue);
                queue_bytes = 0;
                pump_told = false;
                room.notify_all();
            }
            for (Publication& publication : batch)
                hand_over(fiber, std::move(publication));
            if (!batch.empty()) continue;
            if (!pump_event.wait(fiber).ok()) return;
        }
    }

    void hand_over(Fiber& fiber, Publication publication) {
        auto callback = std::make_shared<PublishCallback>(std::move(publication.callback));
        mortar::Result<void> accepted = producer->publish_async(
            fiber, publication.topic, std::move(publication.key), std::move(publication.value),
            [callback](mortar::Result<mortar::client::Published> published) {
                if (!*callback) return;
                if (!published.ok()) {
                    (*callback)(to_public(published.error()));
                    return;
                }
                (*callback)(Receipt{published->partition.value, published->sequence.value,
                                    published->deduplicated});
            });
        if (!accepted.ok() && *callback) (*callback)(to_public(accepted.error()));
        ++handed_count;
        handed_event.notify_all();
    }

    Result<void> flush(std::chrono::milliseconds timeout) {
        std::uint64_t wanted = 0;
        {
            const std::lock_guard lock(mutex);
            wanted = pushed_count;
        }
        return call<void>([this, wanted, timeout](Fiber& fiber) -> Result<void> {
            const mortar::MonoTime deadline =
                mortar::deadline_after(env.clock, to_duration(timeout));
            while (handed_count < wanted) {
                const mortar::Result<void> waited = handed_event.wait(fiber, deadline);
                if (!waited.ok()) return to_public(waited.error());
            }
            const mortar::Result<void> flushed = producer->flush(fiber, deadline);
            if (!flushed.ok()) return to_public(flushed.error());
            return {};
        });
    }

    using TopicCall = mortar::Result<mortar::client::TopicInfo> (*)(Fiber&, Impl&,
                                                                    const std::string&,
                                                                    std::uint16_t,
                                                                    mortar::MonoTime);
    Result<TopicInfo> topic_call(TopicCall do_it, std::string name, std::uint16_t partition_count) {
        return call<TopicInfo>([this, do_it, name = std::move(name),
                                partition_count](Fiber& fiber) -> Result<TopicInfo> {
            const mortar::MonoTime deadline = mortar::deadline_after(env.clock, TOPIC_CALL_TIMEOUT);
            const mortar::Result<mortar::client::TopicInfo> info =
                do_it(fiber, *this, name, partition_count, deadline);
            if (!info.ok()) return to_public(info.error());
            return TopicInfo{info->topic_id.value, info->partition_count, info->existed};
        });
    }

    void close();

    ClientOptions options;
    std::unique_ptr<mortar::RealEnv> real;
    mortar::Env env;
    // The loop's.
    std::optional<mortar::client::Producer> producer;
    mortar::Event pump_event;
    mortar::Event handed_event;
    std::uint64_t handed_count = 0;
    std::uint64_t next_consumer = 1;

    std::mutex mutex;  // for what follows
    std::condition_variable room;
    std::condition_variable calls_changed;
    std::deque<Publication> queue;
    std::size_t queue_bytes = 0;
    std::uint64_t pushed_count = 0;
    bool pump_told = false;
    bool closing = false;   // no new calls
    bool stopping = false;  // .. and nothing more reaches the loop
    std::size_t calls = 0;
    std::vector<std::weak_ptr<Consumer::Impl>> consumers;

    std::mutex close_mutex;  // one close at a time
    std::thread thread;
};

struct Consumer::Impl {
    Impl(std::shared_ptr<Client::Impl> owner, ConsumerOptions wanted)
        : client(std::move(owner)), options(std::move(wanted)) {}

    Result<Message> poll(std::chrono::milliseconds timeout) {
        return client->call<Message>([this, timeout](Fiber& fiber) -> Result<Message> {
            if (!consumer) return closed_error();
            ++users;
            mortar::Result<mortar::client::Message> message = consumer->next(
                fiber, mortar::deadline_after(client->env.clock, to_duration(timeout)));
            --users;
            unused.notify_all();
            if (!message.ok()) return to_public(message.error());
            return to_public(std::move(message).value());
        });
    }

    void close();

    std::shared_ptr<Client::Impl> client;
    ConsumerOptions options;
    // The loop's.
    std::optional<mortar::client::Consumer> consumer;
    std::size_t users = 0;  // fibers inside consumer
    mortar::Event unused;

    std::mutex close_mutex;
    bool closed = false;
    std::atomic<bool> handler_stops = false;
    std::thread handler_thread;
};

void Consumer::Impl::close() {
    const std::lock_guard lock(close_mutex);
    if (std::exchange(closed, true)) return;
    handler_stops = true;
    if (handler_thread.joinable()) handler_thread.join();
    (void)client->call<void>(
        [this](Fiber& fiber) -> Result<void> {
            if (consumer) consumer->close(fiber);
            while (users > 0) {
                if (!unused.wait(fiber).ok()) break;
            }
            consumer.reset();
            return {};
        },
        Client::Impl::Caller::CLOSE);
}

void Client::Impl::close() {
    const std::lock_guard one_at_a_time(close_mutex);
    if (!thread.joinable()) return;
    std::vector<std::weak_ptr<Consumer::Impl>> open;
    {
        const std::lock_guard lock(mutex);
        closing = true;
        room.notify_all();
        open.swap(consumers);
    }
    for (const std::weak_ptr<Consumer::Impl>& weak : open) {
        if (const std::shared_ptr<Consumer::Impl> consumer = weak.lock()) consumer->close();
    }
    (void)call<void>(
        [this](Fiber& fiber) -> Result<void> {
            producer->close(fiber);
            return {};
        },
        Caller::CLOSE);
    std::deque<Publication> left;
    {
        std::unique_lock lock(mutex);
        stopping = true;
        calls_changed.wait(lock, [&] { return calls == 0; });
        left.swap(queue);
    }
    real->scheduler().stop();
    thread.join();
    for (const Publication& publication : left) {
        if (publication.callback) publication.callback(closed_error());
    }
    real->shutdown();
}

Result<Client> Client::connect(ClientOptions options) {
    options.addresses = mortar::client::split_addresses(options.addresses);
    if (options.addresses.empty() || options.buffered_count_max == 0) {
        return to_public(
            mortar::make_error(ErrorCode::INVALID_ARGUMENT,
                               "at least one address, and room for one message, are needed"));
    }
    for (const std::string& address : options.addresses) {
        // What no waiting makes right.
        const mortar::Result<mortar::HostPort> parsed = mortar::parse_host_port(address);
        if (!parsed.ok())
            return to_public(
                mortar::make_error(ErrorCode::INVALID_ARGUMENT, parsed.error().detail));
    }
    if (options.token.size() > mortar::wire::MAX_TOKEN_LEN) {
        return to_public(
            mortar::make_error(ErrorCode::INVALID_ARGUMENT, "the token is longer than 4096 bytes"));
    }
    mortar::RealEnvOptions env_options;
    env_options.log_level = mortar::LogLevel::ERROR;
    mortar::Result<std::unique_ptr<mortar::RealEnv>> real = mortar::RealEnv::create(env_options);
    if (!real.ok()) return to_public(real.error());
    auto impl = std::make_shared<Impl>(std::move(options), std::move(real).value());
    impl->start();
    Client client(impl);
    const Result<void> up = impl->call<void>([impl = impl.get()](Fiber& fiber) -> Result<void> {
        const mortar::Duration patience = to_duration(impl->options.connect_timeout);
        const mortar::Result<void> waited = impl->producer->link().wait_up(
            fiber, mortar::deadline_after(impl->env.clock, patience));
        if (!waited.ok()) return to_public(waited.error());
        return {};
    });
    if (!up.ok()) return up.error();
    return client;
}

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&& other) noexcept {
    if (this != &other) {
        close();
        impl_ = std::move(other.impl_);
    }
    return *this;
}
Client::~Client() {
    close();
}

void Client::close() {
    if (impl_ != nullptr) impl_->close();
}

Result<Receipt> Client::publish(std::string topic, std::string key, std::string value) {
    return publish_async(std::move(topic), std::move(key), std::move(value)).get();
}

std::future<Result<Receipt>> Client::publish_async(std::string topic, std::string key,
                                                   std::string value) {
    auto promise = std::make_shared<std::promise<Result<Receipt>>>();
    std::future<Result<Receipt>> future = promise->get_future();
    publish_async(std::move(topic), std::move(key), std::move(value),
                  [promise](Result<Receipt> result) { promise->set_value(std::move(result)); });
    return future;
}

void Client::publish_async(std::string topic, std::string key, std::string value,
                           PublishCallback callback) {
    impl_->publish({std::move(topic), std::move(key), std::move(value), std::move(callback)});
}

Result<void> Client::flush(std::chrono::milliseconds timeout) {
    return impl_->flush(timeout);
}

Result<TopicInfo> Client::create_topic(std::string name, std::uint16_t partition_count) {
    return impl_->topic_call(
        [](Fiber& fiber, Impl& impl, const std::string& topic, std::uint16_t count,
           mortar::MonoTime deadline) {
            return mortar::client::create_topic(fiber, impl.client_env(), impl.producer->link(),
                                                topic, count, deadline);
        },
        std::move(name), partition_count);
}

Result<TopicInfo> Client::lookup_topic(std::string name) {
    return impl_->topic_call(
        [](Fiber& fiber, Impl& impl, const std::string& topic, std::uint16_t,
           mortar::MonoTime deadline) {
            return mortar::client::lookup_topic(fiber, impl.client_env(), impl.producer->link(),
                                                topic, deadline);
        },
        std::move(name), 0);
}

Result<TopicInfo> Client::delete_topic(std::string name) {
    return impl_->topic_call(
        [](Fiber& fiber, Impl& impl, const std::string& topic, std::uint16_t,
           mortar::MonoTime deadline) {
            return mortar::client::delete_topic(fiber, impl.client_env(), impl.producer->link(),
                                                topic, deadline);
        },
        std::move(name), 0);
}

Consumer Client::subscribe(ConsumerOptions options) {
    options.credit_count = std::max<std::uint16_t>(options.credit_count, 1);
    options.credit_bytes = std::max<std::uint32_t>(options.credit_bytes, 1);
    auto consumer = std::make_shared<Consumer::Impl>(impl_, std::move(options));
    {
        const std::lock_guard lock(impl_->mutex);
        if (impl_->closing) return Consumer(std::move(consumer));
        std::erase_if(impl_->consumers, [](const auto& weak) { return weak.expired(); });
        impl_->consumers.push_back(consumer);
    }
    impl_->post([consumer] {
        mortar::client::ConsumerOptions core;
        core.topic = consumer->options.topic;
        core.group = consumer->options.group;
        core.start_policy = consumer->options.start == ConsumerOptions::Start::LATEST
                                ? mortar::wire::StartPolicy::LATEST
                                : mortar::wire::StartPolicy::EARLIEST;
        core.credit_count = consumer->options.credit_count;
        core.credit_bytes = consumer->options.credit_bytes;
        core.lease = to_duration(consumer->options.lease);
        if (consumer->options.on_settle_refused) {
            core.on_settle_refused = [told = consumer->options.on_settle_refused](
                                         mortar::PartitionIndex partition,
                                         mortar::Sequence sequence, const mortar::Error& error) {
                told(partition.value, sequence.value, to_public(error));
            };
        }
        Client::Impl& client = *consumer->client;
        const std::string rng_name = "app.consumer" + std::to_string(client.next_consumer++);
        consumer->consumer.emplace(client.client_env(), client.link_options(rng_name),
                                   std::move(core));
        consumer->consumer->start();
    });
    return Consumer(std::move(consumer));
}

Consumer::Consumer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Consumer::Consumer(Consumer&&) noexcept = default;
Consumer& Consumer::operator=(Consumer&& other) noexcept {
    if (this != &other) {
        close();
        impl_ = std::move(other.impl_);
    }
    return *this;
}
Consumer::~Consumer() {
    close();
}

Result<Message> Consumer::poll(std::chrono::milliseconds timeout) {
    return impl_->poll(timeout);
}

void Consumer::ack(const Message& message) {
    settle(message, Verdict::ACK);
}

Result<void> Consumer::ack_and_wait(const Message& message) {
    return impl_->client->call<void>(
        [impl = impl_, core = to_settle(message)](Fiber& fiber) -> Result<void> {
            if (!impl->consumer) return closed_error();
            ++impl->users;
            const mortar::Result<void> acked = impl->consumer->ack_and_wait(fiber, core);
            --impl->users;
            impl->unused.notify_all();
            if (!acked.ok()) return to_public(acked.error());
            return {};
        });
}

void Consumer::settle(const Message& message, Verdict verdict) {
    impl_->client->post([impl = impl_, core = to_settle(message), verdict] {
        if (!impl->consumer) return;
        if (verdict == Verdict::ACK) {
            impl->consumer->ack(core);
        } else {
            impl->consumer->nack(core, to_reason(verdict));
        }
    });
}

void Consumer::run(std::function<Verdict(const Message&)> handler,
                   std::function<void(const Error&)> on_end) {
    const std::lock_guard lock(impl_->close_mutex);
    if (impl_->closed || impl_->handler_thread.joinable()) return;
    impl_->handler_thread = mortar::start_thread(
        "handler",
        [impl = impl_.get(), handler = std::move(handler), on_end = std::move(on_end)]() noexcept {
            while (!impl->handler_stops) {
                const Result<Message> message = impl->poll(HANDLER_POLL);
                if (message.ok()) {
                    const Verdict verdict = handler(*message);
                    impl->client->post([impl, core = to_settle(*message), verdict] {
                        if (!impl->consumer) return;
                        if (verdict == Verdict::ACK) impl->consumer->ack(core);
                        if (verdict != Verdict::ACK) impl->consumer->nack(core, to_reason(verdict));
                    });
                } else if (!message.error().is("TIMED_OUT")) {
                    if (on_end && !impl->handler_stops) on_end(message.error());
                    return;
                }
            }
        });
}

void Consumer::close() {
    if (impl_ != nullptr) impl_->close();
}

}  // namespace mortarmq
