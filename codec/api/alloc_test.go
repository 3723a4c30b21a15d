package api

import (
	"fmt"
	"testing"

	"kaas/codec/wire"
)

// produceBody is the body of a Produce request.
func produceBody(tb testing.TB, version int16, topics, partitions, size int) []byte {
	var m ProduceRequest
	m.Default()
	m.Acks, m.TimeoutMs = -1, 30000
	if version >= 3 {
		m.TransactionalId = wire.Some("tx")
	}
	for i := range topics {
		topic := Next(&m.TopicData)
		topic.Name = fmt.Sprintf("topic-%d", i)
		for j := range partitions {
			p := Next(&topic.PartitionData)
			p.Index = int32(j)
			p.Records = wire.Records{Bytes: make([]byte, size)}
		}
	}
	var w wire.Writer
	m.Encode(&w, version)
	if w.Err != nil {
		tb.Fatal(w.Err)
	}
	return w.B
}

// fetchResponse builds a Fetch response whose records are not in memory, using the memory of m again.
func fetchResponse(m *FetchResponse, topics, partitions int) {
	m.Default()
	m.SessionId = 7
	for i := range topics {
		topic := Next(&m.Responses)
		topic.TopicId = wire.UUID{0: 1, 15: byte(i)}
		for j := range partitions {
			p := Next(&topic.Partitions)
			p.PartitionIndex = int32(j)
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = 1000, 1000, 0
			aborted := Next(&p.AbortedTransactions)
			aborted.ProducerId, aborted.FirstOffset = 4000, 17
			p.CurrentLeader.LeaderId, p.CurrentLeader.LeaderEpoch = 1, 5
			p.Records = wire.Records{External: 64 << 10}
		}
	}
}

// TestSteadyStateAllocations: what a connection does per request costs no allocation once its memory has grown.
func TestSteadyStateAllocations(t *testing.T) {
	for _, version := range []int16{3, 8, 9, 10} {
		big, small := produceBody(t, version, 3, 5, 100), produceBody(t, version, 1, 1, 10)
		var m ProduceRequest
		var r wire.Reader
		decode := func(body []byte) {
			r.Reset(body)
			m.Decode(&r, version)
			if r.Err() != nil || r.Rest() != 0 {
				t.Fatal(r.Err(), r.Rest())
			}
		}
		decode(big)
		if n := testing.AllocsPerRun(100, func() { decode(small); decode(big) }); n != 0 {
			t.Errorf("decoding Produce v%d: %v allocations", version, n)
		}
		if len(m.TopicData) != 3 || len(m.TopicData[2].PartitionData) != 5 || len(m.TopicData[2].PartitionData[4].Records.Bytes) != 100 {
			t.Errorf("Produce v%d decoded wrongly: %d topics", version, len(m.TopicData))
		}
	}
	for _, version := range []int16{13, 15, 16} {
		var m FetchResponse
		var w wire.Writer
		encode := func() {
			w.Reset()
			frame := w.BeginFrame()
			h := wire.ResponseHeader{CorrelationID: 9}
			h.Encode(&w, 1)
			fetchResponse(&m, 3, 5)
			m.Encode(&w, version)
			if size := w.EndFrame(frame); w.Err != nil || size != len(w.B)-4+15*64<<10 {
				t.Fatal(size, w.Err)
			}
		}
		encode()
		if n := testing.AllocsPerRun(100, encode); n != 0 {
			t.Errorf("encoding Fetch v%d: %v allocations", version, n)
		}
		if len(w.Cuts) != 15 {
			t.Errorf("Fetch v%d: %d cuts", version, len(w.Cuts))
		}
	}
}

func BenchmarkDecodeProduce(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			body := produceBody(b, 9, 1, partitions, 100)
			var m ProduceRequest
			var r wire.Reader
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(body)
				m.Decode(&r, 9)
			}
			if r.Err() != nil {
				b.Fatal(r.Err())
			}
		})
	}
}

func BenchmarkEncodeFetch(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			var m FetchResponse
			var w wire.Writer
			fetchResponse(&m, 1, partitions)
			b.ReportAllocs()
			for b.Loop() {
				w.Reset()
				m.Encode(&w, 16)
			}
			if w.Err != nil {
				b.Fatal(w.Err)
			}
		})
	}
}
