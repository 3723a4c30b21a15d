package server

import (
	"testing"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// A request over many partitions is durable with one round of the group commit, however long its appends take.
func TestOneRequestIsOneRound(t *testing.T) {
	const partitions = 100
	b := broker(t, "kaas.durability", "group-commit", "kaas.metrics.listen", "127.0.0.1:0")
	c := dial(t, b)
	c.create("t", partitions)
	for turn := range 5 {
		q := produceRequest("t", 0, -1, records("v"))
		for i := int32(1); i < partitions; i++ {
			p := api.Next(&q.TopicData[0].PartitionData)
			p.Index, p.Records = i, wire.Records{Bytes: records("v")}
		}
		before := scrape(t, b)
		var answer api.ProduceResponse
		c.call(api.KeyProduce, 9, q, &answer)
		for _, p := range answer.Responses[0].PartitionResponses {
			if p.ErrorCode != api.ErrNone || p.BaseOffset != int64(turn) {
				t.Fatalf("partition %d: error %v, offset %d, want %d", p.Index, p.ErrorCode, p.BaseOffset, turn)
			}
		}
		var after map[string]float64
		eventually(t, "the round counted", func() bool { // which it is when its waiters are told
			after = scrape(t, b)
			return after["kaas_commit_syncs_total"] == before["kaas_commit_syncs_total"]+partitions
		})
		if n := after["kaas_commit_rounds_total"] - before["kaas_commit_rounds_total"]; n != 1 {
			t.Errorf("request %d: %v rounds", turn, n)
		}
	}
}
