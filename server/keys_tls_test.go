package server

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"kaas/server/config"
)

// javaStores are settings of a TLS listener with stores that Java has written.
func javaStores() []config.Setting {
	const dir = "tlsconfig/testdata/"
	var out []config.Setting
	for _, kv := range [][2]string{
		{"listeners", "SSL://127.0.0.1:0"}, {"inter.broker.listener.name", "SSL"},
		{"ssl.keystore.type", "JKS"}, {"ssl.keystore.location", dir + "java.jks"}, {"ssl.keystore.password", "changeit"}, {"ssl.key.password", "keysecret"},
		{"ssl.truststore.type", "PKCS12"}, {"ssl.truststore.location", dir + "trust.p12"}, {"ssl.truststore.password", "changeit"},
		{"ssl.client.auth", "required"}, {"ssl.enabled.protocols", "TLSv1.2"}, {"ssl.protocol", "TLSv1.2"},
		{"ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}, {"ssl.endpoint.identification.algorithm", ""},
	} {
		out = append(out, config.Setting{Key: kv[0], Value: kv[1]})
	}
	return out
}

// startTLS starts a broker by these settings.
func startTLS(t *testing.T, settings []config.Setting) (*Broker, error) {
	t.Helper()
	cfg, err := config.Load(config.Options{Settings: append([]config.Setting{{Key: "log.dirs", Value: t.TempDir()}}, settings...)})
	if err != nil {
		return nil, err
	}
	return Start(cfg, time.Now(), io.Discard)
}

// The keys of TLS as the broker's own, not one listener's: the stores with their types and passwords, ssl.client.auth, ssl.enabled.protocols and
// ssl.cipher.suites decide who gets in, and how.
func TestKeysOfTLS(t *testing.T) {
	b, err := startTLS(t, javaStores())
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, b)
	store, err := os.ReadFile("tlsconfig/testdata/java.p12")
	if err != nil {
		t.Fatal(err)
	}
	key, cert, err := pkcs12.Decode(store, "changeit")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	known := &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
	c := dialTLS(t, b, "SSL", known)
	c.address()
	if s := c.c.(*tls.Conn).ConnectionState(); s.Version != tls.VersionTLS12 || s.CipherSuite != tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 {
		t.Errorf("%s with %s", tls.VersionName(s.Version), tls.CipherSuiteName(s.CipherSuite))
	}
	anySuite, err := startTLS(t, slices.DeleteFunc(javaStores(), func(s config.Setting) bool { return s.Key == "ssl.cipher.suites" }))
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, anySuite)
	if s := dialTLS(t, anySuite, "SSL", known).c.(*tls.Conn).ConnectionState(); s.Version != tls.VersionTLS12 {
		t.Errorf("%s with ssl.enabled.protocols=TLSv1.2", tls.VersionName(s.Version))
	}
	for what, change := range map[string]func(*tls.Config){
		"no certificate":       func(c *tls.Config) { c.Certificates = nil },
		"TLSv1.3 alone":        func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 },
		"another cipher suite": func(c *tls.Config) { c.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256} },
	} {
		stranger := known.Clone()
		change(stranger)
		if c, err := tls.Dial("tcp", b.Ready().Listeners["SSL"], stranger); err == nil {
			c.Close()
			t.Errorf("%s: got in", what)
		}
	}
}

// What of these keys cannot be stops the start, and is named.
func TestKeysOfTLSAreChecked(t *testing.T) {
	for _, k := range [][2]string{
		{"ssl.protocol", "SSLv3"}, {"ssl.endpoint.identification.algorithm", "ldaps"}, {"ssl.client.auth", "perhaps"}, {"ssl.enabled.protocols", "TLSv1"},
		{"ssl.cipher.suites", "TLS_RSA_WITH_RC4_128_MD5"}, {"ssl.truststore.type", "BCFKS"}, {"ssl.truststore.password", "guess"},
		{"ssl.keystore.type", "BCFKS"}, {"ssl.keystore.password", "guess"}, {"ssl.key.password", "guess"},
	} {
		settings := slices.Clone(javaStores())
		at := slices.IndexFunc(settings, func(s config.Setting) bool { return s.Key == k[0] })
		settings[at].Value = k[1]
		b, err := startTLS(t, settings)
		if err == nil {
			stop(t, b)
		}
		store, _, _ := strings.Cut(strings.TrimPrefix(k[0], "ssl."), ".") // a wrong password is told of its store
		if err == nil || !strings.Contains(err.Error(), k[0]) && !strings.Contains(err.Error(), "ssl."+store+".location") {
			t.Errorf("%s=%s: %v", k[0], k[1], err)
		}
		if err != nil && strings.Contains(err.Error(), "guess") {
			t.Errorf("%s: the secret is shown: %v", k[0], err)
		}
	}
}
