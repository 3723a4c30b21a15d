package netio

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// coldFile is a file on a disk whose pages can be dropped.
func coldFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(".", "cold-*") // the system's own directory may be in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		os.Remove(f.Name())
	})
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	drop(t, f, 0, 0)
	var k looker
	if k.resident(int(f.Fd()), 0, len(content)) {
		t.Skip("the file system does not drop pages")
	}
	return f
}

// drop puts [pos, pos+n) of f out of the page cache; n 0: to the end.
func drop(t testing.TB, f *os.File, pos, n int64) {
	t.Helper()
	if err := unix.Fadvise(int(f.Fd()), pos, n, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// What cachestat and RWF_NOWAIT say of a file of which 64 KiB in the middle are in memory. A file for each question: by
// RWF_NOWAIT the kernel begins to read what is missing, and a quick disk may have it before the answer.
func TestLooker(t *testing.T) {
	const from, size = 128 << 10, 64 << 10 // in memory
	for _, way := range []lookWay{lookByStat, lookByRead} {
		if way == lookByStat && findLookWay() != lookByStat {
			continue
		}
		for _, c := range []struct{ pos, n, byStat, byRead int }{
			{0, 1 << 20, 0, 0},
			{from, size, size, size},
			{from - 1, 1, 0, 0},
			{from, 1, 1, 1},
			{140_000, 10_000, 10_000, 10_000},
			{from - 4096, size, 0, 0},
			{from + size/2, size, 0, size / 2}, // one way says that nothing is certain, the other how far it goes
			{from + size, 1, 0, 0},
		} {
			f := coldFile(t, pattern(1, 1<<20))
			fd := int(f.Fd())
			if err := unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM); err != nil { // nothing besides what is asked for
				t.Fatal(err)
			}
			k := looker{way: way}
			if got, e := k.pread(fd, from, size, 0); got != size || e != 0 {
				t.Fatal(got, e)
			}
			want := c.byStat
			if way == lookByRead {
				want = c.byRead
			}
			if got := k.cached(fd, int64(c.pos), c.n); got != want && !(way == lookByRead && got == min(c.n, touchBytes)) {
				t.Errorf("way %d: %d bytes at %d of %d are cached, want %d", way, got, c.pos, c.n, want)
			}
		}
	}
}

// oldReplies answers a frame {position, length} with that slice of f.
func oldReplies(f *os.File, ref Ref) func(c *Conn, b []byte) {
	return func(c *Conn, b []byte) {
		pos, n := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
		r := c.NewReply()
		r.Buf = binary.BigEndian.AppendUint32(r.Buf[:0], n)
		r.Parts = append(r.Parts, Part{To: 4}, Part{FD: int(f.Fd()), Pos: int64(pos), Len: int(n), Ref: ref, Old: true})
		r.Send()
	}
}

func askSlice(pos, n int) []byte {
	return appendFrame(nil, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(pos)), uint32(n)))
}

// Old slices arrive as they are in the file, cold or warm, in plaintext and over TLS, whatever the kernel can tell. Cold ones go by a worker;
// a connection whose slices are warm again looks for itself.
func TestOldSlices(t *testing.T) {
	const size = 6 << 20
	content := pattern(3, size)
	for _, way := range []lookWay{lookByStat, lookByRead} {
		if way == lookByStat && findLookWay() != way {
			continue
		}
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("way=%d/tls=%v", way, secure), func(t *testing.T) {
				f := coldFile(t, content)
				ref := &countRef{}
				h := &hooks{frame: oldReplies(f, ref)}
				cfg := Config{Loops: 1, ReadAheadThreads: 2, ReadAheadBytes: 256 << 10}
				var s *Server
				var c io.ReadWriter
				if secure {
					srv, addr, tlsCfg := serveTLS(t, cfg, h, nil)
					s = srv
					onLoop(t, s.Loops()[0], func() { s.Loops()[0].look.way, s.lookWay = way, way })
					c = dialTLS(t, addr, tlsCfg)
				} else {
					srv, addr := serve(t, cfg, h)
					s = srv
					onLoop(t, s.Loops()[0], func() { s.Loops()[0].look.way, s.lookWay = way, way })
					c = dial(t, addr)
				}
				read := func(pos, n int) int64 {
					t.Helper()
					before := s.Stats().ColdReads
					if _, err := c.Write(askSlice(pos, n)); err != nil {
						t.Fatal(err)
					}
					wantFrame(t, c, content[pos:pos+n])
					return s.Stats().ColdReads - before
				}
				if n := read(100, 3<<20); n < 3 {
					t.Errorf("3 MiB of cold data took %d reads by a worker, want one per MiB", n)
				}
				for range 4 {
					read(100, 3<<20) // warm by now
				}
				if n := read(100, 3<<20); n != 0 {
					t.Errorf("warm data took %d reads by a worker", n)
				}
				drop(t, f, 0, 0) // what the kernel reads just now stays
				var k looker
				cold := way == lookByStat && !k.resident(int(f.Fd()), 4<<20, 8192)
				if n := read(4<<20+1, 1000); n > 1 || cold && n == 0 {
					t.Errorf("a piece (cold: %v) took %d reads by a worker", cold, n)
				}
				if n := ref.n.Load(); n < 6 {
					t.Errorf("%d slices were released, want 7 or soon 7", n)
				}
			})
		}
	}
}

