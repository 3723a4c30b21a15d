package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/config"
)

// newStore writes a PEM key store with a key and a certificate of localhost that is its own authority, and returns both as they are.
func newStore(t testing.TB, path, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// dialTLS connects to a TLS listener of b.
func dialTLS(t testing.TB, b *Broker, listener string, cfg *tls.Config) *client {
	t.Helper()
	c, err := tls.Dial("tcp", b.Ready().Listeners[listener], cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	return &client{t: t, c: c}
}

// address is what Metadata says where the broker is, and DescribeCluster and FindCoordinator too.
func (c *client) address() string {
	c.t.Helper()
	var q api.MetadataRequest
	q.Default()
	var p api.MetadataResponse
	c.call(api.KeyMetadata, 9, &q, &p)
	var d api.DescribeClusterResponse
	var dq api.DescribeClusterRequest
	dq.Default()
	c.call(api.KeyDescribeCluster, 0, &dq, &d)
	if len(p.Brokers) != 1 || len(d.Brokers) != 1 || p.Brokers[0].Host != d.Brokers[0].Host || p.Brokers[0].Port != d.Brokers[0].Port {
		c.t.Fatalf("Metadata says %+v, DescribeCluster %+v", p.Brokers, d.Brokers)
	}
	for version, key := range map[int16]string{3: "one", 4: "several"} {
		var fq api.FindCoordinatorRequest
		fq.Default()
		if version >= 4 {
			fq.CoordinatorKeys = []string{key}
		} else {
			fq.Key = key
		}
		var f api.FindCoordinatorResponse
		c.call(api.KeyFindCoordinator, version, &fq, &f)
		at := api.FindCoordinatorResponseCoordinator{ErrorCode: f.ErrorCode, Host: f.Host, Port: f.Port}
		if version >= 4 && len(f.Coordinators) == 1 {
			at = f.Coordinators[0]
		}
		if at.ErrorCode != api.ErrNone || at.Host != p.Brokers[0].Host || at.Port != p.Brokers[0].Port {
			c.t.Errorf("Metadata says %+v, FindCoordinator v%d %+v", p.Brokers, version, f)
		}
	}
	return fmt.Sprintf("%s:%d", p.Brokers[0].Host, p.Brokers[0].Port)
}

// One broker on three listeners, plaintext, TLS and mutual TLS: each tells its own address (regression 19), all share the data, and
// a changed certificate is served without a restart (regression 73).
func TestListeners(t *testing.T) {
	dir := t.TempDir()
	store, trust := filepath.Join(dir, "broker.pem"), filepath.Join(dir, "clients.pem")
	_, roots := newStore(t, store, "first")
	alice, _ := newStore(t, trust, "alice")
	b := broker(t, "listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0",
		"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
		"advertised.listeners", "PLAINTEXT://plain.example:1,SSL://tls.example:2,MUTUAL://mutual.example:3",
		"ssl.keystore.type", "PEM", "ssl.keystore.location", store, "kaas.metrics.listen", "127.0.0.1:0", "kaas.loops", "2",
		"listener.name.mutual.ssl.client.auth", "required", "listener.name.mutual.ssl.truststore.type", "PEM",
		"listener.name.mutual.ssl.truststore.location", trust, "listener.name.mutual.max.connections", "1")
	trusting := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	known := trusting.Clone()
	known.Certificates = []tls.Certificate{alice}
	plain, secure, mutual := dial(t, b), dialTLS(t, b, "SSL", trusting), dialTLS(t, b, "MUTUAL", known)
	for i, c := range []*client{plain, secure, mutual} {
		if want := []string{"plain.example:1", "tls.example:2", "mutual.example:3"}[i]; c.address() != want {
			t.Errorf("listener %d says it is at %s, want %s", i, c.address(), want)
		}
	}
	plain.create("t", 1)
	big := strings.Repeat("x", 300_000)
	for i, c := range []*client{plain, secure, mutual} {
		if p := c.produce("t", 0, records(big)); p.ErrorCode != api.ErrNone || p.BaseOffset != int64(i) {
			t.Errorf("produce on listener %d: %+v", i, p)
		}
	}
	for i, c := range []*client{plain, secure, mutual} {
		if got, want := values(t, c.fetch("t", 0, 1).Records.Bytes), []record{{1, big}, {2, big}}; !reflect.DeepEqual(got, want) {
			t.Errorf("listener %d gives %d records", i, len(got))
		}
	}
	oneTooMany(t, b, known, secure, mutual)
	eventually(t, "all are gone", func() bool { return scrape(t, b)["kaas_connections"] == 1 })
	// One without certificate where it is needed, one that speaks no TLS.
	if c, err := tls.Dial("tcp", b.Ready().Listeners["MUTUAL"], trusting); err == nil {
		if _, err = c.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Error("no certificate, and no alert")
		}
		c.Close()
	}
	raw, err := net.Dial("tcp", b.Ready().Listeners["SSL"])
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both failed", func() bool { return scrape(t, b)[`kaas_tls_handshakes_total{result="failed"}`] == 2 })
	wantSeries(t, scrape(t, b), map[string]float64{
		`kaas_tls_handshakes_total{result="ok"}`: 3, `kaas_accept_pauses_total{reason="listener_max_connections"}`: 1,
		`kaas_accept_pauses_total{reason="max_connections"}`: 0, "kaas_connections": 1,
	})
	_, roots = newStore(t, store, "second")
	trusting.RootCAs = roots
	eventually(t, "the second certificate is served", func() bool {
		c, err := tls.Dial("tcp", b.Ready().Listeners["SSL"], trusting)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// oneTooMany sees a connection to the listener MUTUAL wait until there is room for it.
func oneTooMany(t *testing.T, b *Broker, known *tls.Config, close ...*client) {
	t.Helper()
	second := make(chan error, 1)
	go func() {
		c, err := tls.Dial("tcp", b.Ready().Listeners["MUTUAL"], known)
		if err == nil {
			c.Close()
		}
		second <- err
	}()
	eventually(t, "the second connection waits", func() bool { return scrape(t, b)[`kaas_accept_pauses_total{reason="listener_max_connections"}`] == 1 })
	for _, c := range close {
		c.c.Close()
	}
	if err := <-second; err != nil {
		t.Errorf("a second connection on a listener with one at most, when the first was closed: %v", err)
	}
}

// The limits of connections are altered live, for all listeners and for one. At max.connections peers wait for room; the listener between brokers
// takes it from those of others that were silent for longest, and so does a limit that is lowered (KIP-402; Apache Kafka 3.7.2 was asked).
func TestConnectionLimitsAreAlteredLive(t *testing.T) {
	b := broker(t, "listeners", "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0", "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
		"inter.broker.listener.name", "INSIDE", "kaas.metrics.listen", "127.0.0.1:0")
	admin := dialAt(t, b.Ready().Listeners["INSIDE"])
	at := func(listener string) *client {
		c, err := net.Dial("tcp", b.Ready().Listeners[listener])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(deadline))
		return &client{t: t, c: c}
	}
	alter := func(key, value string) {
		t.Helper()
		q := api.IncrementalAlterConfigsRequest{Resources: []api.IncrementalAlterConfigsRequestAlterConfigsResource{{ResourceType: 4, ResourceName: "1",
			Configs: []api.IncrementalAlterConfigsRequestAlterableConfig{{Name: key, Value: wire.Some(value)}}}}}
		var p api.IncrementalAlterConfigsResponse
		admin.call(api.KeyIncrementalAlterConfigs, 1, &q, &p)
		if p.Responses[0].ErrorCode != api.ErrNone {
			t.Fatalf("%s=%s: %+v", key, value, p.Responses[0])
		}
	}
	waits := func(reason string, n float64) {
		t.Helper()
		eventually(t, "a connection waits", func() bool { return scrape(t, b)[`kaas_accept_pauses_total{reason="`+reason+`"}`] == n })
	}
	old := at("PLAINTEXT")
	old.address()
	alter("max.connections", "2")
	late := at("PLAINTEXT")
	waits("max_connections", 1)
	inside := at("INSIDE") // between brokers: all the others do not keep it out, and one of them makes room
	inside.address()
	old.closed()
	alter("listener.name.inside.max.connections", "2")
	third := at("INSIDE")
	waits("listener_max_connections", 1)
	alter("max.connections", "3")
	late.address()
	alter("max.connections", "2") // those between brokers stay
	late.closed()
	alter("max.connections", "100")
	alter("max.connections.per.ip", "3")
	at("PLAINTEXT").address()
	at("PLAINTEXT").closed()
	alter("max.connections.per.ip.overrides", "127.0.0.1:4")
	at("PLAINTEXT").address()
	alter("listener.name.inside.max.connections", "9")
	third.closed() // it had its turn: one too many of its address
	inside.address()
	wantSeries(t, scrape(t, b), map[string]float64{`kaas_connections_closed_total{reason="max_connections"}`: 2, `kaas_connections_rejected_total{reason="max_connections_per_ip"}`: 2})
}

// What is wrong with TLS stops the start: file or flag, key, value, and what is allowed; no secret is shown (regression 72).
func TestTLSFaultsStopTheStart(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "broker.pem")
	newStore(t, store, "broker")
	for text, want := range map[string]string{
		"": "ssl.keystore.location: listener SSL: a TLS listener needs a key store: set it, or ssl.keystore.key and ssl.keystore.certificate.chain",
		"ssl.keystore.location=" + store + "\nssl.keystore.type=PEM\nlistener.name.ssl.ssl.client.auth=required":               "FILE:4: listener.name.ssl.ssl.client.auth=required: listener SSL: certificates of clients are checked against a trust store: set ssl.truststore.location, or ssl.truststore.certificates",
		"ssl.keystore.location=" + store + "\nssl.keystore.type=PEM\nssl.enabled.protocols=TLSv1.1":                            "FILE:4: ssl.enabled.protocols=TLSv1.1: listener SSL: \"TLSv1.1\" is not spoken; allowed: a list of TLSv1.2, TLSv1.3",
		"ssl.keystore.location=" + store + "\nssl.keystore.type=PEM\nlistener.name.ssl.ssl.keystore.password=geheim":           "FILE:4: listener.name.ssl.ssl.keystore.password=[hidden]: listener SSL: a PEM file has none; the key's own is ssl.key.password",
		"ssl.keystore.location=" + store + "\nssl.keystore.type=PEM\nlistener.name.ssl.ssl.keystore.location=" + dir + "/none": "FILE:4: listener.name.ssl.ssl.keystore.location=" + dir + "/none: listener SSL: stat " + dir + "/none: no such file or directory",
	} {
		file := filepath.Join(dir, "server.properties")
		if err := os.WriteFile(file, []byte("listeners=SSL://127.0.0.1:0\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{File: file, Settings: []config.Setting{{Key: "log.dirs", Value: filepath.Join(dir, "data"), Origin: "test"}}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Start(cfg, time.Now(), io.Discard)
		if err == nil {
			stop(t, b)
		}
		if err == nil || strings.ReplaceAll(err.Error(), file, "FILE") != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}
