package regress

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
	"kaas/server"
	"kaas/server/config"
)

// onDisk is a broker whose logs lie on a disk that a test can have fail or lose its power, with a client of franz-go.
type onDisk struct {
	*server.Broker
	t   *testing.T
	log *logged
	cl  *kgo.Client
}

func startOnDisk(t *testing.T, disk vfs.FS, dir string) *onDisk {
	t.Helper()
	opts := config.Options{}
	for k, v := range map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0", "kaas.metrics.listen": "127.0.0.1:0"} {
		opts.Settings = append(opts.Settings, config.Setting{Key: k, Value: v, Origin: "test"})
	}
	cfg, err := config.Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	b := &onDisk{t: t, log: &logged{}}
	if b.Broker, err = server.StartOn(disk, cfg, time.Now(), b.log); err != nil {
		t.Fatal(err)
	}
	b.cl, err = kgo.NewClient(kgo.SeedBrokers(b.Ready().Listeners["PLAINTEXT"]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.ProducerLinger(0), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stop ends the broker; one with a log that failed may say so.
func (b *onDisk) stop() {
	b.cl.Close()
	_ = b.Stop()
}

func (b *onDisk) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	b.t.Cleanup(cancel)
	return ctx
}

func (b *onDisk) produce(topic, value string) error {
	return b.cl.ProduceSync(b.ctx(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr()
}

// metadata asks the broker about a topic, past what the client remembers.
func (b *onDisk) metadata(topic string) kmsg.MetadataResponseTopic {
	b.t.Helper()
	q := kmsg.NewPtrMetadataRequest()
	x := kmsg.NewMetadataRequestTopic()
	x.Topic = &topic
	q.Topics = append(q.Topics, x)
	r, err := b.cl.SeedBrokers()[0].RetriableRequest(b.ctx(), q)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.(*kmsg.MetadataResponse).Topics[0]
}

// records reads what a log has below its high watermark, whoever leads it: one fetch to the broker itself.
func (b *onDisk) records(topic string) (values []string) {
	b.t.Helper()
	q := kmsg.NewPtrFetchRequest()
	q.MaxWaitMillis, q.MaxBytes, q.SessionEpoch = 1, 1<<20, -1
	x, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	x.Topic, x.TopicID, p.PartitionMaxBytes, p.CurrentLeaderEpoch = topic, b.metadata(topic).TopicID, 1<<20, -1
	x.Partitions = append(x.Partitions, p)
	q.Topics = append(q.Topics, x)
	r, err := b.cl.SeedBrokers()[0].RetriableRequest(b.ctx(), q)
	if err != nil {
		b.t.Fatal(err)
	}
	got := r.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != none {
		b.t.Fatalf("fetch of %s: error %d", topic, got.ErrorCode)
	}
	f, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: topic}, &got, kgo.DefaultDecompressor(), nil)
	for _, r := range f.Records {
		values = append(values, string(r.Value))
	}
	return values
}

func (b *onDisk) page(path string) (status int, body string) {
	b.t.Helper()
	r, err := http.Get("http://" + b.Ready().Metrics + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.StatusCode, string(all)
}

// A failed fdatasync takes its log offline, in every place where one looks: the producer's error, metadata, the directory's description,
// the broker's log, metrics and readiness, each with the reason where there is room for one. What was durable can still be read, other logs
// go on, and after a restart there is what the disk really has: what that shows, it has even if the power goes next (regression 33).
func TestPoisonedLog(t *testing.T) {
	dir, disk, faults := t.TempDir(), crashfs.New(), crashfs.Rules("")
	b := startOnDisk(t, faults.FS(disk), dir)
	if _, err := kadm.NewClient(b.cl).CreateTopics(b.ctx(), 1, 1, nil, "bad", "good"); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"bad", "good"} {
		if err := b.produce(topic, "durable"); err != nil {
			t.Fatal(err)
		}
	}
	if err := faults.Set("1st fdatasync of bad-0/*.log: EIO"); err != nil {
		t.Fatal(err)
	}
	if err := b.produce("bad", "in doubt"); err != kerr.KafkaStorageError {
		t.Errorf("the batch whose sync failed: %v", err)
	}
	b.wantOffline()
	if got := b.records("bad"); !slices.Equal(got, []string{"durable"}) {
		t.Errorf("bad has %q", got)
	}
	if err := b.produce("good", "later"); err != nil {
		t.Errorf("another log: %v", err)
	}
	b.stop()

	b = startOnDisk(t, disk, dir)
	shown := b.records("bad")
	if len(shown) == 0 || shown[0] != "durable" || len(shown) > 2 || len(shown) == 2 && shown[1] != "in doubt" {
		t.Errorf("after a restart bad has %q", shown)
	}
	if err := b.produce("bad", "after"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if status, body := b.page("/readyz"); status != http.StatusOK {
		t.Errorf("after a restart: readyz %d %s", status, body)
	}
	cut := disk.CrashAs(rand.New(rand.NewPCG(1, 1)), crashfs.Cut{Sector: 512}) // nothing that is not durable is kept
	b.stop()
	b = startOnDisk(t, cut, dir)
	defer b.stop()
	if got := b.records("bad"); !slices.Equal(got, append(shown, "after")) {
		t.Errorf("after a power cut bad has %q; %q was shown before", got, shown)
	}
	if got := b.records("good"); !slices.Equal(got, []string{"durable", "later"}) {
		t.Errorf("after a power cut good has %q", got)
	}
}

// wantOffline looks at all places that tell of a log that is offline.
func (b *onDisk) wantOffline() {
	b.t.Helper()
	if p := b.metadata("bad").Partitions[0]; p.ErrorCode != leaderNotAvailable || p.Leader != -1 || len(p.OfflineReplicas) != 1 {
		b.t.Errorf("metadata of the log: %+v", p)
	}
	if p := b.metadata("good").Partitions[0]; p.ErrorCode != none || p.Leader < 0 {
		b.t.Errorf("metadata of another: %+v", p)
	}
	dirs, err := kadm.NewClient(b.cl).DescribeAllLogDirs(b.ctx(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	seen := 0
	dirs.Each(func(d kadm.DescribedLogDir) {
		if d.Err != nil {
			b.t.Errorf("the directory, in which other logs go on: %v", d.Err)
		}
		for _, topic := range []string{"bad", "good"} {
			if d.Topics[topic][0].Size > 0 {
				seen++
			}
		}
	})
	if seen != 2 {
		b.t.Errorf("the description of the directory has %d of both logs", seen)
	}
	if _, metrics := b.page("/metrics"); !strings.Contains(metrics, "\nkaas_logs_offline 1\n") {
		b.t.Error("kaas_logs_offline is not 1")
	}
	if status, body := b.page("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "log bad-0 is offline") || !strings.Contains(body, "input/output error") {
		b.t.Errorf("readyz %d %s", status, body)
	}
	if text := b.log.String(); !strings.Contains(text, "bad-0") || !strings.Contains(text, "input/output error") {
		b.t.Errorf("the broker's log does not say why:\n%s", text)
	}
}
