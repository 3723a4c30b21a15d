package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeCertificate makes a certificate that signs itself: its PEM file, that of its key, and one of both, as a broker wants it.
func writeCertificate(t *testing.T, dir string) (store, cert, key string) {
	t.Helper()
	store, cert, key = filepath.Join(dir, "both.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, DNSNames: []string{"broker.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	keyText, certText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{store: append(keyText, certText...), cert: certText, key: keyText} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return store, cert, key
}

// Loads over TLS, with the client's own certificate where it is asked for.
func TestLoadsOverTLS(t *testing.T) {
	store, cert, key := writeCertificate(t, t.TempDir())
	listeners := startWith(t, map[string]string{
		"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
		"ssl.keystore.type": "PEM", "ssl.keystore.location": store,
		"listener.name.mutual.ssl.client.auth": "required", "listener.name.mutual.ssl.truststore.type": "PEM", "listener.name.mutual.ssl.truststore.location": cert,
	})
	trust := []string{"--client", "franz-go", "--tls", "--tls-ca", cert, "--tls-server-name", "broker.example"}
	known := append(trust, "--tls-cert", cert, "--tls-key", key)
	for _, c := range []struct {
		listener string
		tls      []string
	}{{"SSL", trust}, {"MUTUAL", known}} {
		address := listeners[c.listener]
		load := func(args ...string) int64 { return bench(t, address, append(args, c.tls...)...)[0].Result.Records }
		if n := load("produce", "--topic", c.listener, "--records", "500", "--record-size", "100"); n != 500 {
			t.Errorf("%s: %d records produced", c.listener, n)
		}
		if n := load("consume", "--topic", c.listener); n != 500 {
			t.Errorf("%s: %d records read", c.listener, n)
		}
		if n := load("e2e", "--topic", c.listener+"-e2e", "--rate", "1000", "--records", "50", "--record-size", "100"); n < 50 {
			t.Errorf("%s: %d records read at the end", c.listener, n)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"produce", "--records", "1", "--tls"}, "franz-go"},                                   // the own generator speaks none
		{append([]string{"produce", "--records", "1"}, trust[:3]...), "certificate"},                   // of an authority that is not known
		{append([]string{"produce", "--records", "1", "--tls-cert", cert}, trust...), "needs its key"}, // without its key
	} {
		_, _, err := run(append(c.args, "--bootstrap", listeners["SSL"], "--json")...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: want an error with %q, got %v", c.args, c.want, err)
		}
	}
}
