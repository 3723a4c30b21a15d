package load_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"kaas/bench/floor"
	"kaas/bench/frames"
	"kaas/bench/load"
)

// startFloor serves a floor for one test and returns its address.
func startFloor(t *testing.T) string {
	t.Helper()
	s, err := floor.Listen("127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.Address()
}

func offset(t *testing.T, address, topic string, partition int, timestamp int64) int64 {
	t.Helper()
	c, err := load.Dial(address, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o, err := c.Offset(topic, partition, timestamp)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestProduceThenFetch(t *testing.T) {
	for _, c := range []struct {
		name                                             string
		connections, pipeline, partitions, batch, record int
		requests                                         int64
	}{
		{"small frames in a row", 3, 7, 1, 1, 100, 1000},
		{"small frames over many partitions", 2, 3, 5, 300, 100, 1001},
		{"batches of 16 KiB", 4, 4, 2, 16 << 10, 1000, 500},
		{"batches larger than the buffers", 2, 2, 1, 1 << 20, 1000, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := startFloor(t)
			p := load.ProduceConfig{
				Brokers: []string{address}, Topic: "t", Partitions: c.partitions, Connections: c.connections, Pipeline: c.pipeline,
				BatchBytes: c.batch, RecordBytes: c.record, Acks: 1, Limits: load.Limits{Requests: c.requests},
			}
			r, err := load.Produce(p)
			if err != nil {
				t.Fatal(err)
			}
			batch, records, err := frames.Batch(c.batch, c.record, 0)
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests != c.requests || r.Records != c.requests*int64(records) || r.Bytes != c.requests*int64(len(batch)) {
				t.Errorf("want %d requests of %d records and %d bytes, got %+v", c.requests, records, len(batch), r)
			}
			stored := int64(0)
			for i := range c.partitions {
				stored += offset(t, address, "t", i, -1)
			}
			if stored != r.Records {
				t.Errorf("want %d records stored, got %d", r.Records, stored)
			}
			for _, alike := range []bool{false, true} {
				got, err := load.Fetch(load.FetchConfig{
					Brokers: []string{address}, Topic: "t", Connections: 1, MaxBytes: 64 << 10, Alike: alike, Limits: load.Limits{Bytes: 2 * r.Bytes},
				})
				if err != nil {
					t.Fatal(err)
				}
				perAnswer := max((64<<10)/int64(len(batch)), 1) * int64(len(batch))
				if got.Bytes < 2*r.Bytes || got.Bytes >= 2*r.Bytes+perAnswer || got.Records != got.Bytes/int64(len(batch))*int64(records) {
					t.Errorf("alike %v: want twice %d bytes in answers of %d, got %+v", alike, r.Bytes, perAnswer, got)
				}
			}
		})
	}
}

func TestAcksZeroSendsEverything(t *testing.T) {
	address := startFloor(t)
	const requests = 20_000
	r, err := load.Produce(load.ProduceConfig{
		Brokers: []string{address}, Topic: "t", Partitions: 1, Connections: 2, Pipeline: 3, BatchBytes: 1, RecordBytes: 1000, Acks: 0,
		Limits: load.Limits{Requests: requests},
	})
	if err != nil || r.Requests != requests {
		t.Fatalf("want %d requests, got %+v, %v", requests, r, err)
	}
	// Sent is not yet received.
	for deadline := time.Now().Add(10 * time.Second); offset(t, address, "t", 0, -1) != requests; {
		if time.Now().After(deadline) {
			t.Fatalf("want %d records stored, got %d", requests, offset(t, address, "t", 0, -1))
		}
	}
}

func TestOpenLoop(t *testing.T) {
	address := startFloor(t)
	r, err := load.Produce(load.ProduceConfig{
		Brokers: []string{address}, Topic: "t", Partitions: 1, Connections: 3, Pipeline: 2, BatchBytes: 1, RecordBytes: 10, Acks: 1,
		Rate: 2000, Limits: load.Limits{Requests: 200},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 200 || !r.OpenLoop || r.Seconds < 199.0/2000 {
		t.Errorf("want 200 requests in no less than 99.5 ms, got %+v", r)
	}
	if r.Latency.P50 <= 0 || r.Late.Max <= 0 || r.Latency.Max < r.Late.P50 {
		t.Errorf("want latency from the schedule, got %+v", r)
	}
}

// TestStallIsCharged: while the first answer takes 100 ms, 99 more requests fall due. Each of them must be charged its wait.
func TestStallIsCharged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stalled := false
	go answerWrongly(l, frames.ProduceAnswerBytes(1), func(a []byte) []byte {
		if !stalled {
			stalled = true
			time.Sleep(100 * time.Millisecond)
		}
		return a
	})
	r, err := load.Produce(load.ProduceConfig{
		Brokers: []string{l.Addr().String()}, Topic: "t", Partitions: 1, Connections: 1, Pipeline: 1, BatchBytes: 1, RecordBytes: 10, Acks: 1,
		Rate: 1000, Limits: load.Limits{Requests: 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Request k waited for at least 100-k ms.
	if r.Requests != 100 || r.Latency.Max < 100_000 || r.Latency.P50 < 50_000 || r.Latency.P90 < 90_000 {
		t.Errorf("want the stall in every percentile, got %+v", r)
	}
}

// TestWrongAnswers lets a broker answer each produce wrongly in one way.
func TestWrongAnswers(t *testing.T) {
	n := frames.ProduceAnswerBytes(1)
	for _, c := range []struct {
		name  string
		spoil func(answer []byte) []byte
		want  string
	}{
		{"error code", func(a []byte) []byte { a[frames.ProduceErrorAt(1)+1] = 3; return a }, "produce: Kafka error 3"},
		{"correlation id", func(a []byte) []byte { a[7] = 9; return a }, "answer 9 where 0 was next"},
		{"length", func(a []byte) []byte { a[3]++; return a }, "answer of"},
		{"twice", func(a []byte) []byte { return append(a, a...) }, "answer"},
		{"closed", func([]byte) []byte { return nil }, "closed the connection"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go answerWrongly(l, n, c.spoil)
			_, err = load.Produce(load.ProduceConfig{
				Brokers: []string{l.Addr().String()}, Topic: "t", Partitions: 1, Connections: 1, Pipeline: 1, BatchBytes: 1, RecordBytes: 10, Acks: 1,
				Limits: load.Limits{Requests: 3},
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error with %q, got %v", c.want, err)
			}
		})
	}
}

// answerWrongly is a broker with one topic: right about all but its produce answers.
func answerWrongly(l net.Listener, answerBytes int, spoil func([]byte) []byte) {
	port := l.Addr().(*net.TCPAddr).Port
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil || n < frames.RequestHead {
				break
			}
			body := append([]byte(nil), buf[frames.CorrelationAt:frames.CorrelationAt+4]...)
			switch buf[5] {
			case frames.KeyCreateTopics:
				body = append(body, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0xff, 0xff)
			case frames.KeyMetadata:
				body = append(body, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 9)
				body = append(body, "127.0.0.1"...)
				body = append(body, 0, 0, byte(port>>8), byte(port), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1)
				body = append(body, 0, 0, 0, 1, 0, 0, 0, 1, 't', 0, 0, 0, 0, 1, 0, 0)
				body = append(body, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
			default:
				body = append(body, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0)
				body = append(body, make([]byte, answerBytes-4-len(body))...)
			}
			answer := append([]byte{0, 0, 0, byte(len(body))}, body...)
			if buf[5] == frames.KeyProduce {
				if answer = spoil(answer); answer == nil {
					break
				}
			}
			if _, err := c.Write(answer); err != nil {
				break
			}
		}
		c.Close()
	}
}
