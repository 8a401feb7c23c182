#include "sim/workload.h"

#include <algorithm>

#include "core/fiber/deadline.h"
#include "sim/broker_node.h"
#include "sim/hostile.h"

namespace mortar::sim {
namespace {

constexpr Duration STEP_WAIT = milliseconds(200);
// A client that cannot do its first step in so much simulated time is a failure of the broker, not of the network.
constexpr Duration SETUP_PATIENCE = seconds(120);
constexpr Duration FLUSH_PATIENCE = seconds(120);
constexpr int CHURN_MESSAGES_MAX = 20;
constexpr std::uint64_t CHURN_PRODUCER = 1000;  // in payloads, apart from the others

std::string unique_value(std::uint64_t producer, std::uint64_t number, std::size_t bytes) {
    std::string value = "p" + std::to_string(producer) + ":" + std::to_string(number) + ":";
    while (value.size() < bytes)
        value += static_cast<char>('a' + (value.size() + number) % 26);
    return value;
}

}  // namespace

std::string topic_name(std::uint64_t index) {
    return "topic" + std::to_string(index);
}
std::string group_name(std::uint64_t index) {
    return "group" + std::to_string(index);
}
std::string topic_of_group(const Params& params, std::uint64_t group_index) {
    return topic_name(group_index % params["topics"]);
}

Workload::Workload(SimWorld& world, const Params& params, MonoTime faults_end)
    : world_(world), params_(params), faults_end_(faults_end) {
    for (std::uint64_t i = 0; i < params["producers"]; ++i) {
        auto app = std::make_unique<ProducerApp>();
        app->node = &world.add_node("producer" + std::to_string(i));
        app->index = i;
        producers_.push_back(std::move(app));
    }
    for (std::uint64_t i = 0; consumes() && i < params["groups"]; ++i) {
        auto app = std::make_unique<ConsumerApp>();
        app->node = &world.add_node("consumer" + std::to_string(i));
        app->index = i;
        consumers_.push_back(std::move(app));
    }
    for (std::uint64_t i = 0; i < params["churn"]; ++i) {
        auto app = std::make_unique<ChurnApp>();
        app->node = &world.add_node("churn" + std::to_string(i));
        churns_.push_back(std::move(app));
    }
    for (std::uint64_t i = 0; i < params["hostile"]; ++i) {
        hostile_nodes_.push_back(&world.add_node("hostile" + std::to_string(i)));
    }
}

// Ledgers are local to a node: what a group settled does not survive a change of leader, so there is no promise to check.
bool Workload::consumes() const {
    return params_["nodes"] == 1;
}

Workload::~Workload() {
    // Fibers first: they borrow the apps.
    for (const auto& app : producers_) {
        if (app->node->alive()) app->node->kill();
    }
    for (const auto& app : consumers_) {
        if (app->node->alive()) app->node->kill();
    }
    for (const auto& app : churns_) {
        if (app->node->alive()) app->node->kill();
    }
    for (SimNode* node : hostile_nodes_) {
        if (node->alive()) node->kill();
    }
}

void Workload::start() {
    for (const auto& app : producers_)
        start_producer(*app);
    for (const auto& app : consumers_)
        start_consumer(*app);
    for (const auto& app : churns_)
        start_churn(*app);
    const std::vector<std::string> addresses =
        client_addresses(static_cast<std::size_t>(params_["nodes"]));
    for (std::size_t i = 0; i < hostile_nodes_.size(); ++i) {
        SimNode* node = hostile_nodes_[i];
        const std::string& address = addresses[i % addresses.size()];
        node->scheduler().spawn("app.hostile", [this, node, address](Fiber& fiber) {
            Env env = node->env();
            run_hostile(fiber, env, address, node->clock().from_true(faults_end_));
        });
    }
}

std::vector<SimNode*> Workload::nodes() const {
    std::vector<SimNode*> nodes;
    for (const auto& app : producers_)
        nodes.push_back(app->node);
    for (const auto& app : consumers_)
        nodes.push_back(app->node);
    for (const auto& app : churns_)
        nodes.push_back(app->node);
    return nodes;
}

bool Workload::producers_done() const {
    const auto is_done = [](const auto& app) { return app->done; };
    return std::all_of(producers_.begin(), producers_.end(), is_done) &&
           std::all_of(churns_.begin(), churns_.end(), is_done);
}
bool Workload::consumers_done() const {
    return std::all_of(consumers_.begin(), consumers_.end(),
                       [](const auto& app) { return app->done; });
}
void Workload::finish_consumers() {
    finishing_ = true;
}
std::vector<std::string> Workload::groups() const {
    std::vector<std::string> names;
    for (const auto& app : consumers_) {
        if (app->subscribed) names.push_back(group_name(app->index));
    }
    return names;
}

client::LinkOptions Workload::link_options(const std::string& name) const {
    client::LinkOptions options;
    options.addresses = client_addresses(static_cast<std::size_t>(params_["nodes"]));
    options.token = CLIENT_TOKEN;
    options.rng_name = name;
    return options;
}

Result<void> Workload::create_topics(Fiber& fiber, Env& env) {
    client::Link link(client::client_env(env), link_options("setup"));
    link.start();
    const MonoTime deadline = deadline_after(env.clock, SETUP_PATIENCE);
    Result<void> result;
    for (std::uint64_t t = 0; t < params_["topics"] && result.ok(); ++t) {
        const Result<client::TopicInfo> created =
            client::create_topic(fiber, client::client_env(env), link, topic_name(t),
                                 static_cast<std::uint16_t>(params_["partitions"]), deadline);
        if (!created.ok()) result = created.error();
    }
    link.close(fiber);
    return result;
}

void Workload::run_producer(Fiber& fiber, ProducerApp& app) {
    Env env = app.node->env();
    if (app.index == 0 && !topics_ready_) {
        const Result<void> created = create_topics(fiber, env);
        if (!created.ok()) {
            failures_.push_back("topics were not created: " + created.error().to_string());
            app.done = true;
            return;
        }
        topics_ready_ = true;
    }
    while (!topics_ready_) {
        if (!env.scheduler.sleep_until(fiber, env.clock.now() + STEP_WAIT).ok()) return;
    }
    Rng rng = env.rng.stream("app.producer");
    client::ProducerOptions options;
    options.idempotent = !rng.chance_per_mille(params_["plain_per_mille"]);
    app.producer = std::make_unique<client::Producer>(client::client_env(env),
                                                      link_options("producer"), options);
    client::Producer& producer = *app.producer;
    producer.start();

    const std::uint64_t burst = params_["burst"];
    const std::int64_t pause_us =
        static_cast<std::int64_t>(1'000'000 * burst * params_["producers"] /
                                  std::max<std::uint64_t>(1, params_["pubs_per_s"]));
    // Once at least, also when there was nobody to create the topics until the faults were over.
    do {
        for (std::uint64_t i = 0; i < burst; ++i) {
            const std::string topic = topic_name(rng.below(params_["topics"]));
            const std::string key = rng.one_in(3) ? "" : "k" + std::to_string(rng.below(8));
            const std::size_t bytes = rng.below(params_["value_bytes_max"] + 1);
            const Result<void> accepted = producer.publish_async(
                fiber, topic, key, unique_value(app.index, ++next_number_, bytes),
                [this, idempotent = options.idempotent](Result<client::Published> published) {
                    if (published.ok()) {
                        ++published_;
                    } else if (idempotent && !published.is(ErrorCode::CONNECTION_CLOSED)) {
                        failures_.push_back("an idempotent PUB failed: " +
                                            published.error().to_string());
                    }
                });
            if (!accepted.ok())
                failures_.push_back("a PUB was not taken: " + accepted.error().to_string());
        }
        const std::int64_t pause = rng.between(pause_us / 2, pause_us * 3 / 2);
        if (!env.scheduler.sleep_until(fiber, env.clock.now() + microseconds(pause)).ok()) return;
    } while (faults_on());
    const Result<void> flushed = producer.flush(fiber, deadline_after(env.clock, FLUSH_PATIENCE));
    if (!flushed.ok())
        failures_.push_back("a producer cannot flush: " + flushed.error().to_string());
    producer.close(fiber);
    app.done = true;
}

void Workload::run_churn(Fiber& fiber, ChurnApp& app) {
    Env env = app.node->env();
    Rng rng = env.rng.stream("app.churn");
    app.link = std::make_unique<client::Link>(client::client_env(env), link_options("churn"));
    app.link->start();
    while (faults_on()) {
        const std::string topic = "churn" + std::to_string(++next_churn_);
        app.topics.insert(topic);
        const Result<client::TopicInfo> created =
            client::create_topic(fiber, client::client_env(env), *app.link, topic,
                                 static_cast<std::uint16_t>(1 + rng.below(2)),
                                 deadline_after(env.clock, SETUP_PATIENCE));
        if (created.is(ErrorCode::CANCELLED)) return;
        if (created.ok()) {
            use_topic(fiber, app, rng, topic);
        } else {
            failures_.push_back("a topic was not created: " + created.error().to_string());
        }
        const Duration pause = milliseconds(static_cast<std::int64_t>(rng.below(2000)));
        if (!env.scheduler.sleep_until(fiber, env.clock.now() + pause).ok()) return;
    }
    while (!app.topics.empty()) {
        if (!delete_topic(fiber, app, std::string(*app.topics.begin()))) return;
    }
    app.link->close(fiber);
    app.done = true;
}

// Publishes, perhaps consumes, and deletes the topic under their hands.
void Workload::use_topic(Fiber& fiber, ChurnApp& app, Rng& rng, const std::string& topic) {
    Env env = app.node->env();
    app.producer = std::make_unique<client::Producer>(
        client::client_env(env), link_options("churn.producer"), client::ProducerOptions{});
    app.producer->start();
    publish_some(fiber, app, rng, topic);
    if (consumes() && rng.one_in(2)) {
        client::ConsumerOptions options;
        options.topic = topic;
        options.group = "of." + topic;
        app.consumer = std::make_unique<client::Consumer>(client::client_env(env),
                                                          link_options("churn.consumer"), options);
        app.consumer->start();
        for (int i = 0; i < CHURN_MESSAGES_MAX; ++i) {
            const Result<client::Message> message =
                app.consumer->next(fiber, deadline_after(env.clock, STEP_WAIT));
            if (message.ok() && rng.one_in(2)) app.consumer->ack(*message);
        }
        if (rng.one_in(2)) {
            app.consumer->close(fiber);
            app.consumer.reset();
        }
    }
    publish_some(fiber, app, rng, topic);
    if (!delete_topic(fiber, app, topic)) return;
    publish_some(fiber, app, rng, topic);
    (void)app.producer->flush(fiber, deadline_after(env.clock, STEP_WAIT));
    app.producer->close(fiber);
    if (app.consumer == nullptr) return;
    app.consumer->close(fiber);
    app.consumer.reset();
}

// Nobody waits for the answers: the topic may go before they come.
void Workload::publish_some(Fiber& fiber, ChurnApp& app, Rng& rng, const std::string& topic) {
    const std::uint64_t count = rng.below(CHURN_MESSAGES_MAX);
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::string key = "k" + std::to_string(rng.below(4));
        (void)app.producer->publish_async(
            fiber, topic, key, unique_value(CHURN_PRODUCER, ++next_number_, rng.below(300)),
            [](const Result<client::Published>&) {});
    }
}

