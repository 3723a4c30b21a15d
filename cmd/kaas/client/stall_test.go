package client

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"kaas/cmd/kaas/cli"
)

// TestProduceStalled: a broker that does not answer any more is given up, even for records with timestamps of long ago, and
// with them the command does not give up early.
func TestProduceStalled(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := ln.Addr().String()
	back := broker(t, "advertised.listeners", "PLAINTEXT://"+front)
	stall, end := make(chan struct{}), make(chan struct{})
	var conns sync.WaitGroup
	t.Cleanup(func() {
		close(end)
		ln.Close()
		conns.Wait()
	})
	go forward(ln, back, stall, end, &conns)

	s := session{t, front}
	s.topic("t", 1)
	in, feed := io.Pipe()
	out := &buffer{}
	errs, wait := s.start(context.Background(), in, out, "produce", "--topic", "t", "--json", "--timeout", "500ms", "--format", `%d %v\n`)
	if _, err := io.WriteString(feed, "1714564800000 one\n"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return strings.Count(out.String(), "\n") == 1 })
	close(stall)
	if _, err := io.WriteString(feed, "1714564800000 two\n"); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	if code := wait(); code != cli.Failed || errs.String() != "1 records written to t\nkaas: a record for t was not written: no acknowledgement for 500ms\n" {
		t.Errorf("code %d, %q", code, errs)
	}
}

// forward passes bytes between clients and the broker at addr; once stall is closed, nothing comes back.
func forward(ln net.Listener, addr string, stall, end chan struct{}, conns *sync.WaitGroup) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", addr)
		if err != nil {
			c.Close()
			continue
		}
		conns.Go(func() { io.Copy(b, c) })
		conns.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := b.Read(buf)
				if err != nil {
					return
				}
				select {
				case <-stall:
				default:
					c.Write(buf[:n])
				}
			}
		})
		conns.Go(func() {
			<-end
			c.Close()
			b.Close()
		})
	}
}
