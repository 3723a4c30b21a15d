//go:build interop

package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	rollPartitions = 4
	rollProgress   = 200             // records that every client reads between two kills
	rollPatience   = 3 * time.Minute // for that; a loaded machine needs it, and a client that waits for its session to end
)

// member is a process that reads.
type member struct {
	leave, kill func()
	done        chan struct{} // closed when it has ended
}

// rolled is the history of a group of one kind of client whose broker is killed again and again.
type rolled struct {
	name, group string
	command     func(t *testing.T, addr, topic, group string) *exec.Cmd
	line        func(h *rolled, own map[int32]int64, line string)
	members     int            // that it has
	signal      syscall.Signal // ends a member that does not look at its standard input; 0: none

	mu       sync.Mutex      // guards what follows
	seen     map[place]int   // how often each record was read
	acked    map[int32]int64 // the furthest commit that a member was told of
	failures int             // commits that failed, as members say
	faults   []string
	said     strings.Builder // on standard error

	left []*member
}

// read notes a record. own are the commits that the same member was told of: it must not be given anything from before them.
func (h *rolled) read(own map[int32]int64, partition int32, from, to int64) {
	for offset := from; offset <= to; offset++ {
		h.seen[place{partition, offset}]++
	}
	if from < own[partition] {
		h.faults = append(h.faults, fmt.Sprintf("%d/%d was read after the commit of %d", partition, from, own[partition]))
	}
}

// committed notes a commit that a member was told of.
func (h *rolled) committed(own map[int32]int64, partition int32, offset int64) {
	own[partition] = max(own[partition], offset)
	h.acked[partition] = max(h.acked[partition], offset)
}

// plainLine takes a line of the programs in clients/.
func plainLine(h *rolled, own map[int32]int64, line string) {
	var what string
	var partition int32
	var offset int64
	if n, err := fmt.Sscan(line, &what, &partition, &offset); n != 3 {
		h.faults = append(h.faults, fmt.Sprintf("line %q: %v", line, err))
		return
	}
	switch what {
	case "read":
		h.read(own, partition, offset, offset)
	case "committed":
		h.committed(own, partition, offset)
	default:
		h.faults = append(h.faults, fmt.Sprintf("line %q", line))
	}
}

// verifiableLine takes a line of Apache's VerifiableConsumer.
func verifiableLine(h *rolled, own map[int32]int64, line string) {
	var e struct {
		Name       string
		Success    bool
		Partitions []struct {
			Partition            int32
			MinOffset, MaxOffset int64
		}
		Offsets []struct {
			Partition int32
			Offset    int64
		}
	}
	if json.Unmarshal([]byte(line), &e) != nil {
		return // the tool also prints what it is told to do
	}
	switch e.Name {
	case "records_consumed":
		for _, p := range e.Partitions {
			h.read(own, p.Partition, p.MinOffset, p.MaxOffset)
		}
	case "offsets_committed":
		if !e.Success {
			h.failures++
			return
		}
		for _, p := range e.Offsets {
			h.committed(own, p.Partition, p.Offset)
		}
	}
}

// start begins the members.
func (h *rolled) start(t *testing.T, addr, topic string) {
	t.Helper()
	for range h.members {
		cmd := h.command(t, addr, topic, h.group)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		noise, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // also after a failure
		m := &member{done: make(chan struct{}), kill: func() { _ = cmd.Process.Kill() }, leave: func() {
			_ = in.Close()
			_ = cmd.Process.Signal(h.signal)
		}}
		h.left = append(h.left, m)
		var lines sync.WaitGroup
		lines.Go(func() {
			own := map[int32]int64{}
			for s := bufio.NewScanner(out); s.Scan(); {
				h.mu.Lock()
				h.line(h, own, s.Text())
				h.mu.Unlock()
			}
		})
		lines.Go(func() {
			for s := bufio.NewScanner(noise); s.Scan(); {
				h.mu.Lock()
				if strings.HasPrefix(s.Text(), "commit:") {
					h.failures++
				}
				if h.said.Len() < 4000 {
					h.said.WriteString(s.Text() + "\n")
				}
				h.mu.Unlock()
			}
		})
		go func() {
			defer close(m.done)
			lines.Wait()
			_ = cmd.Wait()
		}()
	}
}

// count is how many records were read, each once.
func (h *rolled) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

