package group

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// The scripts in testdata/consumer were recorded from Apache Kafka 3.7.2 with the consumer protocol on (session timeout 3 s, heartbeat
// interval 1 s, at most 5 members): requests, answers and what each of them wrote to __consumer_offsets.

type scriptTopic struct {
	Name, ID   string
	Partitions int32
}

type scriptRecord struct {
	Key   string
	Value *string
}

type scriptStep struct {
	Note     string
	Topic    *scriptTopic // created or grown to that many partitions; deleted with 0
	WaitMs   int
	API      int16
	Version  int16
	Client   string
	Request  string
	Response string
	Records  []scriptRecord
}

type consumerScript struct {
	Name, Settles string
	Steps         []scriptStep
}

func loadScripts(t *testing.T) (list []consumerScript) {
	files, err := filepath.Glob("testdata/consumer/*.json*")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, name := range files {
		var s consumerScript
		if err := readScript(name, &s); err != nil {
			t.Fatal(name, err)
		}
		list = append(list, s)
	}
	return list
}

func readScript(name string, s *consumerScript) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	from := io.Reader(f)
	if strings.HasSuffix(name, ".gz") {
		if from, err = gzip.NewReader(f); err != nil {
			return err
		}
	}
	return json.NewDecoder(from).Decode(s)
}

// arbitrary are scripts in which Apache's choice follows the order of its hash tables. TestTargetsAsApache looks at what they have in common
// with ours.
var arbitrary = []string{"assignor-range", "growth-two", "targets"}

// world is the topics of a test.
type world map[string]topicMetadata

func (w world) Topic(name string) (wire.UUID, int32, bool) {
	t, ok := w[name]
	return t.id, t.partitions, ok
}

func (w world) Same(other Topics) bool {
	return reflect.ValueOf(w).Pointer() == reflect.ValueOf(other).Pointer()
}

// consumerFake is a fake with the consumer protocol on.
type consumerFake struct {
	*fake
	world world
}

func newConsumerFake(t testing.TB) *consumerFake {
	f := &consumerFake{fake: newFake(t), world: world{}}
	uniform, err := AssignorsOf([]string{"org.apache.kafka.coordinator.group.assignor.UniformAssignor", "org.apache.kafka.coordinator.group.assignor.RangeAssignor"})
	if err != nil {
		t.Fatal(err)
	}
	f.cfg.Consumer = &ConsumerConfig{SessionTimeout: 3 * time.Second, HeartbeatInterval: time.Second, MaxSize: 5, Assignors: uniform,
		Topics: func() Topics { return f.world }}
	f.open()
	return f
}

