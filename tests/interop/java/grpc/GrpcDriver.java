import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Runs a real gRPC producer and consumer: sends each line of stdin as a message, and prints <code>acked BODY</code>,
 * <code>failed BODY</code> and <code>received BODY</code>. Arguments: ENDPOINT TOPIC GROUP.
 */
public final class GrpcDriver {
    private GrpcDriver() {
    }

    public static void main(String[] args) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        // The default of 3 s is too short for the first request to a Proxy on a slow machine.
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(args[0])
            .enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(30))
            .build();
        PushConsumer consumer = provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(args[2])
            .setSubscriptionExpressions(Collections.singletonMap(args[1], FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                print("received", StandardCharsets.UTF_8.decode(message.getBody()).toString());
                return ConsumeResult.SUCCESS;
            })
            .build();
        Producer producer =
            provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(args[1]).build();
        System.out.println("started");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String body = in.readLine(); body != null; body = in.readLine()) {
            byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
            try {
                producer.send(provider.newMessageBuilder().setTopic(args[1]).setBody(bytes).build());
                print("acked", body);
            } catch (ClientException e) {
                e.printStackTrace();
                print("failed", body);
            }
        }
        producer.close();
        consumer.close();
        System.exit(0);
    }

    private static synchronized void print(String event, String body) {
        System.out.println(event + " " + body);
        System.out.flush();
    }
}
