import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * mqadmin as it is, one command after the other in one process: a process of its own for each takes seconds to end.
 *
 * <p>Reads the arguments of a command from a line of stdin, separated by blanks, and answers with a line of JSON on
 * stdout: what it printed on stdout and on stderr.
 */
public final class AdminShell {
    private AdminShell() {
    }

    public static void main(String[] args) throws Exception {
        // not known when this is compiled: only the tools have it
        Method command = Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup").getMethod("main", String[].class);
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(err, true, "UTF-8"));
            try {
                command.invoke(null, (Object) line.trim().split(" +"));
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
}
