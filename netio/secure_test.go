package netio

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// testCert is a certificate of localhost that is its own authority, for servers and clients.
func testCert(t testing.TB, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// serveTLS starts a server whose listener 7 is TLS; the client's configuration fits it.
func serveTLS(t testing.TB, cfg Config, h Handler, adjust func(*tls.Config)) (s *Server, addr string, client *tls.Config) {
	t.Helper()
	cert, pool := testCert(t, "server")
	server := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if adjust != nil {
		adjust(server)
	}
	s, err := New(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.ListenTLS("127.0.0.1:0", 7, server)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Drain(ctx)
		if n := s.Stats().Conns; n != 0 {
			t.Errorf("%d connections are left after Drain", n)
		}
	})
	return s, at.String(), &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func dialTLS(t testing.TB, addr string, client *tls.Config) *tls.Conn {
	t.Helper()
	c := tls.Client(dial(t, addr), client)
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// pieces writes in pieces of random size, so that records arrive torn.
type pieces struct {
	net.Conn
	rng  *mrand.Rand
	most int
}

func (p pieces) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var w int
		w, err = p.Conn.Write(b[n:min(len(b), n+1+p.rng.IntN(p.most))])
		n += w
	}
	return n, err
}

// Frames of all sizes come and go whole, in both versions of TLS, however records are torn.
func TestTLSFrames(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, most := range []int{7, 3000, 1 << 20} {
			s, addr, client := serveTLS(t, Config{Loops: 1}, &hooks{frame: func(c *Conn, b []byte) {
				if len(b)%5 == 0 { // some hold the connection for a moment
					c.Hold()
					c.Loop().Post(resume{c})
				}
				echo(c, b)
			}}, nil)
			client.MaxVersion = version
			raw := dial(t, addr)
			c := tls.Client(pieces{raw, mrand.New(mrand.NewPCG(uint64(version), uint64(most))), most}, client)
			sizes := []int{1, 100, 16 << 10, 16<<10 + 1, 70_000, 12, 5, 3}
			if most > 7 {
				sizes = append(sizes, 300_000, 3<<20+17, 10)
			}
			var sent []byte
			for i, n := range sizes {
				sent = appendFrame(sent, pattern(i, n))
			}
			wrote := make(chan error, 1)
			go func() {
				_, err := c.Write(sent)
				wrote <- err
			}()
			for i, n := range sizes {
				wantFrame(t, c, pattern(i, n))
			}
			if err := receive(t, wrote); err != nil {
				t.Fatal(err)
			}
			if got := c.ConnectionState().Version; got != version {
				t.Errorf("negotiated version %x, want %x", got, version)
			}
			eventually(t, "counters", func() bool {
				st := s.Stats()
				return st.Handshakes == 1 && st.HandshakeFailures == 0 && st.Frames == int64(len(sizes)) && st.BytesIn > int64(len(sent)) && st.BytesOut > int64(len(sent))
			})
		}
	}
}

// File slices are read and encrypted, in order with the memory around them, on several connections in turn.
func TestTLSFileSlices(t *testing.T) {
	content := pattern(3, 2<<20)
	f := tempFile(t, content)
	ref := &countRef{}
	_, addr, client := serveTLS(t, Config{Loops: 1}, &hooks{frame: func(c *Conn, frame []byte) {
		for range 3 {
			r := c.NewReply()
			r.Buf = append(r.Buf[:0], "\x00\x20\x00\x07headend"...)
			r.Parts = append(r.Parts, Part{To: 8}, Part{FD: int(f.Fd()), Len: 2 << 20, Ref: ref}, Part{From: 8, To: 11})
			r.Send()
			c.NewReply().Drop()
		}
	}}, nil)
	var clients []*tls.Conn
	for range 3 {
		c := dialTLS(t, addr, client)
		write(t, c, appendFrame(nil, []byte("go")))
		clients = append(clients, c)
	}
	want := append(append([]byte("head"), content...), "end"...)
	for range 3 {
		for _, c := range clients {
			wantFrame(t, c, want)
		}
	}
	eventually(t, "all slices released", func() bool { return ref.n.Load() == 9 })
}

