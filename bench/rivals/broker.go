package rivals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kaas/bench/process"
)

// Durabilities: what an acknowledgement means.
const (
	pageCache = "page-cache" // written; Kafka's own default
	synced    = "synced"     // on the disk
)

// tools are the programs beside this one.
type tools struct {
	self       string // this program
	root       string // of the sources
	dir        string // working directory
	kfake      string
	librdkafka string
	jars       string
	template   string // an Apache data directory that has been formatted
}

// prepare builds or fetches what the chosen brokers and clients need.
func (t *tools) prepare(ctx context.Context, need map[string]bool, say io.Writer) error {
	for _, driver := range []struct {
		name string
		path *string
	}{{Kfake, &t.kfake}, {"librdkafka", &t.librdkafka}} {
		if !need[driver.name] {
			continue
		}
		fmt.Fprintf(say, "building %s\n", driver.name)
		*driver.path = filepath.Join(t.root, "bin", driver.name) // kept: the build is long and the second one does nothing
		cmd := exec.CommandContext(ctx, "go", "build", "-o", *driver.path, "./"+driver.name)
		cmd.Dir = filepath.Join(t.root, "bench", "rivals", "drivers")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", driver.name, err, out)
		}
	}
	if need[Apache] || need["java"] {
		t.jars = filepath.Join(t.root, ".oracle", "lib-"+version)
		if _, err := os.Stat(filepath.Join(t.jars, ".complete")); err != nil {
			fmt.Fprintln(say, "fetching Apache Kafka")
			cmd := exec.CommandContext(ctx, "bash", ".ci/java")
			cmd.Dir = t.root
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("fetching Apache Kafka: %w\n%s", err, out)
			}
		}
	}
	if need[Apache] {
		return t.format(ctx)
	}
	return nil
}

func (t *tools) java(ctx context.Context, options []string, class string, args ...string) *exec.Cmd {
	all := append([]string{"-Djava.awt.headless=true", "-Dlog4j.configuration=file:" + filepath.Join(t.dir, "log4j.properties")}, options...)
	all = append(all, "-cp", filepath.Join(t.jars, "*"), class)
	return exec.CommandContext(ctx, "java", append(all, args...)...)
}

// format makes an Apache data directory once; every turn gets a copy.
func (t *tools) format(ctx context.Context) error {
	t.template = filepath.Join(t.dir, "apache-template")
	properties := filepath.Join(t.dir, "format.properties")
	if err := os.WriteFile(properties, []byte(apacheProperties("127.0.0.1:9092", "127.0.0.1:9093", t.template, pageCache)), 0o644); err != nil {
		return err
	}
	out, err := t.java(ctx, nil, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", properties).CombinedOutput()
	if err != nil {
		return fmt.Errorf("formatting Apache's directory: %w\n%s", err, out)
	}
	return nil
}

const log4j = `log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %m (%c)%n
`

func apacheProperties(listen, controller, dir, durability string) string {
	lines := []string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + controller, "controller.listener.names=CONTROLLER",
		"listeners=PLAINTEXT://" + listen + ",CONTROLLER://" + controller, "advertised.listeners=PLAINTEXT://" + listen,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", "inter.broker.listener.name=PLAINTEXT", "log.dirs=" + dir,
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false",
	}
	if durability == synced {
		lines = append(lines, "log.flush.interval.messages=1")
	}
	return strings.Join(lines, "\n") + "\n"
}

// brokerJava are the options that Apache's own start script gives the broker.
var brokerJava = []string{
	"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
}

// start runs a broker on dir, which may hold what it left there before.
func (t *tools) start(broker, dir, durability string) (*process.Process, error) {
	address, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	var cmd *exec.Cmd
	switch broker {
	case Kaas:
		level := "page-cache"
		if durability == synced {
			level = "group-commit"
		}
		cmd = exec.Command(t.self, "serve", "--listen", address, "--data-dir", data, "--durability", level)
	case Floor:
		cmd = exec.Command(t.self, "bench", "floor", "--listen", address, "--data-dir", data)
	case Kfake, Memory:
		args := []string{"-listen", address}
		if broker == Kfake {
			args = append(args, "-data-dir", data)
		}
		if durability == synced {
			args = append(args, "-sync")
		}
		cmd = exec.Command(t.kfake, args...)
	case Apache:
		if cmd, err = t.apache(address, dir, data, durability); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%w: %s", errUnknownBroker, broker)
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	return process.Run(cmd, address)
}

var errUnknownBroker = errors.New("no such broker")

func (t *tools) apache(address, dir, data, durability string) (*exec.Cmd, error) {
	controller, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		if err := os.CopyFS(data, os.DirFS(t.template)); err != nil {
			return nil, err
		}
	}
	properties := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(properties, []byte(apacheProperties(address, controller, data, durability)), 0o644); err != nil {
		return nil, err
	}
	return t.java(context.Background(), brokerJava, "kafka.Kafka", properties), nil
}
