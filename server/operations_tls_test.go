package server

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kaas/server/config"
)

// block is the text of the fenced block that follows mark in a page.
func block(t *testing.T, page, mark string) string {
	t.Helper()
	_, after, ok := strings.Cut(page, mark)
	_, after, fenced := strings.Cut(after, "```")
	_, after, _ = strings.Cut(after, "\n") // the language
	text, _, closed := strings.Cut(after, "```")
	if !ok || !fenced || !closed {
		t.Fatalf("no block after %q", mark)
	}
	return text
}

// The worked example of TLS in docs/operations.md works as it stands there, but for the ports.
func TestOperationsTLSExample(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip(err)
	}
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	script := block(t, string(page), "<!-- A test runs this block in an empty directory. -->")
	if out, err := exec.Command("sh", "-e", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	settings := block(t, string(page), "<!-- The same test starts a broker with this block. -->")
	free := strings.NewReplacer("listeners=PLAINTEXT://127.0.0.1:9092,SSL://:9093\n", "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0\n").Replace(settings)
	if free == settings {
		t.Fatal("the listeners are others than this test knows")
	}
	if err := os.WriteFile("server.properties", []byte(free), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: "server.properties", Settings: []config.Setting{{Key: "log.dirs", Value: filepath.Join(t.TempDir(), "data"), Origin: "test"}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Start(cfg, time.Now(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, b)
	pair, err := tls.LoadX509KeyPair("client.crt", "client.key")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile("ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	c := dialTLS(t, b, "SSL", &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "localhost"})
	if got := c.address(); got != "localhost:9093" {
		t.Errorf("the broker says it is at %s", got)
	}
	c.c.Close()
}
