package compare

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"kaas/bench/franz"
	"kaas/bench/load"
	"kaas/bench/process"
)

// TLS beside plaintext, in one broker: franz-go produces and consumes the same over both, for the generator of package load speaks no TLS.
const (
	tlsBytes   = 512 * mib // of a way and direction
	tlsClients = 2
	tlsMost    = 5 * time.Minute
)

// tlsWay is one of the two: where it is, and the names of its figures.
type tlsWay struct {
	topic, address                 string
	tls                            *tls.Config
	write, writeCPU, read, readCPU string
}

// overTLS writes and reads over one listener after the other, and notes rates and what the broker used.
func (t *turn) overTLS() error {
	store := filepath.Join(t.dir, "broker.pem")
	roots, err := makeStore(store)
	if err != nil {
		return err
	}
	secure, err := process.FreePort()
	if err != nil {
		return err
	}
	p, err := process.Start(t.opt.Program, func(address string) []string {
		return []string{"serve", "--listen", "PLAINTEXT://" + address + ",SSL://" + secure, "--data-dir", filepath.Join(t.dir, "data"), "--durability", pageCache,
			"--set", "ssl.keystore.type=PEM", "--set", "ssl.keystore.location=" + store}
	})
	if err != nil {
		return err
	}
	for _, w := range []tlsWay{
		{"plain", p.Address, nil, plainProduce, plainProduceCPU, plainFetch, plainFetchCPU},
		{"tls", secure, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}, tlsProduce, tlsProduceCPU, tlsFetch, tlsFetchCPU},
	} {
		if err := t.overOne(p, &w); err != nil {
			p.Kill()
			return fmt.Errorf("%s: %w; it said: %s", w.topic, err, p.Said())
		}
	}
	f := t.figures
	f[tlsProduceOfPlain], f[tlsFetchOfPlain] = f[tlsProduceCPU]/f[plainProduceCPU], f[tlsFetchCPU]/f[plainFetchCPU]
	return p.Stop()
}

// overOne writes and reads one topic.
func (t *turn) overOne(p *process.Process, w *tlsWay) error {
	ctx, stop := context.WithTimeout(context.Background(), tlsMost)
	defer stop()
	c := franz.Config{Brokers: []string{w.address}, Topic: w.topic, Clients: tlsClients, Partitions: tlsClients, TLS: w.tls}
	layout, err := franz.Prepare(ctx, c, tlsClients)
	if err != nil {
		return err
	}
	records := t.scaled(tlsBytes / kib)
	c.Limits = load.Limits{Records: records}
	err = t.chargeAs(p, w.write, w.writeCPU, func() (load.Result, error) {
		return franz.Produce(ctx, franz.ProduceConfig{Config: c, RecordBytes: kib, BatchBytes: 256 * kib, Acks: -1, Idempotent: true})
	})
	if err != nil {
		return err
	}
	return t.chargeAs(p, w.read, w.readCPU, func() (load.Result, error) {
		return franz.Consume(ctx, franz.ConsumeConfig{Config: c}, layout.Starts)
	})
}

// chargeAs runs a load and notes its rate and the processor time of the broker for it under names.
func (t *turn) chargeAs(p *process.Process, rate, cpu string, run func() (load.Result, error)) error {
	r, used, err := spent(p, run)
	if err != nil {
		return err
	}
	t.figures[rate], t.figures[cpu] = r.BytesPerSecond(), used/(float64(r.Bytes)/1e9)
	return nil
}

// makeStore writes a key and a certificate of localhost that is its own authority.
func makeStore(name string) (*x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("the certificate just made cannot be read")
	}
	return roots, os.WriteFile(name, text, 0o600)
}
