//go:build interop

package interop

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kaas/server/brokertest"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stores are the files of a broker and of a client that know each other, made by Java's keytool and by OpenSSL.
type stores struct{ dir string }

func (s stores) path(name string) string { return filepath.Join(s.dir, name) }

func newStores(t *testing.T) stores {
	t.Helper()
	s := stores{t.TempDir()}
	keytool := func(args ...string) {
		program(t, nil, nil, "keytool", append(args, "-storepass", "changeit", "-noprompt")...)
	}
	for _, who := range []string{"broker", "client"} {
		keytool("-genkeypair", "-alias", who, "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN="+who, "-ext", "SAN=dns:localhost,ip:127.0.0.1",
			"-validity", "2", "-storetype", "PKCS12", "-keystore", s.path(who+".p12"))
		keytool("-exportcert", "-alias", who, "-keystore", s.path(who+".p12"), "-rfc", "-file", s.path(who+".crt"))
		keytool("-importcert", "-alias", who, "-file", s.path(who+".crt"), "-storetype", "JKS", "-keystore", s.path("trusts-"+who+".jks"))
		program(t, nil, nil, "openssl", "pkcs12", "-in", s.path(who+".p12"), "-passin", "pass:changeit", "-nocerts", "-nodes", "-out", s.path(who+".key"))
	}
	for name, text := range map[string]string{
		"java.properties": "security.protocol=SSL\nssl.truststore.location=" + s.path("trusts-broker.jks") + "\nssl.truststore.password=changeit\n" +
			"ssl.keystore.type=PKCS12\nssl.keystore.location=" + s.path("client.p12") + "\nssl.keystore.password=changeit\nssl.key.password=changeit\n",
		"kcat.conf": "security.protocol=ssl\nssl.ca.location=" + s.path("broker.crt") + "\nssl.certificate.location=" + s.path("client.crt") +
			"\nssl.key.location=" + s.path("client.key") + "\n",
	} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// franz are the options of franz-go.
func (s stores) franz(t *testing.T) kgo.Opt {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(s.path("client.crt"), s.path("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(s.path("broker.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return kgo.DialTLSConfig(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}})
}

// startTLSBroker runs a broker that serves TLS on SSL and asks for certificates on MUTUAL.
func startTLSBroker(t *testing.T, s stores) *brokertest.Broker {
	t.Helper()
	if *bootstrap != "" {
		t.Skip("-bootstrap names a broker without TLS")
	}
	_, b := startBroker(t, "--listen", "PLAINTEXT://{addr},SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0",
		"--set", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
		"--set", "ssl.keystore.location="+s.path("broker.p12"), "--set", "ssl.keystore.password=changeit", "--set", "ssl.key.password=changeit",
		"--set", "listener.name.mutual.ssl.client.auth=required",
		"--set", "listener.name.mutual.ssl.truststore.location="+s.path("trusts-client.jks"),
		"--set", "listener.name.mutual.ssl.truststore.password=changeit")
	return b
}

// TestTLS: each client writes 10,000 records in every compression over TLS and mutual TLS and reads them back there; what it reads is
// what the plaintext port gives. The short form has mutual TLS and two compressions only.
func TestTLS(t *testing.T) {
	s := newStores(t)
	b := startTLSBroker(t, s)
	franz := s.franz(t)
	t.Setenv("KCAT_CONFIG", s.path("kcat.conf"))
	for _, listener := range []string{"SSL", "MUTUAL"} {
		if testing.Short() && listener == "SSL" {
			continue
		}
		addr := b.Ready.Listeners[listener]
		for _, codec := range codecs {
			if testing.Short() && codec.name != "lz4" && codec.name != "zstd" {
				continue
			}
			feature := listener + " " + codec.name
			cell(t, "franz-go", feature, func(t *testing.T) {
				topic := newExchangeTopic(t, b.Addr)
				records := makeRecords(exchangeRecords, exchangePartitions)
				c := newClient(t, addr, franz, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec.franz))
				if err := c.ProduceSync(newContext(t), records...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				p := producer{timestamps: true}
				compareExchange(t, p, records, readAllWith(t, addr, topic, franz))
				compareExchange(t, p, records, readAll(t, b.Addr, topic))
			})
			cell(t, "kcat", feature, func(t *testing.T) {
				topic := newExchangeTopic(t, b.Addr)
				records := kcatRecords(exchangeRecords, exchangePartitions)
				produceKcat(t, addr, topic, codec.name, records)
				var seen []*kgo.Record
				for _, r := range records {
					seen = append(seen, kcatSeen(r))
				}
				compareExchange(t, producer{}, seen, readKcat(t, addr, topic))
				compareExchange(t, producer{}, records, readAll(t, b.Addr, topic))
			})
			cell(t, "Java", feature, func(t *testing.T) {
				topic := newTopic(t, b.Addr, 1)
				tool(t, "", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", fmt.Sprint(exchangeRecords), "--record-size", "300",
					"--throughput", "-1", "--producer.config", s.path("java.properties"), "--producer-props", "bootstrap.servers="+addr, "compression.type="+codec.name)
				var want strings.Builder // its payloads are letters
				for _, r := range readAll(t, b.Addr, topic)[0] {
					fmt.Fprintf(&want, "%s\n", r.Value)
				}
				out := tool(t, "", "kafka.tools.ConsoleConsumer", "--bootstrap-server", addr, "--topic", topic, "--partition", "0", "--offset", "earliest",
					"--max-messages", fmt.Sprint(exchangeRecords), "--consumer.config", s.path("java.properties"))
				if n := strings.Count(out, "\n"); n != exchangeRecords || out != want.String() {
					t.Errorf("the consumer printed %d records, want %d, equal to those that were written", n, exchangeRecords)
				}
			})
		}
	}
}