// Who must show a certificate and does not, or shows one of a stranger, never becomes a connection; with one it can be asked who it is.
func TestMutualTLS(t *testing.T) {
	mine, roots := testCert(t, "alice")
	stranger, _ := testCert(t, "mallory")
	names := make(chan string, 1)
	h := &hooks{
		opened: func(c *Conn) {
			state, ok := c.TLS()
			if !ok || len(state.PeerCertificates) != 1 {
				t.Errorf("no certificate is known: %v %d", ok, len(state.PeerCertificates))
				return
			}
			names <- state.PeerCertificates[0].Subject.CommonName
		},
		closed: func(_ *Conn, err error) { t.Logf("closed: %v", err) },
		frame:  echo,
	}
	s, addr, client := serveTLS(t, Config{Loops: 1}, h, func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, roots })
	for i, certs := range [][]tls.Certificate{nil, {stranger}} {
		client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if certs == nil {
				return new(tls.Certificate), nil
			}
			return &certs[0], nil // although its issuer was not asked for
		}
		c := tls.Client(dial(t, addr), client)
		_, err := c.Write(appendFrame(nil, []byte("x")))
		if err == nil { // TLS 1.3: a client is done before the server has judged it
			_, err = c.Read(make([]byte, 1))
		}
		want := []string{"certificate required", "unknown certificate authority"}[i]
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("client %d got %v, want the alert %q", i, err, want)
		}
		eventually(t, "a failed handshake", func() bool { return s.Stats().HandshakeFailures == int64(i+1) })
	}
	client.Certificates, client.GetClientCertificate = []tls.Certificate{mine}, nil
	c := dialTLS(t, addr, client)
	write(t, c, appendFrame(nil, []byte("x")))
	wantFrame(t, c, []byte("x"))
	if got := receive(t, names); got != "alice" {
		t.Errorf("the peer is %q, want alice", got)
	}
	if st := s.Stats(); st.Handshakes != 1 || len(names) != 0 {
		t.Errorf("counted %+v, %d more names", st, len(names))
	}
}

// A peer that stops in the middle of its handshake holds its place no longer than it may; the one behind it is served then.
func TestHandshakeLimits(t *testing.T) {
	s, addr, client := serveTLS(t, Config{Loops: 1, Handshakes: 1, HandshakeTimeout: 100 * time.Millisecond}, &hooks{frame: echo}, nil)
	silent, half, gone := dial(t, addr), dial(t, addr), dial(t, addr)
	write(t, half, []byte("\x16\x03\x01\x02\x00\x01"))
	eventually(t, "a handshake", func() bool { s.shakes.mu.Lock(); defer s.shakes.mu.Unlock(); return s.shakes.running == 1 })
	write(t, gone, []byte("\x16\x03\x01\x02\x00\x01"))
	eventually(t, "a handshake in the queue", func() bool { s.shakes.mu.Lock(); defer s.shakes.mu.Unlock(); return len(s.shakes.waiting) == 1 })
	gone.Close()
	c := dialTLS(t, addr, client)
	write(t, c, appendFrame(nil, []byte("x")))
	wantFrame(t, c, []byte("x"))
	wantClosed(t, half)
	wantClosed(t, silent)
	eventually(t, "two failures", func() bool { return s.Stats().HandshakeFailures == 2 })
	eventually(t, "no handshake", func() bool { s.shakes.mu.Lock(); defer s.shakes.mu.Unlock(); return s.shakes.running == 0 })
}

// What is no TLS is closed at a TLS port, what is no frame at a plain one (regression 5); nothing is kept of it.
func TestWrongProtocol(t *testing.T) {
	s, addr, client := serveTLS(t, Config{Loops: 1}, &hooks{frame: echo}, nil)
	failures := int64(0)
	for _, text := range []string{
		"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "\x7f\xff\xff\xff", "\x80\x2e\x01\x00\x02",
		"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", string(pattern(1, 100_000)),
	} {
		c := dial(t, addr)
		_, _ = c.Write([]byte(text)) // closed meanwhile, maybe
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c) // an alert, and the end
		failures++
		eventually(t, "a failed handshake", func() bool { st := s.Stats(); return st.HandshakeFailures == failures && st.Conns == 0 })
	}
	plain, plainAddr := serve(t, Config{}, &hooks{frame: echo})
	if err := tls.Client(dial(t, plainAddr), client).HandshakeContext(t.Context()); err == nil {
		t.Error("a handshake with a plaintext port succeeded")
	}
	eventually(t, "a bad frame", func() bool { st := plain.Stats(); return st.BadFrames == 1 && st.Conns == 0 })
}

