package batch

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"
)

// fixture is a line of testdata/valid.jsonl or corrupt.jsonl: a record set and what Apache Kafka 3.7.2 makes of it.
type fixture struct {
	Name      string         `json:"name"`
	Hex       string         `json:"hex"`
	Batches   []fixtureBatch `json:"batches"`
	Exception string         `json:"exception"`
	Phase     string         `json:"phase"`
	Produce   map[string]struct {
		Error        string `json:"error"`
		HasMessage   bool   `json:"has_message"`
		StoredHex    string `json:"stored_hex"`
		StoredAsSent bool   `json:"stored_as_sent"`
	} `json:"produce"`
}

type fixtureBatch struct {
	BaseOffset    int64           `json:"base_offset"`
	BatchLength   int32           `json:"batch_length"`
	LeaderEpoch   int32           `json:"partition_leader_epoch"`
	Magic         int8            `json:"magic"`
	CRC           uint32          `json:"crc"`
	Attributes    int32           `json:"attributes"`
	LastDelta     int32           `json:"last_offset_delta"`
	BaseTimestamp int64           `json:"base_timestamp"`
	MaxTimestamp  int64           `json:"max_timestamp"`
	ProducerID    int64           `json:"producer_id"`
	ProducerEpoch int16           `json:"producer_epoch"`
	BaseSequence  int32           `json:"base_sequence"`
	Count         int32           `json:"record_count"`
	Size          int             `json:"size_in_bytes"`
	LastOffset    int64           `json:"last_offset"`
	TimestampType string          `json:"timestamp_type"`
	Transactional bool            `json:"transactional"`
	Control       bool            `json:"control"`
	Compression   string          `json:"compression"`
	DeleteHorizon *int64          `json:"delete_horizon_ms"`
	Records       []fixtureRecord `json:"records"`
}

type fixtureRecord struct {
	Offset    int64           `json:"offset"`
	Timestamp int64           `json:"timestamp"`
	Key       []byte          `json:"key"`
	Value     []byte          `json:"value"`
	Headers   []fixtureHeader `json:"headers"`
}

type fixtureHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// String shows a batch without pointers, for comparing.
func (b fixtureBatch) String() string { return fmt.Sprintf("%#v", b) }

func (f *fixture) bytes(t testing.TB) []byte { return unhex(t, f.Hex) }

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loaded keeps what fixtures has parsed; its bytes are hex and cannot be changed by a test.
var loaded sync.Map

func fixtures(t testing.TB, file string) []fixture {
	t.Helper()
	if all, ok := loaded.Load(file); ok {
		return all.([]fixture)
	}
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []fixture
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var x fixture
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	loaded.Store(file, all)
	return all
}

// named returns the bytes of one valid record set.
func named(t testing.TB, name string) []byte {
	t.Helper()
	for _, f := range fixtures(t, "valid.jsonl") {
		if f.Name == name {
			return f.bytes(t)
		}
	}
	t.Fatalf("no record set %q", name)
	return nil
}

var errorCodes = map[string]int16{
	"NONE": 0, "UNKNOWN_SERVER_ERROR": -1, "CORRUPT_MESSAGE": 2, "INVALID_RECORD": 87,
}

// TestFixturesProduceV9 puts every record set to Validate and compares with the answer of Apache's Produce v9.
func TestFixturesProduceV9(t *testing.T) {
	rules := DefaultRules()
	rules.FullCompressed = true
	inf := NewInflater(1 << 20)
	counts := map[string]int{}
	for _, file := range []string{"valid.jsonl", "corrupt.jsonl"} {
		for _, f := range fixtures(t, file) {
			want := f.Produce["v9"]
			if want.Error == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" {
				// The server's check of the transactional bit, which comes before any of ours.
				counts["skipped"]++
				continue
			}
			counts[want.Error]++
			code, ok := errorCodes[want.Error]
			if !ok {
				t.Fatalf("%s: unexpected %s", f.Name, want.Error)
			}
			set := f.bytes(t)
			info, rej := Validate(set, &rules, &Env{NowMs: 1_700_000_000_000, ProduceVersion: 9, Inflater: inf})
			if code != 0 {
				if rej == nil || rej.Code != code {
					t.Errorf("%s: got %v, want %d", f.Name, rej, code)
				} else if got := rej.Message != ""; got != want.HasMessage {
					t.Errorf("%s: message %q, want one: %v", f.Name, rej.Message, want.HasMessage)
				}
				continue
			}
			if rej != nil {
				t.Errorf("%s: %v", f.Name, rej)
				continue
			}
			stored := unhex(t, want.StoredHex)
			if want.StoredAsSent {
				stored = f.bytes(t)
			}
			v := View(set[:info.Size])
			v.SetPartitionLeaderEpoch(View(stored).PartitionLeaderEpoch())
			if !bytes.Equal(v, stored) {
				t.Errorf("%s: stored\n%x, want\n%x", f.Name, []byte(v), stored)
			}
			if int(info.Size) != len(stored) || info.MaxTimestamp != View(stored).MaxTimestamp() {
				t.Errorf("%s: info %+v", f.Name, info)
			}
		}
	}
	// The fixtures' own mix: a set that is silently left out would change it.
	want := map[string]int{"NONE": 43, "CORRUPT_MESSAGE": 22, "INVALID_RECORD": 114, "UNKNOWN_SERVER_ERROR": 20, "skipped": 7}
	if !maps.Equal(counts, want) {
		t.Errorf("answers %v, want %v", counts, want)
	}
}
