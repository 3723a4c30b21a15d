package logtool

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fill has a broker write 200 batches of 10 records to each of two partitions on dir, in segments of 100 kB, and stops it; running is called before that.
func fill(t *testing.T, dir string, running func()) {
	t.Helper()
	b := broker(t, dir)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Ready().Listeners["PLAINTEXT"]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic("orders"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	size := "100000"
	if _, err := kadm.NewClient(cl).CreateTopic(context.Background(), 2, 1, map[string]*string{"segment.bytes": &size}, "orders"); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		for p := range int32(2) {
			var list []*kgo.Record
			for j := range 10 {
				list = append(list, &kgo.Record{Partition: p, Value: []byte(fmt.Sprintf("%04d-%d ", i, j) + strings.Repeat("x", 91))})
			}
			if err := cl.ProduceSync(context.Background(), list...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	running()
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
}