// Both sides say goodbye: a client that ends its stream has its frames handled first, and the server's end is no broken stream.
func TestTLSGoodbye(t *testing.T) {
	closed := make(chan error, 1)
	var frames atomic.Int64
	_, addr, client := serveTLS(t, Config{Loops: 1}, &hooks{
		frame: func(c *Conn, b []byte) {
			frames.Add(1)
			switch b[0] {
			case 'h':
				c.Hold()
				c.Loop().Post(resume{c})
			case 'q':
				echo(c, b)
				c.CloseAfterReplies(nil)
				return
			}
			c.NewReply().Drop()
		},
		closed: func(_ *Conn, err error) { closed <- err },
	}, nil)
	c := dialTLS(t, addr, client)
	write(t, c, append(appendFrame(appendFrame(nil, []byte("h")), []byte("x")), appendFrame(nil, []byte("x"))...))
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
	if err := receive(t, closed); err != nil || frames.Load() != 3 {
		t.Errorf("closed because of %v after %d frames, want no reason and 3", err, frames.Load())
	}
	c = dialTLS(t, addr, client)
	write(t, c, appendFrame(nil, []byte("q")))
	wantFrame(t, c, []byte("q"))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
	receive(t, closed)
	c = dialTLS(t, addr, client)
	write(t, c, []byte("\x00\x00\x00\x09half"))
	c.Close()
	if err := receive(t, closed); !errors.Is(err, ErrHalfFrame) {
		t.Errorf("closed because of %v, want %v", err, ErrHalfFrame)
	}
	c = dialTLS(t, addr, client)
	if _, err := c.NetConn().Write([]byte("\x17\x03\x03\x00\x20" + string(pattern(1, 32)))); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, closed); !errors.Is(err, ErrTLS) {
		t.Errorf("closed because of %v, want %v", err, ErrTLS)
	}
}

// A client that does not read its answers: they stay in the replies, and at most a turn of them encrypted.
func TestTLSSlowReader(t *testing.T) {
	const frames, size = 300, 50_000
	var most atomic.Int64
	s, addr, client := serveTLS(t, Config{Loops: 1, PausePendingBytes: 200_000, SendBufferBytes: 64 << 10, RecvBufferBytes: 64 << 10}, &hooks{frame: func(c *Conn, b []byte) {
		echo(c, b)
		most.Store(max(most.Load(), int64(c.pendingBytes+c.sec.unsent())))
	}}, nil)
	c := dialTLS(t, addr, client)
	sent := make(chan error, 1)
	go func() {
		for i := range frames {
			if _, err := c.Write(appendFrame(nil, pattern(i, size))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	eventually(t, "a pause", func() bool { return s.Stats().Pauses > 0 })
	for i := range frames {
		wantFrame(t, c, pattern(i, size))
	}
	if err := receive(t, sent); err != nil {
		t.Fatal(err)
	}
	if n := most.Load(); n > 200_000+2*size+cipherOut {
		t.Errorf("%d bytes were held at once", n)
	}
}

// Bytes that crypto/tls wants sent and nobody takes are bounded: the next write fails, which ends the connection.
func TestTLSUnsentIsBounded(t *testing.T) {
	l := unstarted(t, Config{Loops: 1})
	sec := newSecure(&Conn{loop: l, ln: new(listener)}, &tls.Config{})
	sec.direct = true
	var wrote bytes.Buffer
	for i := range cipherMost / 1000 {
		b := pattern(i, 1000)
		if _, err := sec.Write(b); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		wrote.Write(b)
	}
	if _, err := sec.Write(make([]byte, 1000)); err == nil {
		t.Error("more than the limit is taken")
	}
	if !bytes.Equal(sec.out.bytes(), wrote.Bytes()) {
		t.Error("what is to be sent is not what was written")
	}
}

// Drain while handshakes are on their way.
func TestDrainDuringHandshakes(t *testing.T) {
	s, addr, _ := serveTLS(t, Config{Loops: 2, Handshakes: 3}, &hooks{opened: func(*Conn) { t.Error("opened") }}, nil)
	for range 8 {
		write(t, dial(t, addr), []byte("\x16\x03\x01\x02\x00\x01"))
	}
	eventually(t, "handshakes", func() bool {
		s.shakes.mu.Lock()
		defer s.shakes.mu.Unlock()
		return s.shakes.running+len(s.shakes.waiting) == 8
	})
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no handshake", func() bool { s.shakes.mu.Lock(); defer s.shakes.mu.Unlock(); return s.shakes.running == 0 })
	if st := s.Stats(); st.HandshakeFailures != 8 || st.Conns != 0 {
		t.Errorf("counted %+v", st)
	}
}

// Garbage in place of a handshake, and behind one, closes its connection and nothing else.
func FuzzTLS(f *testing.F) {
	s, addr, client := serveTLS(f, Config{Loops: 1}, &hooks{frame: echo}, nil)
	f.Add(false, []byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"))
	f.Add(true, []byte("\x17\x03\x03\x00\x05hello"))
	f.Add(true, []byte("\x15\x03\x03\x00\x02\x01\x00"))
	f.Add(false, pattern(3, 40_000))
	well := dialTLS(f, addr, client)
	f.Fuzz(func(t *testing.T, after bool, garbage []byte) {
		var raw net.Conn
		if after {
			raw = dialTLS(t, addr, client).NetConn()
		} else {
			raw = dial(t, addr)
		}
		_, _ = raw.Write(garbage)
		raw.Close()
		write(t, well, appendFrame(nil, []byte("well?")))
		wantFrame(t, well, []byte("well?"))
		eventually(t, "only one connection", func() bool { return s.Stats().Conns == 1 })
	})
}