// topic makes, grows or (0) deletes a topic.
func (f *consumerFake) topic(name string, id wire.UUID, n int32) {
	w := world{}
	for k, v := range f.world {
		w[k] = v
	}
	f.topics[name] = int(n)
	if w[name] = (topicMetadata{id, n}); n == 0 {
		delete(w, name)
	}
	f.world = w
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serve runs one request of a script.
func (f *consumerFake) serve(st *scriptStep, request []byte) (p api.Message) {
	client := Client{ID: st.Client, Host: "/127.0.0.1"}
	decode := func(q api.Message) {
		r := wire.NewReader(request)
		if q.Decode(&r, st.Version); r.Failed() || r.Rest() > 0 {
			f.t.Fatalf("%s: %v", st.Note, r.Err())
		}
	}
	switch st.API {
	case api.KeyConsumerGroupHeartbeat:
		var q api.ConsumerGroupHeartbeatRequest
		decode(&q)
		f.run(f.s.ConsumerHeartbeat(&q, client, f.now, func(a *api.ConsumerGroupHeartbeatResponse) { p = a }))
	case api.KeyConsumerGroupDescribe:
		var q api.ConsumerGroupDescribeRequest
		decode(&q)
		p = &api.ConsumerGroupDescribeResponse{Groups: []api.ConsumerGroupDescribeResponseDescribedGroup{f.s.ConsumerDescribe(q.GroupIds[0])}}
	case api.KeyDescribeGroups:
		var q api.DescribeGroupsRequest
		decode(&q)
		p = &api.DescribeGroupsResponse{Groups: []api.DescribeGroupsResponseDescribedGroup{f.s.Describe(q.Groups[0])}}
	case api.KeyListGroups:
		var q api.ListGroupsRequest
		decode(&q)
		p = &api.ListGroupsResponse{Groups: f.s.List(q.StatesFilter)}
	case api.KeyDeleteGroups:
		var q api.DeleteGroupsRequest
		decode(&q)
		id := cloned(q.GroupsNames[0])
		p = &api.DeleteGroupsResponse{Results: []api.DeleteGroupsResponseDeletableGroupResult{{GroupId: id, ErrorCode: f.deleteGroup(id)}}}
	case api.KeyOffsetFetch:
		var q api.OffsetFetchRequest
		decode(&q)
		p = &api.OffsetFetchResponse{Groups: []api.OffsetFetchResponseOffsetFetchResponseGroup{f.s.Fetch(&q.Groups[0], q.RequireStable)}}
	default:
		p = f.change(st, decode, client)
	}
	return p
}

// change runs the requests of a script that write, but for those of the consumer protocol.
func (f *consumerFake) change(st *scriptStep, decode func(api.Message), client Client) (p api.Message) {
	switch st.API {
	case api.KeyOffsetCommit:
		var q api.OffsetCommitRequest
		decode(&q)
		f.run(f.s.Commit(&q, f.now, func(a *api.OffsetCommitResponse) { p = a }))
	case api.KeyTxnOffsetCommit:
		var q api.TxnOffsetCommitRequest
		decode(&q)
		f.run(f.s.TxnCommit(&q, f.now, func(a *api.TxnOffsetCommitResponse) { p = a }))
	case api.KeyOffsetDelete:
		var q api.OffsetDeleteRequest
		decode(&q)
		f.run(f.s.DeleteOffsets(&q, f.now, func(a *api.OffsetDeleteResponse) { p = a }))
	case api.KeyJoinGroup:
		var q api.JoinGroupRequest
		decode(&q)
		f.run(f.s.Join(&q, client, st.Version, f.now, func(a *api.JoinGroupResponse) { p = a }))
	case api.KeySyncGroup:
		var q api.SyncGroupRequest
		decode(&q)
		f.run(f.s.Sync(&q, st.Version, f.now, func(a *api.SyncGroupResponse) { p = a }))
	case api.KeyHeartbeat:
		var q api.HeartbeatRequest
		decode(&q)
		p = &api.HeartbeatResponse{ErrorCode: f.s.Heartbeat(&q, f.now)}
	case api.KeyLeaveGroup:
		var q api.LeaveGroupRequest
		decode(&q)
		f.run(f.s.Leave(&q, st.Version, f.now, func(a *api.LeaveGroupResponse) { p = a }))
	default:
		f.t.Fatalf("api %d in a script", st.API)
	}
	return p
}

// plain brings an answer into a form that can be compared: texts are ours, and lists that Apache keeps in hash tables are put in order.
func plain(p api.Message) any {
	switch p := p.(type) {
	case *api.ConsumerGroupHeartbeatResponse:
		p.ErrorMessage.String = ""
		if p.Assignment != nil {
			slices.SortFunc(p.Assignment.TopicPartitions, func(a, b api.ConsumerGroupHeartbeatResponseTopicPartitions) int {
				return compareID(a.TopicId, b.TopicId)
			})
		}
	case *api.ConsumerGroupDescribeResponse:
		for i := range p.Groups {
			slices.SortFunc(p.Groups[i].Members, func(a, b api.ConsumerGroupDescribeResponseMember) int { return strings.Compare(a.MemberId, b.MemberId) })
			for j := range p.Groups[i].Members {
				m := &p.Groups[i].Members[j]
				for _, a := range []*api.ConsumerGroupDescribeResponseAssignment{&m.Assignment, &m.TargetAssignment} {
					slices.SortFunc(a.TopicPartitions, func(a, b api.ConsumerGroupDescribeResponseTopicPartitions) int {
						return compareID(a.TopicId, b.TopicId)
					})
				}
			}
		}
	case *api.JoinGroupResponse:
		if p.ErrorCode == api.ErrMemberIdRequired {
			p.MemberId = ""
		}
	}
	return p
}

// compare looks whether an answer is Apache's; both have gone over the wire.
func (f *consumerFake) compare(st *scriptStep, got api.Message) {
	f.t.Helper()
	if got == nil {
		f.t.Fatalf("%s: no answer", st.Note)
	}
	fresh := func() api.Message { return reflect.New(reflect.TypeOf(got).Elem()).Interface().(api.Message) }
	want, own := fresh(), fresh()
	r := wire.NewReader(unhex(f.t.(*testing.T), st.Response))
	want.Decode(&r, st.Version)
	var w wire.Writer
	got.Encode(&w, st.Version)
	o := wire.NewReader(w.B)
	own.Decode(&o, st.Version)
	if r.Failed() || o.Failed() {
		f.t.Fatal(r.Err(), o.Err())
	}
	if c, ok := want.(*api.OffsetCommitResponse); ok && st.Version < 9 {
		for i := range c.Topics {
			for j := range c.Topics[i].Partitions { // which version may be told of it is for whoever knows the version
				if code := &c.Topics[i].Partitions[j].ErrorCode; *code == api.ErrUnsupportedVersion {
					*code = api.ErrStaleMemberEpoch
				}
			}
		}
	}
	a, _ := json.Marshal(plain(want))
	b, _ := json.Marshal(plain(own))
	if !bytes.Equal(a, b) {
		f.t.Errorf("%s:\n got %s\nwant %s", st.Note, b, a)
	}
}

// consumerOnly are the records of consumer groups among some, in a form that can be compared: within one operation the order of members is
// that of their ids, and the topics within a value are in the order of their ids.
func consumerOnly(t *testing.T, list []coordinator.Entry) (out []string) {
	for _, e := range list {
		r := wire.NewReader(e.Key)
		version := r.Int16()
		if version < firstConsumerKeyVersion {
			continue
		}
		value := "-"
		if e.Value != nil {
			value = hex.EncodeToString(inOrder(t, version, e.Value))
		}
		out = append(out, hex.EncodeToString(e.Key)+"="+value)
	}
	from := 0 // targets of several members stand together
	for i := 0; i <= len(out); i++ {
		if i == len(out) || !strings.HasPrefix(out[i], "0007") {
			slices.Sort(out[from:i])
			from = i + 1
		}
	}
	return out
}

// inOrder sorts the topics within a value. A value with at most one topic stays as it is, byte by byte.
func inOrder(t *testing.T, key int16, value []byte) []byte {
	var m api.Message
	var sort func() bool
	switch key {
	case topicsKeyVersion:
		v := new(api.ConsumerGroupPartitionMetadataValue)
		m, sort = v, func() bool {
			slices.SortFunc(v.Topics, func(a, b api.ConsumerGroupPartitionMetadataValueTopicMetadata) int {
				return strings.Compare(a.TopicName, b.TopicName)
			})
			return len(v.Topics) > 1
		}
	case targetKeyVersion:
		v := new(api.ConsumerGroupTargetAssignmentMemberValue)
		m, sort = v, func() bool {
			slices.SortFunc(v.TopicPartitions, func(a, b api.ConsumerGroupTargetAssignmentMemberValueTopicPartition) int {
				return compareID(a.TopicId, b.TopicId)
			})
			return len(v.TopicPartitions) > 1
		}
	case currentKeyVersion:
		v := new(api.ConsumerGroupCurrentMemberAssignmentValue)
		m, sort = v, func() bool {
			most := 0
			for _, l := range [][]api.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions{v.AssignedPartitions, v.PartitionsPendingRevocation, v.PartitionsPendingAssignment} {
				slices.SortFunc(l, func(a, b api.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions) int {
					return compareID(a.TopicId, b.TopicId)
				})
				most = max(most, len(l))
			}
			return most > 1
		}
	default:
		return value
	}
	if _, err := read(value, m); err != nil {
		t.Fatal(err)
	}
	if !sort() {
		return value
	}
	var a arena
	return a.put(consumerValueVersion, m)
}

// TestConsumerAsApache plays what was recorded: every answer is equal, and every operation writes the same records.
func TestConsumerAsApache(t *testing.T) {
	for _, s := range loadScripts(t) {
		if slices.Contains(arbitrary, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			f := newConsumerFake(t)
			for i := range s.Steps {
				st := &s.Steps[i]
				from := len(f.log)
				switch {
				case st.Topic != nil:
					id, err := base64.StdEncoding.DecodeString(st.Topic.ID)
					if err != nil {
						t.Fatal(err)
					}
					f.topic(st.Topic.Name, wire.UUID(id), st.Topic.Partitions)
				case st.WaitMs > 0:
					f.pass(time.Duration(st.WaitMs) * time.Millisecond)
				case st.API == api.KeyTxnOffsetCommit && bytes.Contains(unhex(t, st.Response), []byte{0, 48}):
					continue // its early access of this coordinator cannot commit in transactions
				default:
					request := unhex(t, st.Request)
					got := f.serve(st, request)
					scramble(request)
					f.compare(st, got)
				}
				f.compareRecords(st, f.log[from:])
				if t.Failed() {
					t.Fatalf("step %d", i)
				}
			}
		})
	}
}

func (f *consumerFake) compareRecords(st *scriptStep, wrote []record) {
	f.t.Helper()
	t := f.t.(*testing.T)
	var got, want []coordinator.Entry
	for _, r := range wrote {
		got = append(got, r.entry)
	}
	for _, r := range st.Records {
		e := coordinator.Entry{Key: unhex(t, r.Key)}
		if r.Value != nil {
			e.Value = unhex(t, *r.Value)
		}
		want = append(want, e)
	}
	g, w := consumerOnly(t, got), consumerOnly(t, want)
	if !slices.Equal(g, w) {
		t.Errorf("%s: wrote\n got %s\nwant %s", st.Note, strings.Join(g, "\n     "), strings.Join(w, "\n     "))
	}
}
