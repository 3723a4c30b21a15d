package floor

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kaas/bench/frames"
)

// client speaks to a floor that is served for one test.
type client struct {
	t    *testing.T
	conn net.Conn
	dir  string
}

func serve(t *testing.T) *client {
	t.Helper()
	c, _ := serveBy(t, Listen)
	return c
}

func serveBy(t *testing.T, open func(address, dir string) (*Server, error)) (*client, *Server) {
	t.Helper()
	dir := t.TempDir()
	s, err := open("127.0.0.1:0", dir)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{t, c, dir}, s
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads one frame, length included.
func (c *client) answer() []byte {
	c.t.Helper()
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		c.t.Fatal(err)
	}
	b := append(head, make([]byte, be.Uint32(head))...)
	if _, err := io.ReadFull(c.conn, b[4:]); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) closed() {
	c.t.Helper()
	if n, err := c.conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
		c.t.Errorf("want the connection closed, got %d bytes, %v", n, err)
	}
}

// stored reads the first n bytes of partition 1; the file itself is allocated far ahead.
func (c *client) stored(n int) []byte {
	c.t.Helper()
	f, err := os.Open(filepath.Join(c.dir, "t-1.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := io.ReadFull(f, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) create(topic string) {
	c.t.Helper()
	c.send(frames.CreateTopics(2, 1000, topic))
	if _, code, err := frames.CreateTopicsAnswer(c.answer()[frames.ResponseHead:]); code != 0 || err != nil {
		c.t.Fatalf("create: %d, %v", code, err)
	}
}

func request(t *testing.T, size int) (frame, batch []byte, records int) {
	t.Helper()
	batch, records, err := frames.Batch(size, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	return append(frames.ProduceHead("t", 1, 1, 1000, len(batch)), batch...), batch, records
}

// TestStoredBytes sends requests in pieces of every kind, and looks at the file and at what a fetch returns.
func TestStoredBytes(t *testing.T) {
	for _, size := range []int{200, 5_000, 600_000} {
		c := serve(t)
		c.create("t")
		frame, batch, records := request(t, size)
		three := bytes.Repeat(frame, 3)
		for _, cut := range []int{1, 50, len(frame) - 1, len(frame) + 40, 2*len(frame) + 100} {
			cut = min(cut, len(three))
			c.send(three[:cut])
			c.send(three[cut:])
			for range 3 {
				if a := c.answer(); len(a) != frames.ProduceAnswerBytes(1) || be.Uint16(a[frames.ProduceErrorAt(1):]) != 0 {
					t.Fatalf("got %x", a)
				}
			}
		}
		var want []byte
		for i := range 15 {
			be.PutUint64(batch, uint64(i*records))
			want = append(want, batch...)
		}
		if got := c.stored(len(want)); !bytes.Equal(got, want) {
			t.Fatalf("size %d: the file is not what was sent", size)
		}
		fetch, at := frames.Fetch("t", 1, 0, 1, int32(3*len(batch)+len(batch)/2))
		be.PutUint64(fetch[at:], uint64(2*records))
		c.send(fetch)
		a := c.answer()
		head := frames.FetchAnswerBytes(1)
		high, n, err := frames.FetchHead(a[:head], "t")
		cut := 3*len(batch) + len(batch)/2
		if err != nil || high != int64(15*records) || n != cut || !bytes.Equal(a[head:], want[2*len(batch):][:cut]) {
			t.Errorf("size %d: want three and a half batches from the third on, got %d bytes, high watermark %d, %v", size, n, high, err)
		}
	}
}

// TestSynced sends batches of two partitions: each has its own offsets, all lie in one file, which is written over from its start when it is
// full, and none is answered before a sync.
func TestSynced(t *testing.T) {
	_, batch, records := request(t, 500)
	c, s := serveBy(t, func(address, dir string) (*Server, error) { return listenSynced(address, dir, int64(4*len(batch)+10)) })
	c.create("t")
	var all []byte
	var want [6][]byte
	for i := range want {
		all = append(append(all, frames.ProduceHead("t", int32(i%2), -1, 1000, len(batch))...), batch...)
		be.PutUint64(batch, uint64(i/2*records))
		want[i] = bytes.Clone(batch)
	}
	c.send(all)
	for i := range want {
		a := c.answer()
		at := frames.ProduceErrorAt(1)
		if code, base := be.Uint16(a[at:]), be.Uint64(a[at+2:]); code != 0 || base != uint64(i/2*records) {
			t.Errorf("batch %d: error %d, offset %d, want %d", i, code, base, i/2*records)
		}
		if n := s.Syncs(); n < 1 || n > int64(len(want)) {
			t.Errorf("%d syncs when batch %d was answered", n, i)
		}
	}
	b, err := os.ReadFile(filepath.Join(c.dir, "shared.log"))
	if file := slices.Concat(want[4], want[5], want[2], want[3], make([]byte, 10)); err != nil || !bytes.Equal(b, file) {
		t.Errorf("the file of %d bytes does not have the batches: %v", len(b), err)
	}
}

// TestTwoWritersOfOnePartition lets one writer's batch come in two halves with another's in between, so that what follows
// the second half in the same receive has its place elsewhere in the file.
func TestTwoWritersOfOnePartition(t *testing.T) {
	a := serve(t)
	a.create("t")
	second, err := net.Dial("tcp", a.conn.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	b := &client{t, second, a.dir}
	frame, batch, records := request(t, 20_000)
	for range 5 {
		a.send(frame[:len(frame)/2])
		b.send(frame)
		b.answer()
		a.send(append(append([]byte(nil), frame[len(frame)/2:]...), frame...))
		a.answer()
		a.answer()
	}
	stored := a.stored(15 * len(batch))
	for i := range 15 {
		be.PutUint64(batch, uint64(i*records))
		if !bytes.Equal(stored[i*len(batch):(i+1)*len(batch)], batch) {
			t.Errorf("batch %d is not what was sent", i)
		}
	}
}

func TestCorruptBatch(t *testing.T) {
	for _, size := range []int{500, 600_000} {
		c := serve(t)
		c.create("t")
		frame, _, _ := request(t, size)
		frame[len(frame)-1] ^= 1
		c.send(frame)
		if code := be.Uint16(c.answer()[frames.ProduceErrorAt(1):]); code != 2 {
			t.Errorf("want error 2, got %d", code)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Run("no such topic", func(t *testing.T) {
		c := serve(t)
		frame, _, _ := request(t, 500)
		c.send(frame)
		c.closed()
	})
	t.Run("a batch of another size", func(t *testing.T) {
		c := serve(t)
		c.create("t")
		frame, _, _ := request(t, 500)
		c.send(frame)
		c.answer()
		frame, _, _ = request(t, 800)
		c.send(frame)
		c.closed()
	})
	t.Run("an unknown request", func(t *testing.T) {
		c := serve(t)
		frame := frames.APIVersions()
		frame[5] = 99
		c.send(frame)
		c.closed()
	})
	t.Run("a negative length", func(t *testing.T) {
		c := serve(t)
		frame := frames.APIVersions()
		be.PutUint32(frame, 1<<31)
		c.send(frame)
		c.closed()
	})
}

func TestAnswers(t *testing.T) {
	c := serve(t)
	c.create("t")
	c.send(frames.APIVersions())
	if n, err := frames.APIVersionsAnswer(c.answer()[frames.ResponseHead:]); n != 6 || err != nil {
		t.Errorf("want six keys, got %d, %v", n, err)
	}
	c.send(frames.Metadata("t"))
	l, err := frames.MetadataAnswer(c.answer()[frames.ResponseHead:], "t")
	if err != nil || l.Code != 0 || len(l.Leaders) != 2 || l.Leaders[1] != c.conn.RemoteAddr().String() {
		t.Errorf("want itself as leader of both, got %+v, %v", l, err)
	}
	c.send(frames.Metadata("u"))
	if l, err := frames.MetadataAnswer(c.answer()[frames.ResponseHead:], "u"); err != nil || l.Code != 3 {
		t.Errorf("want error 3, got %+v, %v", l, err)
	}
	frame, _, records := request(t, 500)
	c.send(frame)
	c.answer()
	for timestamp, want := range map[int64]int64{-1: int64(records), -2: 0} {
		c.send(frames.ListOffsets("t", 1, timestamp))
		if o, err := frames.ListOffsetsAnswer(c.answer()[frames.ResponseHead:]); o != want || err != nil {
			t.Errorf("offset of time %d: want %d, got %d, %v", timestamp, want, o, err)
		}
	}
	fetch, at := frames.Fetch("t", 1, 0, 1, 100)
	be.PutUint64(fetch[at:], uint64(records+1))
	c.send(fetch)
	var kafka *frames.Error
	if _, _, err := frames.FetchHead(c.answer(), "t"); !errors.As(err, &kafka) || kafka.Code != 1 {
		t.Errorf("want error 1 beyond the end, got %v", err)
	}
}
