package netio

import (
	"net/netip"
	"sync/atomic"
	"testing"
)

// A connection that the gate refuses is neither served nor counted; it is closed when its time is over, or the server stops.
func TestGate(t *testing.T) {
	var delay atomic.Int64
	s, err := New(Config{Loops: 1}, &hooks{frame: echo})
	if err != nil {
		t.Fatal(err)
	}
	s.SetGate(func(a netip.Addr) int64 {
		if a != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("asked about %v", a)
		}
		return delay.Load()
	})
	addr, err := s.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	let := dial(t, addr.String())
	write(t, let, appendFrame(nil, pattern(1, 10)))
	wantFrame(t, let, pattern(1, 10))
	delay.Store(1)
	soon := dial(t, addr.String())
	wantClosed(t, soon)
	delay.Store(1 << 40)
	kept := dial(t, addr.String())
	write(t, kept, appendFrame(nil, pattern(2, 10)))
	eventually(t, "two are refused", func() bool { return s.Stats().RejectedGate == 2 })
	write(t, let, appendFrame(nil, pattern(3, 10)))
	wantFrame(t, let, pattern(3, 10))
	eventually(t, "the end of the round that counts the last frame", func() bool { return s.Stats().Frames == 2 })
	if n := s.Stats().Conns; n != 1 {
		t.Errorf("%d connections", n)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, kept)
}
