package server

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kaas/codec/api"
	"kaas/server/config"
)

// goroutines counts those of this process that are in a function, by the broker's own profile: it is on by kaas.pprof.enable.
func goroutines(t testing.TB, b *Broker, function string) (n int) {
	t.Helper()
	status, body := get(t, b, "/debug/pprof/goroutine?debug=1")
	if status != 200 {
		t.Fatalf("no profile: %d %s", status, body)
	}
	for _, group := range strings.Split(body, "\n\n") {
		if strings.Contains(group, function+"+0x") {
			if at := strings.LastIndexByte(strings.Split(group, " @ ")[0], '\n'); at >= 0 { // the first group comes after the title
				group = group[at+1:]
			}
			count, err := strconv.Atoi(strings.Fields(group)[0])
			if err != nil {
				t.Fatalf("%q: %v", group, err)
			}
			n += count
		}
	}
	return n
}

// profiled runs a broker with metrics and profiles.
func profiled(t testing.TB, settings ...string) *Broker {
	t.Helper()
	return broker(t, append([]string{"kaas.metrics.listen", "127.0.0.1:0", "kaas.pprof.enable", "true"}, settings...)...)
}

func TestKeyOfProfiles(t *testing.T) {
	b := profiled(t, "kaas.loops", "3")
	eventually(t, "three event loops", func() bool { return goroutines(t, b, "kaas/netio.(*Loop).run") == 3 })
	b = broker(t, "kaas.metrics.listen", "127.0.0.1:0")
	if status, _ := get(t, b, "/debug/pprof/goroutine?debug=1"); status != 404 {
		t.Errorf("profiles without kaas.pprof.enable: %d", status)
	}
}

// sockets calls f for every socket of this process with its own address.
func sockets(t *testing.T, f func(fd int, at netip.AddrPort)) {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil {
			t.Fatal(err)
		}
		if sa, err := unix.Getsockname(fd); err == nil {
			if at, ok := sa.(*unix.SockaddrInet4); ok {
				f(fd, netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)))
			}
		}
	}
}

// The options of sockets, as the kernel has them: socket.send.buffer.bytes and socket.receive.buffer.bytes, which it doubles, on the broker's
// end of a connection, and socket.listen.backlog.size on the listening socket.
func TestKeysOfSockets(t *testing.T) {
	for _, k := range []struct {
		settings             []string
		send, receive        int // 0: the system's choice
		backlog              uint32
		givenSend, givenRecv string
	}{
		{settings: []string{"socket.send.buffer.bytes", "20000", "socket.receive.buffer.bytes", "30000", "socket.listen.backlog.size", "7"}, send: 40000, receive: 60000, backlog: 7},
		{backlog: 50},
	} {
		b := broker(t, k.settings...)
		at := netip.MustParseAddrPort(b.Ready().Listeners["PLAINTEXT"])
		c := dial(t, b)
		c.address() // it was accepted
		listening, accepted := 0, 0
		sockets(t, func(fd int, addr netip.AddrPort) {
			if addr != at {
				return
			}
			option := func(name int) int {
				n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, name)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			if option(unix.SO_ACCEPTCONN) == 1 {
				listening++
				info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
				if err != nil {
					t.Fatal(err)
				}
				want(t, "socket.listen.backlog.size", info.Sacked, k.backlog) // of a listening socket: how many may wait
				return
			}
			accepted++
			send, receive := option(unix.SO_SNDBUF), option(unix.SO_RCVBUF)
			if k.send != 0 && (send != k.send || receive != k.receive) || k.send == 0 && (send == 40000 || receive == 60000) {
				t.Errorf("buffers of %d and %d bytes with %q", send, receive, k.settings)
			}
		})
		if listening != 1 || accepted != 1 {
			t.Errorf("%d sockets listen, %d are connected", listening, accepted)
		}
	}
}

// socket.request.max.bytes is the longest request that is read: one byte more closes the connection.
func TestKeyOfRequestSize(t *testing.T) {
	probe := &client{t: t}
	size := len(probe.frame(api.KeyProduce, 9, produceRequest("t", 0, -1, recordAt(0)))) - 4
	b := broker(t, "socket.request.max.bytes", strconv.Itoa(size))
	c := dial(t, b)
	c.create("t", 1)
	c.must(api.ErrNone, "a request of the greatest size", recordAt(0))
	more := made0(1001)
	c.send(api.KeyProduce, 9, produceRequest("t", 0, -1, more))
	c.closed()
}

// made0 is a batch of one record of so many bytes without a time.
func made0(bytes int) []byte { return records(string(make([]byte, bytes))) }

// connections.max.idle.ms closes a connection on which nothing comes; by default that takes ten minutes, longer than any wait of these tests.
func TestKeyOfIdleConnections(t *testing.T) {
	b := broker(t, "connections.max.idle.ms", "50", "kaas.metrics.listen", "127.0.0.1:0")
	c := dial(t, b)
	c.closed()
	eventually(t, "it is counted", func() bool { return scrape(t, b)[`kaas_connections_closed_total{reason="idle"}`] == 1 })
}