// While the disk keeps a slice back, the loop serves others, and the connection that waits costs it nothing; one that is closed meanwhile gives
// its slice back once.
func TestLoopGoesOnWhileDiskIsSlow(t *testing.T) {
	f := coldFile(t, pattern(1, 1<<20))
	ref := &countRef{}
	old := oldReplies(f, ref)
	s, addr := serve(t, Config{Loops: 1, ReadAheadThreads: 1}, &hooks{frame: func(c *Conn, b []byte) {
		if len(b) == 8 {
			old(c, b)
			return
		}
		echo(c, b)
	}})
	// The only worker is busy for as long as this test wants: with a read of a pipe that nobody has written to yet.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[1])
	defer unix.Close(pipe[0])
	s.aheads.mu.Lock()
	s.aheads.running++
	s.aheads.mu.Unlock()
	go func() {
		var b [1]byte
		_, _ = unix.Read(pipe[0], b[:])
		s.runAheads()
	}()
	waiting, gone, other := dial(t, addr), dial(t, addr), dial(t, addr)
	write(t, waiting, askSlice(0, 100_000))
	write(t, gone, askSlice(200_000, 100_000))
	eventually(t, "both wait", func() bool { return s.Stats().ColdReads == 2 })
	for i := range 100 {
		write(t, other, appendFrame(nil, pattern(i, 1000)))
		wantFrame(t, other, pattern(i, 1000))
	}
	gone.Close()
	eventually(t, "one is gone", func() bool { return s.Stats().Closed == 1 })
	if n := ref.n.Load(); n != 0 {
		t.Fatalf("%d slices were released while a worker has them", n)
	}
	rounds := s.Stats().Rounds
	onLoop(t, s.Loops()[0], func() {})
	onLoop(t, s.Loops()[0], func() {})
	if n := s.Stats().Rounds - rounds; n > 6 {
		t.Errorf("the loop made %d rounds with nothing to do", n)
	}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	wantFrame(t, waiting, pattern(1, 1<<20)[:100_000])
	eventually(t, "both slices are released", func() bool { return ref.n.Load() == 2 })
}

// A server that stops at once releases a slice that a worker has, once.
func TestDrainWhileReadingAhead(t *testing.T) {
	f := coldFile(t, pattern(1, 1<<20))
	ref := &countRef{}
	s, err := New(Config{Loops: 1, ReadAheadThreads: 1}, &hooks{frame: oldReplies(f, ref)})
	if err != nil {
		t.Fatal(err)
	}
	addr, err := s.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	s.aheads.running = 1 // nobody works
	s.Start()
	c := dial(t, addr.String())
	write(t, c, askSlice(0, 1000))
	eventually(t, "it waits", func() bool { return s.Stats().ColdReads == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Drain(ctx); err != context.Canceled {
		t.Error(err)
	}
	if ref.n.Load() != 0 {
		t.Error("the slice was released while a worker had it")
	}
	s.runAheads()
	if ref.n.Load() != 1 {
		t.Errorf("the slice was released %d times", ref.n.Load())
	}
}

// Several old slices of a reply are read ahead together.
func TestOldSlicesOfOneReply(t *testing.T) {
	content := pattern(5, 2<<20)
	f := coldFile(t, content)
	ref := &countRef{}
	s, addr := serve(t, Config{Loops: 1}, &hooks{frame: func(c *Conn, b []byte) {
		r := c.NewReply()
		r.Buf = append(r.Buf[:0], b...)
		for i := range 16 {
			r.Parts = append(r.Parts, Part{FD: int(f.Fd()), Pos: int64(i) << 17, Len: 10_000, Ref: ref, Old: true}, Part{From: 0, To: 1})
		}
		r.Send()
	}})
	c := dial(t, addr)
	write(t, c, appendFrame(nil, []byte("x")))
	var want []byte
	for i := range 16 {
		want = append(append(want, content[i<<17:i<<17+10_000]...), 'x')
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the reply differs from what was put into it (%v)", err)
	}
	if n := s.Stats().ColdReads; n != 1 {
		t.Errorf("%d reads by a worker, want one for all slices", n)
	}
}
