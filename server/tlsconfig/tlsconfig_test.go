package tlsconfig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// given are settings as Apache Kafka's defaults are, with a key store that works.
func given(change func(*Settings)) Settings {
	s := Settings{
		KeystoreType: "PKCS12", KeystoreLocation: "testdata/java.p12", KeystorePassword: "changeit", TruststoreType: "JKS", ClientAuth: "none",
		Protocol: "TLSv1.3", EnabledProtocols: []string{"TLSv1.2", "TLSv1.3"}, EndpointIdentification: "https",
	}
	if change != nil {
		change(&s)
	}
	return s
}

func text(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// newPEM makes a key and a certificate of localhost that is its own authority.
func newPEM(t testing.TB, name string) (key, cert string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
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
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// shake runs a handshake in memory and returns what the client sees; a byte goes from the server to the client, so that both have judged.
func shake(s *Source, client *tls.Config) (tls.ConnectionState, error) {
	a, b := net.Pipe()
	defer a.Close()
	server := tls.Server(b, s.Config())
	done := make(chan error, 1)
	go func() {
		err := server.Handshake()
		if err == nil {
			_, err = server.Write([]byte("x"))
		}
		b.Close()
		done <- err
	}()
	c := tls.Client(a, client)
	_, err := c.Read(make([]byte, 1))
	a.Close()
	return c.ConnectionState(), errors.Join(err, <-done)
}

func clientOf(t testing.TB, roots string) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(roots)) {
		t.Fatal("no certificate")
	}
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// Every kind of store is served and trusted.
func TestStores(t *testing.T) {
	cert := text(t, "testdata/cert.pem")
	pemKey, pemCert := newPEM(t, "inline")
	pair, err := tls.X509KeyPair([]byte(pemCert), []byte(pemKey))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Settings)
		cert   string
	}{
		"PKCS12":        {nil, cert},
		"PKCS12 as JKS": {func(s *Settings) { s.KeystoreType = "JKS" }, cert},
		"JKS": {func(s *Settings) {
			s.KeystoreType, s.KeystoreLocation, s.KeyPassword = "JKS", "testdata/java.jks", "keysecret"
		}, cert},
		"JKS as PKCS12": {func(s *Settings) { s.KeystoreLocation, s.KeyPassword = "testdata/java.jks", "keysecret" }, cert},
		"PEM, encrypted": {func(s *Settings) {
			s.KeystoreType, s.KeystoreLocation, s.KeystorePassword, s.KeyPassword = "PEM", "testdata/encrypted.pem", "", "keysecret"
		}, cert},
		"PEM, in settings": {func(s *Settings) {
			s.KeystoreType, s.KeystoreLocation, s.KeystorePassword, s.KeystoreKey, s.KeystoreChain = "PEM", "", "", pemKey, pemCert
		}, pemCert},
	} {
		s, err := New(given(c.change), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if state, err := shake(s, clientOf(t, c.cert)); err != nil || state.Version != tls.VersionTLS13 {
			t.Errorf("%s: version %x, %v", name, state.Version, err)
		}
	}
	for name, change := range map[string]func(*Settings){
		"JKS": func(s *Settings) { s.TruststoreLocation, s.TruststorePassword = "testdata/trust.jks", "changeit" },
		"PKCS12": func(s *Settings) {
			s.TruststoreType, s.TruststoreLocation, s.TruststorePassword = "PKCS12", "testdata/trust.p12", "changeit"
		},
		"PEM":              func(s *Settings) { s.TruststoreType, s.TruststoreLocation = "PEM", "testdata/cert.pem" },
		"PEM, in settings": func(s *Settings) { s.TruststoreType, s.TruststoreCertificates = "PEM", cert },
	} {
		for auth, allowed := range map[string]map[string]bool{"none": {"own": true, "other": true, "": true}, "requested": {"own": true, "": true}, "required": {"own": true}} {
			s, err := New(given(func(s *Settings) { change(s); s.ClientAuth = auth }), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			own, err := given(nil).keystoreOf()
			if err != nil {
				t.Fatal(err)
			}
			for who, shown := range map[string]*tls.Certificate{"own": own, "other": &pair, "": {}} {
				client := clientOf(t, cert)
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
				if _, err := shake(s, client); (err == nil) != allowed[who] {
					t.Errorf("%s, %s, certificate %q: %v", name, auth, who, err)
				}
			}
		}
	}
}

// keystoreOf is the first certificate of the key store.
func (s Settings) keystoreOf() (*tls.Certificate, error) {
	certs, err := s.keystore()
	if err != nil {
		return nil, err
	}
	return &certs[0], nil
}

// Protocols and cipher suites are what the settings say, no more.
func TestProtocolsAndCiphers(t *testing.T) {
	const all13 = "TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256"
	const one12 = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
	for _, c := range []struct {
		protocols, suites string
		v12, v13          bool
	}{
		{"TLSv1.2 TLSv1.3", "", true, true}, {"TLSv1.2", "", true, false}, {"TLSv1.3", "", false, true},
		{"TLSv1.2 TLSv1.3", one12, true, false}, {"TLSv1.2 TLSv1.3", all13, false, true}, {"TLSv1.2 TLSv1.3", all13 + " " + one12, true, true},
	} {
		s, err := New(given(func(s *Settings) {
			s.EnabledProtocols, s.CipherSuites = strings.Fields(c.protocols), strings.Fields(c.suites)
		}), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: c.v12, tls.VersionTLS13: c.v13} {
			client := clientOf(t, text(t, "testdata/cert.pem"))
			client.MinVersion, client.MaxVersion = version, version
			state, err := shake(s, client)
			if (err == nil) != want {
				t.Errorf("%+v with version %x: %v", c, version, err)
			}
			if name := tls.CipherSuiteName(state.CipherSuite); err == nil && version == tls.VersionTLS12 && c.suites != "" && name != one12 {
				t.Errorf("%+v: cipher suite is %s", c, name)
			}
		}
	}
}

// What is wrong is told with the key to blame, and never with a secret.
func TestFaults(t *testing.T) {
	key, cert := newPEM(t, "a")
	_, other := newPEM(t, "b")
	dir := t.TempDir()
	inline := func(s *Settings) {
		s.KeystoreType, s.KeystoreLocation, s.KeystorePassword, s.KeystoreKey, s.KeystoreChain = "PEM", "", "", key, cert
	}
	for _, c := range []struct {
		change    func(*Settings)
		key, text string
	}{
		{func(s *Settings) { s.KeystoreType = "BCFKS" }, "ssl.keystore.type", "PEM, JKS, PKCS12"},
		{func(s *Settings) { s.KeystoreLocation, s.KeystorePassword = "", "" }, "ssl.keystore.location", "needs a key store"},
		{func(s *Settings) { s.KeystoreLocation = "no/such/file" }, "ssl.keystore.location", "no such file"},
		{func(s *Settings) { s.KeystoreLocation = dir }, "ssl.keystore.location", "want a file"},
		{func(s *Settings) { s.KeystoreLocation = "/dev/null" }, "ssl.keystore.location", "want a file"},
		{func(s *Settings) { s.KeystorePassword = "geheim" }, "ssl.keystore.location", "password incorrect"},
		{func(s *Settings) { s.KeystorePassword = "" }, "ssl.keystore.password", "needs its password"},
		{func(s *Settings) { s.KeystoreLocation = "testdata/java.jks" }, "ssl.keystore.location", "is ssl.key.password right?"},
		{func(s *Settings) { s.KeystoreLocation, s.KeystorePassword = "testdata/java.jks", "geheim" }, "ssl.keystore.location", "digest"},
		{func(s *Settings) { s.KeystoreType, s.KeystoreLocation = "PEM", "testdata/encrypted.pem" }, "ssl.keystore.password", "has none"},
		{func(s *Settings) {
			s.KeystoreType, s.KeystoreLocation, s.KeystorePassword = "PEM", "testdata/encrypted.pem", ""
		}, "ssl.keystore.location", "there is no ssl.key.password"},
		{func(s *Settings) {
			s.KeystoreType, s.KeystoreLocation, s.KeystorePassword, s.KeyPassword = "PEM", "testdata/encrypted.pem", "", "geheim"
		}, "ssl.keystore.location", "is ssl.key.password right?"},
		{func(s *Settings) {
			s.KeystoreType, s.KeystoreLocation, s.KeystorePassword = "PEM", "testdata/cert.pem", ""
		}, "ssl.keystore.location", "no private key"},
		{func(s *Settings) { inline(s); s.KeystoreType = "JKS" }, "ssl.keystore.type", "so must this be"},
		{func(s *Settings) { inline(s); s.KeystoreKey = "" }, "ssl.keystore.key", "needed beside"},
		{func(s *Settings) { inline(s); s.KeystoreChain = "" }, "ssl.keystore.certificate.chain", "needed beside"},
		{func(s *Settings) { inline(s); s.KeystoreChain = "x" }, "ssl.keystore.key", "no certificate"},
		{func(s *Settings) { inline(s); s.KeystoreChain = other }, "ssl.keystore.key", "does not belong to the first certificate"},
		{func(s *Settings) { inline(s); s.KeystoreLocation = "x" }, "ssl.keystore.location", "together"},
		{func(s *Settings) { inline(s); s.KeystorePassword = "geheim" }, "ssl.keystore.password", "has none"},
		{func(s *Settings) { s.TruststoreType = "" }, "ssl.truststore.type", "PEM, JKS, PKCS12"},
		{func(s *Settings) { s.TruststoreCertificates = cert }, "ssl.truststore.type", "so must this be"},
		{func(s *Settings) { s.TruststoreType, s.TruststoreCertificates = "PEM", "x" }, "ssl.truststore.certificates", "no trusted certificate"},
		{func(s *Settings) { s.TruststoreType, s.TruststoreCertificates, s.TruststoreLocation = "PEM", cert, "x" }, "ssl.truststore.location", "together"},
		{func(s *Settings) { s.TruststoreType, s.TruststoreLocation, s.TruststorePassword = "PEM", "x", "geheim" }, "ssl.truststore.password", "has none"},
		{func(s *Settings) { s.TruststorePassword = "geheim" }, "ssl.truststore.password", "there is no ssl.truststore.location"},
		{func(s *Settings) { s.TruststoreLocation, s.TruststorePassword = "testdata/trust.jks", "geheim" }, "ssl.truststore.location", "digest"},
		{func(s *Settings) { s.TruststoreLocation, s.TruststorePassword = "testdata/java.p12", "changeit" }, "ssl.truststore.location", "java.p12: "},
		{func(s *Settings) { s.ClientAuth = "required" }, "ssl.client.auth", "set ssl.truststore.location"},
		{func(s *Settings) { s.ClientAuth = "requested" }, "ssl.client.auth", "set ssl.truststore.location"},
		{func(s *Settings) { s.ClientAuth = "maybe" }, "ssl.client.auth", "none, requested, required"},
		{func(s *Settings) { s.Protocol = "SSLv3" }, "ssl.protocol", "TLSv1.3, TLSv1.2, TLS"},
		{func(s *Settings) { s.EndpointIdentification = "ldaps" }, "ssl.endpoint.identification.algorithm", "https"},
		{func(s *Settings) { s.EnabledProtocols = []string{"TLSv1.2", "TLSv1.1"} }, "ssl.enabled.protocols", "TLSv1.2, TLSv1.3"},
		{func(s *Settings) { s.EnabledProtocols = nil }, "ssl.enabled.protocols", "at least one"},
		{func(s *Settings) { s.CipherSuites = []string{"TLS_RSA_WITH_RC4_128_SHA"} }, "ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		{func(s *Settings) { s.CipherSuites = []string{"TLS_AES_256_GCM_SHA384"} }, "ssl.cipher.suites", "all must be on, or none"},
		{func(s *Settings) {
			s.CipherSuites, s.EnabledProtocols = []string{"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}, []string{"TLSv1.3"}
		}, "ssl.cipher.suites", "TLSv1.3, the only protocol"},
		{func(s *Settings) {
			s.CipherSuites, s.EnabledProtocols = []string{"TLS_AES_256_GCM_SHA384"}, []string{"TLSv1.2"}
		}, "ssl.cipher.suites", "TLSv1.2, the only protocol"},
	} {
		_, err := New(given(c.change), slog.New(slog.DiscardHandler))
		var bad *Error
		if !errors.As(err, &bad) || bad.Key != c.key || !strings.Contains(bad.Text, c.text) || strings.Contains(bad.Text, "geheim") {
			t.Errorf("got %v, want %s with %q", err, c.key, c.text)
		}
	}
}

// Stores that change on disk are in force at the next handshake after checkEvery; broken ones are not, and told once (regression 73).
func TestReplacedOnDisk(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "broker.pem")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(at+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	}
	key, first := newPEM(t, "first")
	write(key + first)
	var logged bytes.Buffer
	s, err := New(given(func(s *Settings) { s.KeystoreType, s.KeystoreLocation, s.KeystorePassword = "PEM", at, "" }), slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Now()
	s.now = func() time.Time { return clock }
	tickets := tls.NewLRUClientSessionCache(4)
	serves := func(what, cert string, resumed bool) {
		t.Helper()
		client := clientOf(t, cert)
		client.ClientSessionCache = tickets
		state, err := shake(s, client)
		if err != nil || state.DidResume != resumed {
			t.Errorf("%s: resumed %v, want %v: %v", what, state.DidResume, resumed, err)
		}
	}
	serves("the first", first, false)
	serves("again", first, true)
	key, second := newPEM(t, "second")
	write(key + second)
	serves("not looked at yet", first, true)
	clock = clock.Add(checkEvery)
	serves("the second, and no ticket of the first", second, false)
	write(key)
	for range 3 {
		clock = clock.Add(checkEvery)
		serves("a file without certificate", second, true)
	}
	if n := strings.Count(logged.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors logged:\n%s", n, &logged)
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(checkEvery)
	serves("no file", second, true)
	key, third := newPEM(t, "third")
	write(key + third)
	clock = clock.Add(checkEvery)
	serves("the third", third, false)
	clock = clock.Add(ticketKeyLife)
	serves("a ticket of the key before", third, true)
	clock = clock.Add(2 * ticketKeyLife)
	serves("the next key", third, true)
	if len(s.ticketKeys) != 2 {
		t.Errorf("%d ticket keys are kept", len(s.ticketKeys))
	}
}
