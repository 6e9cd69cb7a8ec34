import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;

/**
 * Runs commands of an unmodified mqadmin one after the other in one process, since each mqadmin process takes seconds.
 *
 * <p>Each line of stdin has the arguments of a command, separated by blanks. The response is a line of JSON on stdout
 * with the command's stdout and stderr.
 *
 * <p>The command <code>query METHOD ARGUMENT... -n NAMESRVS</code> calls a method of MQAdminExt, or for
 * getSystemTopicList of its inner client, as RocketMQ's Dashboard and Exporter do, and prints the result as JSON.
 */
public final class AdminShell {
    private AdminShell() {
    }

    public static void main(String[] args) throws Exception {
        // By reflection: the compiler's class path lacks the tools.
        Method command = Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup").getMethod("main", String[].class);
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(err, true, "UTF-8"));
            String[] words = line.trim().split(" +");
            try {
                if (words[0].equals("query")) {
                    System.out.println(query(words[1], Arrays.copyOfRange(words, 2, words.length - 2), words[words.length - 1]));
                } else {
                    command.invoke(null, (Object) words);
                }
            } catch (InvocationTargetException e) {
                e.getCause().printStackTrace();
            }
            Map<String, Object> output = new LinkedHashMap<>();
            output.put("stdout", out.toString("UTF-8"));
            output.put("stderr", err.toString("UTF-8"));
            System.setErr(errors);
            answers.println(JSON.toJSONString(output));
            answers.flush();
        }
        // Threads of the clients that still run must not keep the process alive.
        System.exit(0);
    }

    private static String query(String method, String[] arguments, String nameServers) throws Exception {
        ClientConfig admin =
            (ClientConfig) Class.forName("org.apache.rocketmq.tools.admin.DefaultMQAdminExt").getConstructor().newInstance();
        admin.setNamesrvAddr(nameServers);
        // Clients of one process share connections unless their instance names differ.
        admin.setInstanceName(String.valueOf(System.nanoTime()));
        call(admin, "start");
        try {
            Object result;
            if (method.equals("getSystemTopicList")) {
                Object inner = call(call(admin, "getDefaultMQAdminExtImpl"), "getMqClientInstance");
                result = ((MQClientInstance) inner).getMQClientAPIImpl().getSystemTopicList(20_000);
            } else {
                result = call(admin, method, arguments);
            }
            return JSON.toJSONString(result, SerializerFeature.WriteNonStringKeyAsString);
        } finally {
            call(admin, "shutdown");
        }
    }

    private static Object call(Object target, String method, String... arguments) throws Exception {
        Class<?>[] types = new Class<?>[arguments.length];
        Arrays.fill(types, String.class);
        return target.getClass().getMethod(method, types).invoke(target, (Object[]) arguments);
    }
}
