// Package franz puts a load on a broker through franz-go, a real client library: with batching by time, idempotence, compression,
// TLS and consumer groups. Package load is cheaper and measures the broker; this one measures what an application gets.
//
// Latency counts from the call of Produce, or with a rate from the time at which the record was due (no coordinated omission), until
// its promise is kept. A run ends when everything sent is acknowledged; a record that fails ends it with an error.
package franz

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/bench/frames"
	"kaas/bench/load"
)

// Config is what all loads share. Sizes are in bytes.
type Config struct {
	Brokers    []string
	Topic      string
	Partitions int // the topic is created with so many by the caller; here they are those read or written
	Clients    int // one client library instance each, with its own connections
	TLS        *tls.Config
	WarmUp     time.Duration // at the beginning, not counted
	load.Limits
	Progress load.Progress
}

func (c *Config) options() []kgo.Opt {
	o := []kgo.Opt{kgo.SeedBrokers(c.Brokers...), kgo.ClientID(frames.ClientID), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100 * time.Millisecond)}
	if c.TLS != nil {
		o = append(o, kgo.DialTLSConfig(c.TLS))
	}
	return o
}

const clientsMax = 10_000

func (c *Config) check() error {
	switch {
	case c.Clients < 1 || c.Clients > clientsMax:
		return fmt.Errorf("clients: %d is not within 1 and %d", c.Clients, clientsMax)
	case c.Topic == "":
		return errors.New("topic: no name")
	case c.Partitions < 1:
		return errors.New("partitions: none")
	}
	return nil
}

// codec is the option of a name in frames.Compressions.
func codec(name string) (kgo.CompressionCodec, error) {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	if name == "" {
		return codecs[0], nil
	}
	i := slices.Index(frames.Compressions, name)
	if i < 0 {
		return kgo.CompressionCodec{}, fmt.Errorf("compression %q: there are %v", name, frames.Compressions)
	}
	return codecs[i], nil
}

// values are made once and used in turn, so that batches are not made of one value only.
const valueCount = 64

// makeValues makes values of the given size: of random bytes, or of few letters for a load that is compressed.
func makeValues(size int, compressed bool) [][]byte {
	letters := uint32(256)
	if compressed {
		letters = 16
	}
	random := rand.New(rand.NewPCG(1, 2))
	values := make([][]byte, valueCount)
	for i := range values {
		values[i] = make([]byte, size)
		for j := range values[i] {
			values[i][j] = byte(random.Uint32() % letters)
		}
	}
	return values
}
