// Command kfake runs franz-go's kfake as a broker to measure against: with a data directory, in memory, and with a sync for each batch.
//
// It says that it is Apache Kafka 3.7: the Java client of that version refuses the feature ranges of later ones.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9092", "address, of the loopback")
	dir := flag.String("data-dir", "", "data directory; empty: in memory")
	sync := flag.Bool("sync", false, "sync every batch")
	flag.Parse()
	if err := run(*listen, *dir, *sync); err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}

func run(listen, dir string, sync bool) error {
	_, text, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.Ports(port), kfake.MaxVersions(kversion.V3_7_0())}
	if dir != "" {
		opts = append(opts, kfake.DataDir(dir))
	}
	if sync {
		opts = append(opts, kfake.SyncWrites())
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	<-end
	c.Close()
	return nil
}