// max.connection.creation.rate, altered in a running broker: with 0 a new connection waits, and it is served when there is a rate again.
func TestKeyOfConnectionRate(t *testing.T) {
	b := broker(t, "kaas.metrics.listen", "127.0.0.1:0")
	admin := dial(t, b)
	admin.brokerKeys(false, "max.connection.creation.rate", "0")
	c := dial(t, b) // the kernel takes it
	var q api.MetadataRequest
	q.Default()
	c.send(api.KeyMetadata, 9, &q)
	eventually(t, "accepting rests", func() bool { return scrape(t, b)[`kaas_accept_pauses_total{reason="rate"}`] >= 2 })
	wantSeries(t, scrape(t, b), map[string]float64{"kaas_connections": 1})
	admin.brokerKeys(false, "max.connection.creation.rate", "100")
	var p api.MetadataResponse
	c.receive(api.KeyMetadata, 9, &p)
	wantSeries(t, scrape(t, b), map[string]float64{"kaas_connections": 2})
}

// What requests may hold, received in part or whole: with queued.max.request.bytes or kaas.inflight.max.bytes of a MiB, another connection is
// not read while a request of nearly that is on its way, and both are answered in the end.
func TestKeysOfRequestMemory(t *testing.T) {
	for _, k := range []struct {
		settings []string
		pauses   bool
	}{
		{[]string{"queued.max.request.bytes", "1048576"}, true},
		{[]string{"kaas.inflight.max.bytes", "1048576"}, true},
		{nil, false},
	} {
		b := broker(t, append([]string{"kaas.metrics.listen", "127.0.0.1:0", "kaas.loops", "1"}, k.settings...)...)
		c, other := dial(t, b), dial(t, b)
		c.create("t", 1)
		frame := c.frame(api.KeyProduce, 9, produceRequest("t", 0, -1, made0(1_000_000)))
		c.write(frame[:len(frame)-1])
		eventually(t, "most of a request is there", func() bool { return scrape(t, b)["kaas_inflight_request_bytes"] >= 1_000_000 })
		var q api.MetadataRequest
		q.Default()
		other.send(api.KeyMetadata, 9, &q)
		var m api.MetadataResponse
		if k.pauses {
			eventually(t, "the other connection waits", func() bool { return scrape(t, b)["kaas_inflight_pauses_total"] >= 1 })
		} else {
			other.receive(api.KeyMetadata, 9, &m)
			wantSeries(t, scrape(t, b), map[string]float64{"kaas_inflight_pauses_total": 0})
		}
		c.write(frame[len(frame)-1:])
		var p api.ProduceResponse
		c.receive(api.KeyProduce, 9, &p)
		want(t, "the large request", p.Responses[0].PartitionResponses[0].ErrorCode, api.ErrNone)
		if k.pauses {
			other.receive(api.KeyMetadata, 9, &m)
		}
	}
}

// kaas.tls.handshakes.max bounds the handshakes that are on their way at the same time: of four peers that have begun one, the others wait.
func TestKeyOfHandshakes(t *testing.T) {
	store := filepath.Join(t.TempDir(), "broker.pem")
	_, roots := newStore(t, store, "broker")
	half := []byte("\x16\x03\x01\x02\x00\x01") // the beginning of a ClientHello
	for most, running := range map[string]int{"1": 1, "3": 3, "1024": 4} {
		b := profiled(t, "listeners", "SSL://127.0.0.1:0", "inter.broker.listener.name", "SSL", "ssl.keystore.type", "PEM", "ssl.keystore.location", store,
			"kaas.tls.handshakes.max", most, "kaas.loops", "1", "kaas.tls.handshake.timeout.ms", "3600000")
		var peers []net.Conn
		for range 4 {
			peer, err := net.Dial("tcp", b.Ready().Listeners["SSL"])
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			if _, err := peer.Write(half); err != nil {
				t.Fatal(err)
			}
			peers = append(peers, peer)
		}
		eventually(t, "all have begun", func() bool { return scrape(t, b)["kaas_network_received_bytes_total"] == float64(4*len(half)) })
		eventually(t, "some to be served", func() bool { return goroutines(t, b, "kaas/netio.(*secure).shake") >= running })
		want(t, "kaas.tls.handshakes.max="+most, goroutines(t, b, "kaas/netio.(*secure).shake"), running)
		for _, peer := range peers {
			peer.Close()
		}
		dialTLS(t, b, "SSL", &tls.Config{RootCAs: roots, ServerName: "localhost"}).address()
	}
}

// lines collects what a broker says.
type lines struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

// kaas.tls.handshake.timeout.ms is how long a handshake may take, and its first byte: the broker says so when it closes the connection.
func TestKeyOfHandshakeTime(t *testing.T) {
	store := filepath.Join(t.TempDir(), "broker.pem")
	newStore(t, store, "broker")
	var said lines
	cfg, err := config.Load(config.Options{Settings: []config.Setting{{Key: "log.dirs", Value: t.TempDir()}, {Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"},
		{Key: "ssl.keystore.type", Value: "PEM"}, {Key: "ssl.keystore.location", Value: store}, {Key: "kaas.tls.handshake.timeout.ms", Value: "70"}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Start(cfg, time.Now(), &said)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, b)
	dial(t, b).alterResource(resourceBrokerLogger, "1", "kaas.netio", "DEBUG")
	for _, first := range []string{"", "\x16\x03\x01\x02\x00\x01"} {
		peer := dialAt(t, b.Ready().Listeners["SSL"])
		peer.write([]byte(first))
		peer.closed()
		eventually(t, "the broker says why", func() bool { return said.has(peer.c.LocalAddr().String()) && said.has("not done within 70ms") })
	}
}

const resourceBrokerLogger = 8