// False when the process ends.
bool Workload::delete_topic(Fiber& fiber, ChurnApp& app, const std::string& topic) {
    Env env = app.node->env();
    const Result<client::TopicInfo> deleted =
        client::delete_topic(fiber, client::client_env(env), *app.link, topic,
                             deadline_after(env.clock, SETUP_PATIENCE));
    if (deleted.is(ErrorCode::CANCELLED)) return false;
    // Its creation may never have got through.
    if (!deleted.ok() && !deleted.is(ErrorCode::UNKNOWN_TOPIC)) {
        failures_.push_back("a topic was not deleted: " + deleted.error().to_string());
    }
    app.topics.erase(topic);
    return true;
}

void Workload::on_node_down(SimNode& node) {
    for (const auto& app : producers_) {
        if (app->node == &node) app->producer.reset();
    }
    for (const auto& app : consumers_) {
        if (app->node == &node) app->consumer.reset();
    }
    for (const auto& app : churns_) {
        if (app->node != &node) continue;
        app->consumer.reset();
        app->producer.reset();
        app->link.reset();
    }
}

void Workload::on_node_up(SimNode& node) {
    for (const auto& app : producers_) {
        if (app->node == &node && !app->done) start_producer(*app);
    }
    for (const auto& app : consumers_) {
        if (app->node == &node && !app->done) start_consumer(*app);
    }
    for (const auto& app : churns_) {
        if (app->node == &node && !app->done) start_churn(*app);
    }
}

