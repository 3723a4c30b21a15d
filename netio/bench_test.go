package netio

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// loadEnv makes the test binary a load generator, so that the CPU time of a
// benchmark's process is that of the server alone.
const loadEnv = "NETIO_LOAD"

// loadTLSEnv makes it speak TLS.
const loadTLSEnv = "NETIO_LOAD_TLS"

func TestMain(m *testing.M) {
	if spec := os.Getenv(loadEnv); spec != "" {
		if err := load(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// load runs "addr conns depth requests request-bytes reply-bytes": every
// connection sends depth requests at once and waits for the replies. Sizes are
// those on the wire.
func load(spec string) error {
	f := strings.Fields(spec)
	var n [5]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(f[i+1]); err != nil {
			return err
		}
	}
	conns, depth, requests, reqBytes, replyBytes := n[0], n[1], n[2], n[3], n[4]
	var left atomic.Int64
	left.Store(int64(requests))
	errs := make(chan error, conns)
	var done sync.WaitGroup
	for range conns {
		done.Go(func() { errs <- loadConn(f[0], depth, reqBytes, replyBytes, &left) })
	}
	done.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func loadConn(addr string, depth, reqBytes, replyBytes int, left *atomic.Int64) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if os.Getenv(loadTLSEnv) != "" {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, DynamicRecordSizingDisabled: true}) // whom it measures it knows
	}
	var batch []byte
	for range depth {
		batch = appendFrame(batch, make([]byte, reqBytes-4))
	}
	in := make([]byte, min(depth*replyBytes, 256<<10))
	for left.Add(int64(-depth)) >= int64(-depth) {
		if _, err := c.Write(batch); err != nil {
			return err
		}
		for want := depth * replyBytes; want > 0; {
			n, err := io.ReadAtLeast(c, in[:min(want, len(in))], 1)
			if err != nil {
				return err
			}
			want -= n
		}
	}
	return nil
}

func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchLoad runs b.N requests from another process against a server with handler h.
func benchLoad(b *testing.B, cfg Config, h Handler, conns, depth, reqBytes, replyBytes int) {
	s, addr := serve(b, cfg, h)
	benchLoadOn(b, s, addr, conns, depth, reqBytes, replyBytes)
}

// benchLoadOn is benchLoad with a server that runs; env is for the load generator.
func benchLoadOn(b *testing.B, s *Server, addr string, conns, depth, reqBytes, replyBytes int, env ...string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d %d %d", loadEnv, addr, conns, depth, b.N, reqBytes, replyBytes)), env...)
	cmd.Stderr = os.Stderr
	b.SetBytes(int64(max(reqBytes, replyBytes)))
	b.ResetTimer()
	cpu, rounds := cpuTime(), s.Stats().Rounds
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	used := cpuTime() - cpu
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(used.Seconds()/(float64(b.N)*float64(max(reqBytes, replyBytes))/1e9), "cpu-s/GB")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
	b.ReportMetric(float64(s.Stats().Rounds-rounds)/float64(b.N), "rounds/op")
}

func BenchmarkEcho(b *testing.B) {
	for _, p := range []struct {
		name                string
		bytes, conns, depth int
	}{
		{"size=1k/conns=1/depth=1", 1 << 10, 1, 1},
		{"size=1k/conns=16/depth=1", 1 << 10, 16, 1},
		{"size=1k/conns=16/depth=16", 1 << 10, 16, 16},
		{"size=16k/conns=16/depth=4", 16 << 10, 16, 4},
	} {
		b.Run(p.name, func(b *testing.B) {
			benchLoad(b, Config{Loops: 1}, &hooks{frame: echo}, p.conns, p.depth, p.bytes, p.bytes)
		})
	}
}

