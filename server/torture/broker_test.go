//go:build torture

package torture

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
	"kaas/server"
	"kaas/server/config"
)

// serveCommand as the first argument makes the test binary a broker.
const serveCommand = "serve"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if run := map[string]func([]string) error{serveCommand: serve, writeCommand: writeTransactions}[os.Args[1]]; run != nil {
			if err := run(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}

// rulesSet is what the broker says when it follows the rules with that number.
func rulesSet(number string) string { return "rules " + number + " are in force" }

// serve runs a broker on a file system with faults until SIGTERM. The file named by -rules has a number in its first line and rules of
// crashfs in the others; it is read at the start and again at SIGUSR1. At SIGUSR2 the power goes: the broker kills itself, and when it is
// started again it finds what a power cut would have left.
func serve(args []string) error {
	began := time.Now()
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	listen := flags.String("listen", "", "host:port")
	dir := flags.String("data-dir", "", "data directory")
	rules := flags.String("rules", "", "file with rules")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var settings []config.Setting
	for k, v := range map[string]string{"log.dirs": *dir, "listeners": config.ListenersValue(*listen), "kaas.durability": "group-commit",
		"transaction.state.log.num.partitions": "3", "transaction.state.log.segment.bytes": "300000", "offsets.topic.num.partitions": "3",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200", "group.initial.rebalance.delay.ms": "0"} {
		settings = append(settings, config.Setting{Key: k, Value: v, Origin: "torture"})
	}
	cfg, err := config.Load(config.Options{Settings: settings})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	disk := newPower(vfs.OS)
	lost := *rules + ".lost"
	if err := losePower(lost); err != nil {
		return err
	}
	faults := crashfs.Rules("")
	if err := follow(faults, *rules); err != nil {
		return err
	}
	b, err := server.StartOn(faults.FS(disk), cfg, began, os.Stderr)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(b.Ready()); err != nil {
		return err
	}
	for s := range signals {
		if s == syscall.SIGTERM {
			break
		}
		if s == syscall.SIGUSR2 {
			return cutPower(disk, lost)
		}
		if err := follow(faults, *rules); err != nil {
			return err
		}
	}
	return b.Stop()
}

func follow(faults *crashfs.Faults, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	number, rules, _ := strings.Cut(string(text), "\n")
	if err := faults.Set(rules); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, rulesSet(number))
	return nil
}

// cutPower writes down what was not synced and kills the process.
func cutPower(disk *power, file string) error {
	losses, err := disk.cut()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(losses); err != nil {
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// losePower takes back what cutPower wrote down. The seed is made of it, so that it does the same when it was killed meanwhile.
func losePower(file string) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var losses []loss
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&losses); err != nil {
		return err
	}
	if err := takeBack(losses, rand.New(rand.NewPCG(uint64(crc32.ChecksumIEEE(b)), 0))); err != nil {
		return err
	}
	return os.Remove(file)
}
