import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's own REST catalog over SQLite; of each so many commits, the answer to one is lost after it was made. */
public class CatalogServer {
    public static void main(String[] words) throws Exception {
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.setConf(new Configuration());
        catalog.initialize("rest", Map.of(
            "uri", "jdbc:sqlite:" + words[0] + "/catalog.db", "warehouse", "file://" + words[0] + "/warehouse",
            "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO", "jdbc.schema-version", "V1"));
        Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
        ServletContextHandler handler = new ServletContextHandler();
        handler.addServlet(new ServletHolder(new Losing(catalog, Integer.parseInt(words[1]))), "/*");
        server.setHandler(handler);
        server.start();
        System.out.println(server.getURI().getPort());
        server.join();
    }

    static class Losing extends RESTCatalogServlet {
        private final AtomicInteger commits = new AtomicInteger();
        private final int every;

        Losing(JdbcCatalog catalog, int every) {
            super(new RESTCatalogAdapter(catalog));
            this.every = every;
        }

        @Override
        protected void doPost(HttpServletRequest request, HttpServletResponse response) throws IOException {
            super.doPost(request, response);
            boolean isCommit = request.getRequestURI().contains("/tables/") && response.getStatus() == 200;
            if (isCommit && commits.incrementAndGet() % every == 0) {
                response.reset();
                response.setStatus(commits.get() / every % 2 == 0 ? 503 : 504);
            }
        }
    }
}
