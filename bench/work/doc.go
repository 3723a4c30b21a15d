// Package work is a load as data: what `kaas bench` reads from flags or from a scenario file, and how it is run by one of the clients.
//
// Client "kaas" is package load, which costs least; client "franz-go" is package franz, a real library. A setting that the chosen client
// does not have is refused, never ignored.
package work

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"kaas/bench/frames"
)

// Kinds of loads.
const (
	Produce     = "produce"
	Consume     = "consume"
	EndToEnd    = "e2e"
	Mixed       = "mixed"
	Connections = "connections"
	Topics      = "topics"
)

// Clients.
const (
	Own   = "kaas"
	Franz = "franz-go"
)

// Spec is one load. Zero values of sizes and counts mean the client's own choice where it has one.
type Spec struct {
	Name        string        `yaml:"name" json:"name"`
	Kind        string        `yaml:"kind" json:"kind"`
	Client      string        `yaml:"client" json:"client"`
	Bootstrap   []string      `yaml:"bootstrap" json:"bootstrap"`
	Topic       string        `yaml:"topic" json:"topic"`
	Partitions  int           `yaml:"partitions" json:"partitions"`
	RecordSize  int           `yaml:"record-size" json:"record_size"`
	BatchBytes  int           `yaml:"batch-bytes" json:"batch_bytes"`
	Linger      time.Duration `yaml:"linger" json:"linger"`
	Acks        int           `yaml:"acks" json:"acks"`
	Clients     int           `yaml:"clients" json:"clients"`
	InFlight    int           `yaml:"in-flight" json:"in_flight"`
	Rate        float64       `yaml:"rate" json:"rate"` // records per second
	Duration    time.Duration `yaml:"duration" json:"duration"`
	Records     int64         `yaml:"records" json:"records"`
	Bytes       int64         `yaml:"bytes" json:"bytes"`
	Requests    int64         `yaml:"requests" json:"requests"`
	WarmUp      time.Duration `yaml:"warm-up" json:"warm_up"`
	Compression string        `yaml:"compression" json:"compression"`
	Idempotence bool          `yaml:"idempotence" json:"idempotence"`
	Keys        int           `yaml:"keys" json:"keys"`
	Buffered    int           `yaml:"buffered" json:"buffered"`
	Group       string        `yaml:"group" json:"group"`
	MaxBytes    int           `yaml:"max-bytes" json:"max_bytes"`
	Alike       bool          `yaml:"alike" json:"alike"`
	FanOut      bool          `yaml:"fan-out" json:"fan_out"`
	ColdReaders int           `yaml:"cold-readers" json:"cold_readers"`
	ColdTopic   string        `yaml:"cold-topic" json:"cold_topic"`
	Topics      int           `yaml:"topics" json:"topics"`
	PerRequest  int           `yaml:"per-request" json:"per_request"`
	Keep        bool          `yaml:"keep" json:"keep"`
	Hold        time.Duration `yaml:"hold" json:"hold"`
	TLS         TLS           `yaml:"tls" json:"tls"`
	PID         int           `yaml:"pid" json:"pid"` // of a broker on this machine
	Rounds      int           `yaml:"rounds" json:"rounds"`
}

// TLS says how to reach a listener that wants it. Files are PEM.
type TLS struct {
	Enable     bool   `yaml:"enable" json:"enable"`
	CA         string `yaml:"ca" json:"ca"` // empty: those of the system
	Cert       string `yaml:"cert" json:"cert"`
	Key        string `yaml:"key" json:"key"`
	ServerName string `yaml:"server-name" json:"server_name"` // empty: the host of the address
}

var (
	errNoCA     = errors.New("no certificate in the file")
	errHalfPair = errors.New("tls: a certificate of the client's own needs its key, and a key its certificate")
)

func (t *TLS) config() (*tls.Config, error) {
	if !t.Enable && t.CA == "" && t.Cert == "" {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %w", t.CA, errNoCA)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, errHalfPair
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Defaults of a load of the given kind.
func Defaults(kind string) Spec {
	s := Spec{
		Kind: kind, Client: Own, Bootstrap: []string{"127.0.0.1:9092"}, Topic: "bench", Partitions: 1, RecordSize: 1 << 10, BatchBytes: 16 << 10,
		Acks: -1, Clients: 4, InFlight: 5, Compression: "none", Idempotence: true, MaxBytes: 1 << 20, Topics: 100, PerRequest: 10, Hold: time.Minute, Rounds: 1,
	}
	switch kind {
	case EndToEnd, Mixed:
		s.Rate, s.BatchBytes, s.Clients, s.Partitions = 1000, 0, 1, 1
	case Consume:
		s.Partitions = 0
	case Connections:
		s.Clients = 1000
	}
	return s
}

const defaultDuration = 10 * time.Second

// prepare fills what is open and refuses what makes no sense.
func (s *Spec) prepare() error {
	kinds := []string{Produce, Consume, EndToEnd, Mixed, Connections, Topics}
	switch {
	case !slices.Contains(kinds, s.Kind):
		return fmt.Errorf("kind %q: there are %s", s.Kind, strings.Join(kinds, ", "))
	case s.Client != Own && s.Client != Franz:
		return fmt.Errorf("client %q: there are %s and %s", s.Client, Own, Franz)
	case len(s.Bootstrap) == 0:
		return errors.New("bootstrap: no address")
	case s.Rounds < 1:
		return errors.New("rounds: at least 1")
	case s.Compression != "" && !slices.Contains(frames.Compressions, s.Compression):
		return fmt.Errorf("compression %q: there are %s", s.Compression, strings.Join(frames.Compressions, ", "))
	case s.Linger < 0 || s.WarmUp < 0 || s.Duration < 0 || s.Records < 0 || s.Bytes < 0 || s.Requests < 0:
		return errors.New("linger, warm-up, duration, records, bytes and requests: not negative")
	case s.Rate < 0:
		return errors.New("rate: not negative")
	}
	if s.Name == "" {
		s.Name = s.Kind
	}
	if s.Duration == 0 && s.Records == 0 && s.Bytes == 0 && s.Requests == 0 && (s.Kind != Consume || s.Client == Own) {
		s.Duration = defaultDuration
	}
	if s.Client == Own {
		return s.ownOnly()
	}
	if s.Kind == Connections || s.Kind == Topics || s.Kind == Mixed {
		return fmt.Errorf("%s: only with client %s", s.Kind, Own)
	}
	if s.Alike {
		return fmt.Errorf("alike: only with client %s", Own)
	}
	if s.Acks != -1 {
		s.Idempotence = false
	}
	return nil
}

// ownOnly refuses what the own generator does not have.
func (s *Spec) ownOnly() error {
	for _, n := range []struct {
		name string
		set  bool
	}{
		{"linger", s.Linger > 0}, {"keys", s.Keys > 0}, {"buffered", s.Buffered > 0}, {"group", s.Group != ""},
		{"tls", s.TLS != TLS{}},
	} {
		if n.set {
			return fmt.Errorf("%s: only with client %s", n.name, Franz)
		}
	}
	return nil
}