void Workload::start_producer(ProducerApp& app) {
    app.node->scheduler().spawn("app.producer",
                                [this, &app](Fiber& fiber) { run_producer(fiber, app); });
}

void Workload::start_churn(ChurnApp& app) {
    app.node->scheduler().spawn("app.churn", [this, &app](Fiber& fiber) { run_churn(fiber, app); });
}

void Workload::start_consumer(ConsumerApp& app) {
    app.node->scheduler().spawn("app.consumer",
                                [this, &app](Fiber& fiber) { run_consumer(fiber, app); });
}

void Workload::run_consumer(Fiber& fiber, ConsumerApp& app) {
    Env env = app.node->env();
    Rng rng = env.rng.stream("app.consumer");
    while (!topics_ready_) {
        if (!env.scheduler.sleep_until(fiber, env.clock.now() + STEP_WAIT).ok()) return;
    }
    while (!finishing_) {
        client::ConsumerOptions options;
        options.topic = topic_of_group(params_, app.index);
        options.group = group_name(app.index);
        options.start_policy = app.index < params_["latest_groups"] ? wire::StartPolicy::LATEST
                                                                    : wire::StartPolicy::EARLIEST;
        options.credit_count = static_cast<std::uint16_t>(params_["window"]);
        options.lease = milliseconds(static_cast<std::int64_t>(params_["lease_ms"]));
        app.consumer = std::make_unique<client::Consumer>(client::client_env(env),
                                                          link_options("consumer"), options);
        app.consumer->start();
        while (!finishing_ && consume_one(fiber, app, rng, *app.consumer)) {
        }
        app.consumer->close(fiber);
    }
    app.done = true;
}