// BenchmarkReceive answers frames with four bytes: the receiving half of Produce.
func BenchmarkReceive(b *testing.B) {
	for _, p := range []struct {
		name                string
		bytes, conns, depth int
	}{
		{"size=1k/conns=16/depth=16", 1 << 10, 16, 16},
		{"size=16k/conns=16/depth=4", 16 << 10, 16, 4},
		{"size=1m/conns=4/depth=2", 1<<20 + 100, 4, 2},
	} {
		b.Run(p.name, func(b *testing.B) {
			benchLoad(b, Config{Loops: 1}, &hooks{frame: func(c *Conn, _ []byte) { echo(c, nil) }}, p.conns, p.depth, p.bytes, 4)
		})
	}
}

// BenchmarkSendfile answers small frames with a file slice: the sending half of Fetch.
func BenchmarkSendfile(b *testing.B) {
	for _, p := range []struct {
		name  string
		bytes int
		conns int
	}{
		{"size=64k/conns=4", 64 << 10, 4},
		{"size=1m/conns=1", 1 << 20, 1},
		{"size=1m/conns=4", 1 << 20, 4},
		{"size=1m/conns=16", 1 << 20, 16},
	} {
		b.Run(p.name, func(b *testing.B) {
			f := tempFile(b, make([]byte, 64<<20))
			ref, pos := &countRef{}, int64(0)
			benchLoad(b, Config{Loops: 1}, &hooks{frame: func(c *Conn, _ []byte) {
				pos = (pos + int64(p.bytes)) % (64 << 20)
				r := c.NewReply()
				r.Buf = binary.BigEndian.AppendUint32(r.Buf[:0], uint32(p.bytes))
				r.Parts = append(r.Parts, Part{To: 4}, Part{FD: int(f.Fd()), Pos: pos, Len: p.bytes, Ref: ref})
				r.Send()
			}}, p.conns, 1, 64, 4+p.bytes)
		})
	}
}

// BenchmarkTLS puts TLS beside plaintext: the receiving half of Produce and the sending half of Fetch. Interleaved:
//
//	for i in 1 2 3 4 5; do go test -run xxx -bench TLS -benchtime 2000x ./netio; done
func BenchmarkTLS(b *testing.B) {
	cert, _ := testCert(b, "server")
	for _, size := range []struct {
		name  string
		bytes int
		depth int
	}{{"16k", 16 << 10, 4}, {"1m", 1 << 20, 2}} {
		f := tempFile(b, make([]byte, 64<<20))
		ref, pos := &countRef{}, int64(0)
		for _, way := range []struct {
			name            string
			frame           func(c *Conn, _ []byte)
			request, answer int
		}{
			{"produce", func(c *Conn, _ []byte) { echo(c, nil) }, size.bytes, 4},
			{"fetch", func(c *Conn, _ []byte) {
				pos = (pos + int64(size.bytes)) % (64 << 20)
				r := c.NewReply()
				r.Buf = binary.BigEndian.AppendUint32(r.Buf[:0], uint32(size.bytes))
				r.Parts = append(r.Parts, Part{To: 4}, Part{FD: int(f.Fd()), Pos: pos, Len: size.bytes, Ref: ref})
				r.Send()
			}, 64, 4 + size.bytes},
		} {
			b.Run("way="+way.name+"/size="+size.name+"/tls=off", func(b *testing.B) {
				s, addr := serve(b, Config{Loops: 1}, &hooks{frame: way.frame})
				benchLoadOn(b, s, addr, 4, size.depth, way.request, way.answer)
			})
			b.Run("way="+way.name+"/size="+size.name+"/tls=1.3", func(b *testing.B) {
				s, addr, _ := serveTLS(b, Config{Loops: 1}, &hooks{frame: way.frame}, func(c *tls.Config) {
					c.Certificates, c.DynamicRecordSizingDisabled = []tls.Certificate{cert}, true
				})
				benchLoadOn(b, s, addr, 4, size.depth, way.request, way.answer, loadTLSEnv+"=1")
			})
		}
	}
}
