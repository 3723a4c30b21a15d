package api

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/engine/state"
	"kaas/engine/vfs"
	"kaas/netio"
	"kaas/server/config"
	"kaas/server/logging"
	"kaas/server/topics"
)

// noFormat is enough of a format for logs that are only appended to.
type noFormat struct{ engine.Format }

func (noFormat) Stamp(b []byte, baseOffset int64, leaderEpoch int32) {
	batch.View(b).SetBaseOffset(baseOffset)
	batch.View(b).SetPartitionLeaderEpoch(leaderEpoch)
}

// serviceInMemory runs a Service on a port, with nothing on disk, until the end of the test. change is called before the port is open.
func serviceInMemory(t *testing.T, now func() int64, change func(s *Service)) (s *Service, addr string) {
	t.Helper()
	cfg, err := config.Load(config.Options{Settings: []config.Setting{{Key: "kaas.storage", Value: "memory"}}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(engine.Config{Storage: engine.Memory, Format: noFormat{}})
	if err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(vfs.Memory(), "/catalog", state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	registry, err := topics.New(cfg, store, e, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s = New(Config{Topics: registry, Engine: e, Levels: logging.New(io.Discard, slog.LevelError), NodeID: 1, Sessions: 10, FetchMaxBytes: 1 << 20, Now: now})
	change(s)
	s.SetEndpoints([]Endpoint{{Host: "127.0.0.1", Port: 1}})
	n, err := netio.New(netio.Config{Loops: 1, Logger: quiet}, s)
	if err != nil {
		t.Fatal(err)
	}
	at, err := n.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	n.Start()
	t.Cleanup(func() {
		n.StopAccepting()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := errors.Join(n.Drain(ctx), e.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, at.String()
}

// request is a whole frame.
func request(t *testing.T, key, version int16, m api.Message) []byte {
	t.Helper()
	fact, _ := api.Lookup(key)
	var w wire.Writer
	f := w.BeginFrame()
	h := wire.RequestHeader{Key: key, Version: version, CorrelationID: 9}
	h.Encode(&w, fact.RequestHeader(version))
	m.Encode(&w, version)
	w.EndFrame(f)
	if w.Err != nil {
		t.Fatal(w.Err)
	}
	return w.B
}

// produceFrame is a Produce request with one record.
func produceFrame(t *testing.T, topic string) []byte {
	var b batch.Builder
	b.Begin(nil, batch.NewSpec())
	b.Append(1_700_000_000_000, nil, []byte("value"))
	var q api.ProduceRequest
	q.Default()
	q.Acks = -1
	td := api.Next(&q.TopicData)
	td.Name = topic
	api.Next(&td.PartitionData).Records = wire.Records{Bytes: b.End(nil)}
	return request(t, api.KeyProduce, 9, &q)
}

// ask sends a frame and returns the answer, or false when the connection was closed instead.
func ask(t *testing.T, c net.Conn, frame []byte) (answer []byte, ok bool) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(frame); err != nil {
		return nil, false
	}
	var size [4]byte
	_, err := io.ReadFull(c, size[:])
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("neither an answer nor a closed connection")
	}
	if err != nil {
		return nil, false
	}
	answer = make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, answer); err != nil {
		return nil, false
	}
	return answer, true
}

// A handler that panics costs its own connection, on the loop and on a worker, and is counted; other connections, the loop and the
// workers go on, and so does the partition (regression 11).
func TestPanicStaysWithItsConnection(t *testing.T) {
	var broken atomic.Bool
	fail := func(*call) { panic("handler") }
	s, addr := serviceInMemory(t, func() int64 {
		if broken.Load() {
			panic("the clock is broken")
		}
		return 1_700_000_000_000
	}, func(s *Service) {
		s.handlers[api.KeyDescribeCluster].serve = fail
		s.handlers[api.KeyDescribeConfigs].serve = func(c *call) { c.toWorker(fail) }
	})
	s.topics.Create([]topics.Spec{
		{Name: "plain", Partitions: 1, ReplicationFactor: 1},
		{Name: "packed", Partitions: 1, ReplicationFactor: 1, Configs: []config.Change{{Name: "compression.type", Value: "gzip"}}},
	}, false, nil)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	var cluster api.DescribeClusterRequest
	cluster.Default()
	friend := dial()
	wellNow := func(what string) {
		t.Helper()
		for _, topic := range []string{"plain", "packed"} {
			if _, ok := ask(t, friend, produceFrame(t, topic)); !ok {
				t.Fatalf("%s: somebody else's Produce to %s is not answered", what, topic)
			}
		}
	}
	wellNow("before")
	for what, frame := range map[string][]byte{
		"handler on the loop": request(t, api.KeyDescribeCluster, 0, &cluster),
		"handler on a worker": request(t, api.KeyDescribeConfigs, 0, &api.DescribeConfigsRequest{}),
		"Produce on the loop": produceFrame(t, "plain"),
		"Produce on a worker": produceFrame(t, "packed"),
	} {
		broken.Store(true)
		if answer, ok := ask(t, dial(), frame); ok {
			t.Errorf("%s: answered % x", what, answer)
		}
		broken.Store(false)
		wellNow("after " + what)
	}
	for _, topic := range []string{"plain", "packed"} {
		if got := s.topics.ByName(topic).Partition(0).Log.Offsets().LogEnd; got != 5 {
			t.Errorf("%s: log end %d, want 5", topic, got)
		}
	}
	if got := s.Stats().Panics; got != 2 {
		t.Errorf("%d panics of workers counted, want 2", got)
	}
}