// False when the consumer is to leave and come back.
bool Workload::consume_one(Fiber& fiber, ConsumerApp& app, Rng& rng, client::Consumer& consumer) {
    Env env = app.node->env();
    Result<client::Message> message = consumer.next(fiber, deadline_after(env.clock, STEP_WAIT));
    if (consumer.stats().subscriptions > 0) app.subscribed = true;
    if (!message.ok()) {
        if (message.is(ErrorCode::TIMED_OUT)) return true;
        // The member of the process that died before this one may not be expelled yet. One that was in the group already
        // waits for that by itself.
        const bool is_locked_out =
            message.is(ErrorCode::GROUP_MEMBER_LIMIT) && consumer.stats().subscriptions == 0;
        const bool comes_back = is_locked_out || message.is(ErrorCode::CANCELLED);
        if (!comes_back) failures_.push_back("a consumer failed: " + message.error().to_string());
        (void)env.scheduler.sleep_until(fiber, env.clock.now() + STEP_WAIT);
        return false;
    }
    const std::uint64_t handler_ms = params_["handler_ms_max"];
    if (handler_ms != 0 && rng.one_in(8)) {
        const Duration handling =
            milliseconds(static_cast<std::int64_t>(rng.below(handler_ms + 1)));
        if (!env.scheduler.sleep_until(fiber, env.clock.now() + handling).ok()) return false;
    }
    if (faults_on()) {
        if (rng.chance_per_mille(params_["die_per_mille"])) {
            app.node->stop_after_step([this, &app] {
                app.node->kill();
                on_death_(*app.node, milliseconds(500));
            });
            (void)env.scheduler.sleep_until(fiber, NEVER);
            return false;
        }
        if (rng.chance_per_mille(params_["nack_per_mille"])) {
            // REJECT is refused while there are no dead letters; the message comes again.
            const auto reason = rng.one_in(8)   ? wire::NackReason::REJECT
                                : rng.one_in(2) ? wire::NackReason::RETRY
                                                : wire::NackReason::REQUEUE;
            consumer.nack(*message, reason);
            return true;
        }
    }
    if (rng.one_in(16)) {
        if (consumer.ack_and_wait(fiber, *message).ok()) ++settled_;
    } else {
        consumer.ack(*message);
        ++settled_;
    }
    return !faults_on() || !rng.chance_per_mille(params_["leave_per_mille"]);
}

}  // namespace mortar::sim
