import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Runs real Java producers and consumers: reads a command from each line of stdin, and prints each event as a line of
 * JSON.
 *
 * <pre>
 * producer NAME NAMESRVS [KEY=VALUE...]                  start a producer               -> started
 *     NAMESRVS may be `address-server`: the client uses the domain of the system property rocketmq.namesrv.domain
 * send NAME TOPIC COUNT PREFIX                           send PREFIX-0 to PREFIX-(n-1)  -> acked | failed ..., sent
 * stream NAME TOPIC PREFIX INTERVAL_MS                   send until halted              -> acked | failed ...
 * halt NAME                                              end the stream                 -> sent
 * queues NAME TOPIC                                      list the writable queues       -> queues | unrouted
 * consumer NAME NAMESRVS GROUP TOPIC [KEY=VALUE...]      from the first message on      -> started, received ...
 * close NAME                                             end a producer or consumer     -> closed
 * quit                                                   end, as at the end of stdin
 * </pre>
 *
 * Keys: poll (ms between route polls), timeout (of a send in ms, default 10,000), retries (of a failed send), key
 * (ACCESS:SECRET to sign with). A failed command prints the event "error".
 */
public final class Driver {
    // Long enough that no send times out on a busy machine.
    private static final int TIMEOUT_MS = 10_000;

    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new HashMap<>();
    private static final Map<String, Stream> STREAMS = new HashMap<>();

    private Driver() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
            try {
                obey(line.trim().split(" +"));
            } catch (Exception e) {
                print("error", "command", line, "error", e.toString());
            }
        }
        // Threads that still run must not keep the process alive.
        System.exit(0);
    }

    private static void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "producer":
                startProducer(words);
                break;
            case "send":
                send(words[1], words[2], Integer.parseInt(words[3]), words[4]);
                break;
            case "stream":
                STREAMS.put(words[1], new Stream(words[1], words[2], words[3], Long.parseLong(words[4])));
                STREAMS.get(words[1]).start();
                break;
            case "halt":
                STREAMS.remove(words[1]).halt();
                break;
            case "queues":
                queues(words[1], words[2]);
                break;
            case "consumer":
                startConsumer(words);
                break;
            case "close":
                close(words[1]);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static void startProducer(String[] words) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers-" + words[1], signing(rest(words, 3)));
        configure(producer, words[1], words[2]);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        for (String option : rest(words, 3)) {
            String value = option.substring(option.indexOf('=') + 1);
            if (option.startsWith("timeout=")) {
                producer.setSendMsgTimeout(Integer.parseInt(value));
            } else if (option.startsWith("retries=")) {
                producer.setRetryTimesWhenSendFailed(Integer.parseInt(value));
            } else if (option.startsWith("vip=")) {
                producer.setVipChannelEnabled(Boolean.parseBoolean(value));
            } else if (!option.startsWith("key=")) {
                setPoll(producer, option);
            }
        }
        producer.start();
        PRODUCERS.put(words[1], producer);
        print("started", "name", words[1]);
    }

    private static void startConsumer(String[] words) throws Exception {
        String name = words[1];
        // Version 4.9 has no constructor without the strategy.
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(words[3], signing(rest(words, 5)), new AllocateMessageQueueAveragely());
        configure(consumer, name, words[2]);
        for (String option : rest(words, 5)) {
            if (!option.startsWith("key=")) {
                setPoll(consumer, option);
            }
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(words[4], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print("received", "name", name, "topic", message.getTopic(), "id", message.getMsgId(),
                    "broker", message.getBrokerName(), "queue", message.getQueueId(),
                    "body", new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        CONSUMERS.put(name, consumer);
        print("started", "name", name);
    }

    private static RPCHook signing(List<String> options) {
        for (String option : options) {
            if (option.startsWith("key=")) {
                String[] parts = option.substring("key=".length()).split(":");
                return new AclClientRPCHook(new SessionCredentials(parts[0], parts[1]));
            }
        }
        return null;
    }

    private static void configure(ClientConfig client, String name, String nameServers) {
        if (!nameServers.equals("address-server")) {
            client.setNamesrvAddr(nameServers);
        }
        client.setMqClientApiTimeout(TIMEOUT_MS);
        // Clients of one process share connections and routes unless their instance names differ.
        client.setInstanceName(name);
        // The VIP channel needs the port two below a broker's own, which may be in use.
        client.setVipChannelEnabled(false);
    }

    private static void setPoll(ClientConfig client, String option) {
        if (!option.startsWith("poll=")) {
            throw new IllegalArgumentException("unknown key: " + option);
        }
        client.setPollNameServerInterval(Integer.parseInt(option.substring("poll=".length())));
    }

    private static List<String> rest(String[] words, int from) {
        List<String> found = new ArrayList<>();
        for (int i = from; i < words.length; i++) {
            found.add(words[i]);
        }
        return found;
    }

    private static void send(String name, String topic, int count, String prefix) throws InterruptedException {
        for (int i = 0; i < count; i++) {
            sendOne(name, topic, prefix + "-" + i);
        }
        print("sent", "name", name, "count", count);
    }

    static void sendOne(String name, String topic, String body) throws InterruptedException {
        try {
            SendResult sent = PRODUCERS.get(name).send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
            print("acked", "name", name, "topic", topic, "body", body, "id", sent.getMsgId(), "status",
                sent.getSendStatus().name(), "broker", sent.getMessageQueue().getBrokerName(), "queue",
                sent.getMessageQueue().getQueueId());
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            print("failed", "name", name, "topic", topic, "body", body, "error", textOf(e));
        }
    }

    private static void queues(String name, String topic) {
        List<String> found = new ArrayList<>();
        try {
            for (MessageQueue queue : PRODUCERS.get(name).fetchPublishMessageQueues(topic)) {
                found.add(queue.getBrokerName() + ":" + queue.getQueueId());
            }
        } catch (MQClientException e) {
            print("unrouted", "name", name, "topic", topic, "error", textOf(e));
            return;
        }
        print("queues", "name", name, "topic", topic, "queues", found);
    }

    /** The messages of an exception and its causes, as in a log. */
    private static String textOf(Throwable error) {
        StringBuilder text = new StringBuilder(error.toString());
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            text.append("\nCaused by: ").append(cause);
        }
        return text.toString();
    }

    private static void close(String name) {
        if (PRODUCERS.containsKey(name)) {
            PRODUCERS.remove(name).shutdown();
        } else {
            CONSUMERS.remove(name).shutdown();
        }
        print("closed", "name", name);
    }

    static synchronized void print(String event, Object... members) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        for (int i = 0; i < members.length; i += 2) {
            line.put((String) members[i], members[i + 1]);
        }
        System.out.println(JSON.toJSONString(line));
        System.out.flush();
    }

    /** Sends messages one after the other until halted. */
    private static final class Stream extends Thread {
        private final String name;
        private final String topic;
        private final String prefix;
        private final long intervalMs;
        private volatile boolean isHalted;

        Stream(String name, String topic, String prefix, long intervalMs) {
            this.name = name;
            this.topic = topic;
            this.prefix = prefix;
            this.intervalMs = intervalMs;
            setDaemon(true);
        }

        @Override
        public void run() {
            int count = 0;
            try {
                while (!isHalted) {
                    sendOne(name, topic, prefix + "-" + count++);
                    Thread.sleep(intervalMs);
                }
            } catch (InterruptedException e) {
                print("error", "command", "stream " + name, "error", e.toString());
            }
            print("sent", "name", name, "count", count);
        }

        void halt() throws InterruptedException {
            isHalted = true;
            join();
        }
    }
}
