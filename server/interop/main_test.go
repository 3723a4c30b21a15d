package interop

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	_ "kaas/server" // what the broker is built from: without it a result would be cached over a change
	"kaas/server/brokertest"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap = flag.String("bootstrap", "", "test the broker at `host:port` instead of one built and started here")
	kills     = flag.Int("kills", 3, "rounds of kill -9 under load")

	workDir  string // of this test process
	buildNow = sync.OnceValues(func() (string, error) { return brokertest.Build(workDir) })
)

const patience = 60 * time.Second // for one client operation; only a broken broker needs it

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		var err error
		if workDir, err = os.MkdirTemp("", "kaas-interop-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(workDir)
		code := m.Run()
		results.print()
		return code
	}())
}

// startBroker runs a broker with group commit until the end of t, unless -bootstrap names one: then the process is nil.
func startBroker(t *testing.T, args ...string) (addr string, process *brokertest.Broker) {
	t.Helper()
	if *bootstrap != "" {
		return *bootstrap, nil
	}
	bin, err := buildNow()
	if err != nil {
		t.Fatal(err)
	}
	process, err = brokertest.Start(bin, append([]string{"--data-dir", t.TempDir(), "--durability", "group-commit"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	return process.Addr, process
}

func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newTopic creates a topic with a name that nobody else has.
func newTopic(t *testing.T, addr string, partitions int32) string {
	t.Helper()
	name := fmt.Sprintf("interop-%08x", rand.Uint32())
	r, err := kadm.NewClient(newClient(t, addr)).CreateTopic(newContext(t), partitions, 1, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	if r.Topic != name {
		t.Fatalf("created topic: want %s, got %s", name, r.Topic)
	}
	return name
}

// readAll reads every partition from its start to the high watermark of now, by direct assignment.
func readAll(t *testing.T, addr, topic string) map[int32][]*kgo.Record {
	t.Helper()
	return readAllWith(t, addr, topic)
}

// readAllWith is readAll by a client with options. It may read more than that: the last record may be of a transaction that is aborted meanwhile and be
// hidden; then the marker after it tells that its place was passed (so options that hide records want kgo.KeepControlRecords).
func readAllWith(t *testing.T, addr, topic string, opts ...kgo.Opt) map[int32][]*kgo.Record {
	t.Helper()
	ctx := newContext(t)
	ends, err := kadm.NewClient(newClient(t, addr, opts...)).ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{} // left has the last offset of each partition that is not read to it
	ends.Each(func(o kadm.ListedOffset) {
		from[o.Partition] = kgo.NewOffset().AtStart()
		if o.Offset > 0 {
			left[o.Partition] = o.Offset - 1
		}
	})
	c := newClient(t, addr, append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchMaxWait(100*time.Millisecond))...)
	got := map[int32][]*kgo.Record{}
	for len(left) > 0 {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("reading %s with partitions not read to their last offsets %v: %v", topic, left, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if last, ok := left[r.Partition]; ok && r.Offset >= last {
				delete(left, r.Partition)
			}
			got[r.Partition] = append(got[r.Partition], r)
		})
	}
	return got
}

// matrix collects what worked: clients in rows, features in columns.
type matrix struct {
	mu       sync.Mutex // guards the rest
	clients  []string
	features []string
	cells    map[[2]string]string
}

var results = &matrix{cells: map[[2]string]string{}}

// cell runs f as the subtest CLIENT/FEATURE and notes how it ended.
func cell(t *testing.T, client, feature string, f func(t *testing.T)) bool {
	t.Helper()
	verdict := "FAIL"
	ok := t.Run(client+"/"+feature, func(t *testing.T) {
		f(t)
		if !t.Failed() {
			verdict = "ok"
		}
	})
	results.note(client, feature, verdict)
	return ok
}

func (m *matrix) note(client, feature, verdict string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{client, feature}
	if had := m.cells[key]; had == "" || had == "ok" { // a failure stays
		m.cells[key] = verdict
	}
	m.clients = addOnce(m.clients, client)
	m.features = addOnce(m.features, feature)
}

func addOnce(list []string, s string) []string {
	for _, x := range list {
		if x == s {
			return list
		}
	}
	return append(list, s)
}

func (m *matrix) print() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.clients) == 0 {
		return
	}
	sort.Strings(m.clients)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "\nclient\t"+strings.Join(m.features, "\t"))
	for _, c := range m.clients {
		fmt.Fprint(w, c)
		for _, f := range m.features {
			v := m.cells[[2]string{c, f}]
			if v == "" {
				v = "."
			}
			fmt.Fprint(w, "\t"+v)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}
