package txn

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// The transcripts of package server/transcripts hold the bytes of what an Apache Kafka 3.7.2 answered. Here the coordinator's part of
// them is played to a shard: everything that topics, logs and groups have no part in.
const transcripts = "../transcripts/testdata"

type transcriptStep struct {
	Note                    string
	Key, Version            int16
	RequestHex, ResponseHex string
	Until                   map[string]any
	WaitMs                  int
	Restart                 bool
	API                     string
}

func TestTranscripts(t *testing.T) {
	played := 0
	files, err := filepath.Glob(transcripts + "/transactions/*.json")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, transcripts+"/restart/restart-open-transaction.json", transcripts+"/restart/restart-pending-txn-offsets.json")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var scenario struct{ Steps []transcriptStep }
			if err := json.Unmarshal(b, &scenario); err != nil {
				t.Fatal(err)
			}
			f := newFake(t)
			for i := range scenario.Steps {
				played += f.play(&scenario.Steps[i])
			}
		})
	}
	want(t, "steps of the coordinator played", played, 207)
}

// play plays a step, and says whether it was one of the coordinator's.
func (f *fake) play(s *transcriptStep) int {
	switch {
	case s.WaitMs > 0:
		f.pass(time.Duration(s.WaitMs) * time.Millisecond)
		f.sweep()
		f.markAll()
		return 0
	case s.Restart:
		f.crash(0)
		f.pass(0)
		return 0
	}
	var served bool
	switch s.Key {
	case api.KeyInitProducerId:
		var q api.InitProducerIdRequest
		var p api.InitProducerIdResponse
		s.decode(f.t, &q, &p)
		if served = q.TransactionalId.Valid; served {
			f.playInit(s, &q, &p)
		}
	case api.KeyAddPartitionsToTxn:
		served = f.playAdd(s)
	case api.KeyAddOffsetsToTxn:
		var q api.AddOffsetsToTxnRequest
		var p, got api.AddOffsetsToTxnResponse
		s.decode(f.t, &q, &p)
		f.run(f.s.AddOffsets(&q, s.Version, Partition{"__consumer_offsets", 0}, f.now, func(a *api.AddOffsetsToTxnResponse) { got = *a }))
		s.same(f.t, &got, &p)
		served = true
	case api.KeyEndTxn:
		var q api.EndTxnRequest
		var p, got api.EndTxnResponse
		s.decode(f.t, &q, &p)
		f.run(f.s.EndTxn(&q, s.Version, f.now, func(a *api.EndTxnResponse) { got = *a }))
		f.markAll()
		s.same(f.t, &got, &p)
		served = true
	case api.KeyDescribeTransactions:
		var q api.DescribeTransactionsRequest
		var p, got api.DescribeTransactionsResponse
		s.decode(f.t, &q, &p)
		for i, id := range q.TransactionalIds {
			d := f.s.Describe(id)
			if d.TransactionStartTimeMs > 0 && p.TransactionStates[i].TransactionStartTimeMs > 0 {
				d.TransactionStartTimeMs = p.TransactionStates[i].TransactionStartTimeMs
			}
			got.TransactionStates = append(got.TransactionStates, d)
			for j := range p.TransactionStates[i].Topics { // in no order
				slices.Sort(p.TransactionStates[i].Topics[j].Partitions)
			}
		}
		s.same(f.t, &got, &p)
		served = true
	case api.KeyListTransactions:
		var q api.ListTransactionsRequest
		var p, got api.ListTransactionsResponse
		s.decode(f.t, &q, &p)
		got.UnknownStateFilters, got.TransactionStates = UnknownStates(q.StateFilters), f.s.List(&q)
		s.same(f.t, &got, &p)
		served = true
	}
	if served {
		return 1
	}
	return 0
}

// playInit repeats an InitProducerId that the transcript repeats.
func (f *fake) playInit(s *transcriptStep, q *api.InitProducerIdRequest, p *api.InitProducerIdResponse) {
	var got api.InitProducerIdResponse
	for range 3 {
		f.run(f.s.InitProducerID(q, s.Version, func() (int64, api.ErrorCode) { return p.ProducerId, api.ErrNone }, f.now,
			func(a *api.InitProducerIdResponse) { got = *a }))
		f.markAll()
		if s.Until == nil || got.ErrorCode == api.ErrNone {
			break
		}
	}
	s.same(f.t, &got, p)
}

