package server

import (
	"encoding/binary"
	"io"
	"testing"

	"kaas/codec/api"
)

// The produce and fetch paths allocate nothing per request in steady state: through the socket, the loop, the handler, the
// log and back, with metrics on.
func TestNoAllocationPerRequest(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, durability := range []string{"page-cache", "group-commit"} {
		t.Run(durability, func(t *testing.T) {
			c := dial(t, broker(t, "kaas.durability", durability, "kaas.metrics.listen", "127.0.0.1:0", "kaas.append.stall.ms", "0"))
			c.create("t", 2)
			c.create("each", 1, "flush.messages", "1")
			c.create("some", 1, "flush.messages", "3", "flush.ms", "1")
			set := records(string(make([]byte, 1000)))
			c.create("txn", 1)
			x := c.producer("x")
			inTxn := c.frame(api.KeyProduce, 9, x.request("txn", 0, "v")) // repeated, it is known again, and verified by the open transaction
			if code := x.add("txn", 0); code != api.ErrNone {
				t.Fatal(code)
			}
			if code := x.put("txn", 0, "v"); code != api.ErrNone {
				t.Fatal(code)
			}
			for _, test := range []struct {
				name  string
				frame []byte
			}{
				{"produce acks=1", c.frame(api.KeyProduce, 9, produceRequest("t", 0, 1, set))},
				{"produce acks=-1", c.frame(api.KeyProduce, 9, produceRequest("t", 0, -1, set))},
				{"produce with flush.messages=1", c.frame(api.KeyProduce, 9, produceRequest("each", 0, 1, set))},
				{"produce with a commit now and then", c.frame(api.KeyProduce, 9, produceRequest("some", 0, 1, set))},
				{"produce v3", c.frame(api.KeyProduce, 3, produceRequest("t", 1, -1, set))},
				{"produce in an open transaction", inTxn},
				{"fetch", c.frame(api.KeyFetch, 12, fetchRequest("t", 0, 0, 0, 0))},
				{"fetch v4", c.frame(api.KeyFetch, 4, fetchRequest("t", 0, 3, 0, 0))},
				{"fetch of nothing", c.frame(api.KeyFetch, 12, fetchRequest("t", 0, 1<<40, 0, 0))},
				{"fetch that waits", c.frame(api.KeyFetch, 12, fetchRequest("t", 1, 0, 1, 1<<30))},
			} {
				buf := make([]byte, 2<<20)
				for range 100 {
					c.roundTrip(test.frame, buf)
				}
				if n := testing.AllocsPerRun(100, func() { c.roundTrip(test.frame, buf) }); n != 0 {
					t.Errorf("%s: %v allocations per request", test.name, n)
				}
			}
		})
	}
}

// roundTrip sends a frame as it is and reads one answer into buf.
func (c *client) roundTrip(frame, buf []byte) []byte {
	if _, err := c.c.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.ReadFull(c.c, buf[:4]); err != nil {
		c.t.Fatal(err)
	}
	n := binary.BigEndian.Uint32(buf)
	if _, err := io.ReadFull(c.c, buf[:n]); err != nil {
		c.t.Fatal(err)
	}
	return buf[:n]
}