// watch looks at what is committed until ctx ends: it never goes back, nor behind what members were told.
func (h *rolled) watch(ctx context.Context, t *testing.T, addr string) {
	adm := kadm.NewClient(newClient(t, addr))
	before := map[int32]int64{}
	for ctx.Err() == nil {
		h.mu.Lock()
		for p, offset := range h.acked {
			before[p] = max(before[p], offset)
		}
		h.mu.Unlock()
		asking, cancel := context.WithTimeout(ctx, patience)
		got, err := adm.FetchOffsets(asking, h.group)
		cancel()
		if err != nil {
			continue // the broker is being killed
		}
		got.Each(func(o kadm.OffsetResponse) {
			if o.Err == nil && o.At < before[o.Partition] {
				h.mu.Lock()
				h.faults = append(h.faults, fmt.Sprintf("committed is %d/%d, after %d", o.Partition, o.At, before[o.Partition]))
				h.mu.Unlock()
			} else if o.Err == nil {
				before[o.Partition] = o.At
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// clients are those that read while their broker is killed.
func rollingClients(t *testing.T) []*rolled {
	t.Helper()
	root := moduleRoot(t)
	bin, err := buildConfluentGo()
	if err != nil {
		t.Fatal(err)
	}
	home, err := javaHome()
	if err != nil {
		t.Fatal(err)
	}
	list := []*rolled{
		{name: "confluent-kafka", members: 2, line: plainLine, command: func(_ *testing.T, addr, topic, group string) *exec.Cmd {
			return exec.Command(filepath.Join(root, ".interop", "python", "bin", "python"), filepath.Join("clients", "confluent.py"), "roll", addr, topic, group)
		}},
		{name: "confluent-kafka-go", members: 2, line: plainLine, command: func(_ *testing.T, addr, topic, group string) *exec.Cmd {
			return exec.Command(bin, "roll", addr, topic, group)
		}},
		{name: "kafkajs", members: 2, line: plainLine, command: func(_ *testing.T, addr, topic, group string) *exec.Cmd {
			cmd := exec.Command("node", filepath.Join("clients", "kafkajs.js"), "roll", addr, topic, group)
			cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(root, ".interop", "node", "node_modules"))
			return cmd
		}},
		{name: "VerifiableConsumer", members: 1, line: verifiableLine, signal: syscall.SIGTERM, command: func(_ *testing.T, addr, topic, group string) *exec.Cmd {
			return exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Dlog4j.configuration=file:"+filepath.Join(home, "tools-log4j.properties"),
				"-cp", filepath.Join(home, "lib-3.7.2", "*"), "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", addr, "--topic", topic,
				"--group-id", group, "--reset-policy", "earliest", "--session-timeout", "10000")
		}},
	}
	for _, h := range list {
		h.group, h.seen, h.acked = "roll-"+h.name, map[place]int{}, map[int32]int64{}
	}
	return list
}

// TestRollingRestart: clients of four kinds read in groups and commit while a producer goes on and the broker is killed and comes back: each group
// resumes after every kill, every record is read, nobody is given what lies before its own commit, and no commit goes back.
func TestRollingRestart(t *testing.T) {
	if *bootstrap != "" {
		t.Skip("a broker that was not started here is not killed")
	}
	rounds := max(*kills/5, 3)
	if testing.Short() {
		rounds = 1
	}
	clients := rollingClients(t)
	addr, process := startBroker(t, "--set", "group.initial.rebalance.delay.ms=0")
	topic := newTopic(t, addr, rollPartitions)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var watching, writing sync.WaitGroup
	for _, h := range clients {
		h.start(t, addr, topic)
		watching.Go(func() { h.watch(ctx, t, addr) })
	}
	var over atomic.Bool
	writer := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	writing.Go(func() {
		for n := 0; !over.Load(); n++ {
			if err := writer.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(n)), kgo.StringRecord("beside")).FirstErr(); err != nil {
				t.Errorf("record %d: %v", n, err)
				return
			}
			time.Sleep(5 * time.Millisecond) // the pace of the producer
		}
	})
	began := time.Now()
	for round := range rounds + 1 {
		marks := make([]int, len(clients))
		for i, h := range clients {
			marks[i] = h.count()
		}
		for i, h := range clients {
			rollUntil(t, h, fmt.Sprintf("records after kill %d", round), func() error {
				if n := h.count(); n < marks[i]+rollProgress {
					return fmt.Errorf("%d records read, %d at the kill", n, marks[i])
				}
				return nil
			})
		}
		if round == rounds {
			break
		}
		if err := process.Restart(true); err != nil {
			t.Fatal(err)
		}
	}
	over.Store(true)
	writing.Wait()
	total := 0
	for _, rs := range readAll(t, addr, topic) {
		total += len(rs)
	}
	for _, h := range clients {
		cell(t, h.name, "rolling restart", func(t *testing.T) { h.end(t, addr, topic, total) })
	}
	stop()
	watching.Wait()
	t.Logf("%d kills, %d records in %v", rounds, total, time.Since(began).Round(time.Second))
	if t.Failed() {
		t.Log(process.Stderr())
	}
}

// rollUntil waits until ok has nothing to say.
func rollUntil(t *testing.T, h *rolled, what string, ok func() error) {
	t.Helper()
	for end := time.Now().Add(rollPatience); ; time.Sleep(20 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("%s waited for %s in vain: %v\n%s", h.name, what, err, h.said.String())
		}
	}
}

// leave has the members go. kafkajs now and then never ends after restarts of its broker; such a member is killed.
func (h *rolled) leave() (killed int) {
	for _, m := range h.left {
		m.leave()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, m := range h.left {
		select {
		case <-m.done:
		case <-ctx.Done():
			m.kill()
			<-m.done
			killed++
		}
	}
	return killed
}

// end waits until everything is read and committed, has the members go, and judges.
func (h *rolled) end(t *testing.T, addr, topic string, total int) {
	adm := kadm.NewClient(newClient(t, addr))
	rollUntil(t, h, "all records", func() error {
		if n := h.count(); n != total {
			return fmt.Errorf("%d records read of %d", n, total)
		}
		return nil
	})
	rollUntil(t, h, "all commits", func() error {
		got, err := adm.FetchOffsets(newContext(t), h.group)
		if err != nil {
			return err
		}
		sum := int64(0)
		got.Each(func(o kadm.OffsetResponse) { sum += o.At })
		if sum != int64(total) {
			return fmt.Errorf("%d records committed of %d", sum, total)
		}
		return nil
	})
	killed := h.leave()
	h.mu.Lock()
	defer h.mu.Unlock()
	again := 0
	for _, n := range h.seen {
		again += n - 1
	}
	t.Logf("%s: %d records, %d of them read again, %d commits failed, %d members did not end by themselves", h.name, total, again, h.failures, killed)
	for i, fault := range h.faults {
		if i == 10 {
			t.Fatal("and more")
		}
		t.Error(fault)
	}
}