// playAdd plays AddPartitionsToTxn, unless it names partitions that do not exist.
func (f *fake) playAdd(s *transcriptStep) bool {
	var q api.AddPartitionsToTxnRequest
	var p, got api.AddPartitionsToTxnResponse
	s.decode(f.t, &q, &p)
	if hasCode(p.ResultsByTopicV3AndBelow, api.ErrUnknownTopicOrPartition) {
		return false
	}
	results := func(topics []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic, code func(Partition) api.ErrorCode) (all []api.AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult) {
		for _, t := range topics {
			r := api.AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult{Name: t.Name}
			for _, index := range t.Partitions {
				r.ResultsByPartition = append(r.ResultsByPartition, api.AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult{
					PartitionIndex: index, PartitionErrorCode: ForVersion(s.Key, s.Version, code(Partition{t.Name, index}))})
			}
			all = append(all, r)
		}
		return all
	}
	serve := func(id string, who coordinator.Producer, verify bool, topics []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic) []api.AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult {
		if !verify {
			var code api.ErrorCode
			f.run(f.s.AddPartitions(id, who, topics, f.now, func(c api.ErrorCode) { code = c }))
			return results(topics, func(Partition) api.ErrorCode { return code })
		}
		all := inOrder(topics)
		v := f.verify(id, who, nil, all...).got()
		return results(topics, func(p Partition) api.ErrorCode {
			if v.code != api.ErrNone {
				return v.code
			}
			return v.each[slices.Index(all, p)]
		})
	}
	got.ResultsByTopicV3AndBelow = serveOld(s, &q, serve)
	for i := range q.Transactions {
		x := &q.Transactions[i]
		got.ResultsByTransaction = append(got.ResultsByTransaction, api.AddPartitionsToTxnResponseAddPartitionsToTxnResult{TransactionalId: x.TransactionalId,
			TopicResults: serve(x.TransactionalId, coordinator.Producer{ID: x.ProducerId, Epoch: x.ProducerEpoch}, x.VerifyOnly, x.Topics)})
	}
	s.same(f.t, &got, &p)
	return true
}

func serveOld(s *transcriptStep, q *api.AddPartitionsToTxnRequest, serve func(string, coordinator.Producer, bool, []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic) []api.AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult) []api.AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult {
	if s.Version > 3 {
		return nil
	}
	return serve(q.V3AndBelowTransactionalId, coordinator.Producer{ID: q.V3AndBelowProducerId, Epoch: q.V3AndBelowProducerEpoch}, false, q.V3AndBelowTopics)
}

func hasCode(all []api.AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult, code api.ErrorCode) bool {
	for _, t := range all {
		for _, p := range t.ResultsByPartition {
			if p.PartitionErrorCode == code {
				return true
			}
		}
	}
	return false
}

// markAll writes all markers.
func (f *fake) markAll() {
	for len(f.works) > 0 {
		f.mark()
	}
	f.pass(0)
}

// decode reads what was on the wire.
func (s *transcriptStep) decode(t testing.TB, q, p api.Message) {
	t.Helper()
	flexible := api.Facts[s.Key].Flexible(s.Version)
	bytes := func(h string) wire.Reader {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		return wire.NewReader(b)
	}
	r := bytes(s.RequestHex)
	want(t, "key and version", fmt.Sprint(r.Int16(), r.Int16()), fmt.Sprint(s.Key, s.Version))
	r.Int32()
	r.NullString(false, true)
	if flexible {
		r.UnknownTags(nil)
	}
	q.Decode(&r, s.Version)
	if r.Failed() || r.Rest() > 0 {
		t.Fatalf("%s: %v", s.RequestHex, r.Err())
	}
	r = bytes(s.ResponseHex)
	r.Int32()
	if flexible {
		r.UnknownTags(nil)
	}
	p.Decode(&r, s.Version)
	if r.Failed() || r.Rest() > 0 {
		t.Fatalf("%s: %v", s.ResponseHex, r.Err())
	}
}

// same compares an answer with Apache's, as bytes. The throttle time is 0 in both.
func (s *transcriptStep) same(t testing.TB, got, apache api.Message) {
	t.Helper()
	var a, b wire.Writer
	got.Encode(&a, s.Version)
	apache.Encode(&b, s.Version)
	if a.Err != nil || b.Err != nil || !slices.Equal(a.B, b.B) {
		t.Fatalf("%s v%d (%s): %+v, Apache %+v", s.API, s.Version, s.Note, got, apache)
	}
}
