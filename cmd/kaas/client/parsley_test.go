package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/cmd/kaas/cli"
	"kaas/codec/parsley"
	"kaas/codec/wire"
)

// Worked examples of the wire.
const (
	idA    = "01020304-0506-0708-090a-0b0c0d0e0f10"
	idS    = "11121314-1516-1718-191a-1b1c1d1e1f20"
	hexA   = "0102030405060708090a0b0c0d0e0f10"
	hexS   = "1112131415161718191a1b1c1d1e1f20"
	clock0 = "010000000000000000"
	clock2 = "0100000001" + hexA + "00000007000000000000002a00000001" + hexA + "00000007" + hexS + "0000000000000009"
	heldS  = "0000000000000001000000000000007b01" + hexS + "000000000000000a00000025" + "0100000001" + hexA + "00000001000000000000000500000000" + "000000020a0b000000010c"
	claims = `[{"topicId":"AQIDBAUGBwgJCgsMDQ4PEA","uuid":"` + idA + `","partition":7,"offset":42},` +
		`{"topicId":"AQIDBAUGBwgJCgsMDQ4PEA","uuid":"` + idA + `","partition":7,"sender":"` + idS + `","sequence":9}]`
)

func unhex(t *testing.T, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func base64Of(t *testing.T, digits string) string {
	t.Helper()
	return base64.StdEncoding.EncodeToString(unhex(t, digits))
}

func TestParsleyDecode(t *testing.T) {
	s := session{t: t}
	key := func(prefix, rest, of, fields string) string {
		return `{"kind":"store entry","key":"` + prefix + idA + `:7` + rest + `","of":"` + of + `","topicId":"AQIDBAUGBwgJCgsMDQ4PEA","partition":7,` + fields + `}`
	}
	held := `"offset":1,"timestamp":123,"sender":"` + idS + `","sequence":10,"%sBase64":"Cgs=","value":"\f","headers":%s,"claims":[{"topicId":"AQIDBAUGBwgJCgsMDQ4PEA","uuid":"` + idA + `","partition":1,"offset":5}]`
	heldOf := func(key, headers string) string {
		return strings.Replace(fmt.Sprintf(held, key, headers), key+`Base64":"Cgs="`, key+`":"\n\u000b"`, 1)
	}
	for _, c := range []struct{ args, want string }{
		{clock0, `{"kind":"clock","bytes":9,"claims":[]}`},
		{strings.ToUpper(clock2), `{"kind":"clock","bytes":81,"claims":` + claims + `}`},
		{base64Of(t, clock2), `{"kind":"clock","bytes":81,"claims":` + claims + `}`},
		{"--as vc " + strings.TrimRight(base64Of(t, clock0), "="), `{"kind":"clock","bytes":9,"claims":[]}`},
		{"--as vc-sender " + hexS, `{"kind":"vc-sender","sender":"` + idS + `"}`},
		{"--as vc-seq AAAAAAAAAAk=", `{"kind":"vc-seq","sequence":9}`},
		{"--as vc-seq --parity ffffffffffffffff", `{"kind":"vc-seq","sequence":-1}`},
		{"--as vc-sender --encoding base64 " + strings.Repeat("A", 22), `{"kind":"vc-sender","sender":"00000000-0000-0000-0000-000000000000"}`},
		{"--as tick 00000003", `{"kind":"tick key","partition":3}`},
		{"--as fold 00", `{"kind":"fold key","tick":false,"key":null}`},
		{"--as fold 01", `{"kind":"fold key","tick":false,"key":""}`},
		{"--as fold 01ff", `{"kind":"fold key","tick":false,"keyBase64":"/w=="}`},
		{"--as fold 02", `{"kind":"fold key","tick":true}`},
		{"ca", `{"kind":"store key","key":"ca","of":"carried ancestry"}`},
		{"q/" + idA + ":7/e/000000000000000a", `{"kind":"store key","key":"q/` + idA + `:7/e/000000000000000a","of":"held record","topicId":"AQIDBAUGBwgJCgsMDQ4PEA","partition":7,"index":10}`},
		{"--as key " + hex.EncodeToString([]byte("scope")), `{"kind":"store key","key":"scope","of":"scope"}`},
		{heldS, `{"kind":"held record",` + heldOf("key", "[]") + `}`},
		{heldS + "00000001000000016100000001ff", `{"kind":"held record",` + heldOf("key", `[{"key":"a","value":null,"valueBase64":"/w=="}]`) + `}`},
		{"f/" + idA + ":7 0000000000000029", key("f/", "", "frontier", `"offset":41`)},
		{"sq/" + idA + ":7 0000000000000000", key("sq/", "", "send sequence", `"sequence":0`)},
		{"q/" + idA + ":7/m 00000000000000010000000000000003", key("q/", "/m", "hold queue", `"head":1,"tail":3,"held":2`)},
		{"ds/" + idA + ":7/" + idS + " AAAAAAAAAAkAAAAAAAAAZA==", key("ds/", "/"+idS, "delivered mark", `"sender":"`+idS+`","sequence":9,"offset":100`)},
		{"cc/" + idA + ":7 " + clock2, key("cc/", "", "advertised clock", `"bytes":81,"claims":`+claims)},
		{"q/" + idA + ":7/e/0000000000000001 " + heldS, key("q/", "/e/0000000000000001", "held record", `"index":1,`+heldOf("recordKey", "[]"))},
		{"ca " + clock0, `{"kind":"store entry","key":"ca","of":"carried ancestry","bytes":9,"claims":[]}`},
		{"scope 00000001" + hexA + "0000000700000001" + hexS, `{"kind":"store entry","key":"scope","of":"scope","channels":[{"topicId":"AQIDBAUGBwgJCgsMDQ4PEA","uuid":"` + idA + `","partition":7}],"sinks":[{"topicId":"ERITFBUWFxgZGhscHR4fIA","uuid":"` + idS + `"}]}`},
	} {
		s.want("", c.want+"\n", append([]string{"parsley", "decode", "--json"}, strings.Fields(c.args)...)...)
	}
	s.want(clock0[:4]+"\n "+clock0[4:]+"\n", `{"kind":"clock","bytes":9,"claims":[]}`+"\n", "parsley", "decode", "--json", "-")
	s.want(" "+clock0+"\n", `{"kind":"store entry","key":"ca","of":"carried ancestry","bytes":9,"claims":[]}`+"\n", "parsley", "decode", "--json", "ca", "-")
}

func TestParsleyText(t *testing.T) {
	s := session{t: t}
	s.want("", `kind    clock
bytes   81
claims  2

CLAIM     UP TO  PARTITION  TOPIC  TOPIC ID                UUID                                  SENDER
offset    42     7          ?      AQIDBAUGBwgJCgsMDQ4PEA  `+idA+`  any
sequence  9      7          ?      AQIDBAUGBwgJCgsMDQ4PEA  `+idA+`  `+idS+"\n", "parsley", "decode", clock2)
	s.want("", "kind    clock\nbytes   9\nclaims  0\n", "parsley", "decode", clock0)
	s.want("", `kind       held record
offset     1
timestamp  123
key        "\n\v"
value      null
header a   "1"
header b   null
claims     0
`, "parsley", "decode", "0000000000000001000000000000007b"+"00"+strings.Repeat("00", 16)+"ffffffffffffffff"+"00000009"+clock0+"000000020a0b"+"ffffffff"+"00000002"+"00000001610000000131"+"0000000162ffffffff")
	s.want("", `kind      store entry
key       scope
of        scope
channels  1
sinks     1

CHANNELS     TOPIC  TOPIC ID                UUID
partition 7  ?      AQIDBAUGBwgJCgsMDQ4PEA  `+idA+`

SINKS          TOPIC  TOPIC ID                UUID
partition all  ?      ERITFBUWFxgZGhscHR4fIA  `+idS+"\n", "parsley", "decode", "--as", "entry", "scope", "00000001"+hexA+"0000000700000001"+hexS)
}

func TestParsleyErrors(t *testing.T) {
	s := session{t: t}
	for _, c := range []struct {
		args string
		code int
		said string
	}{
		{"", cli.BadUsage, "nothing to decode"},
		{"a b c", cli.BadUsage, "accepts at most 2 arg(s)"},
		{"--topic t", cli.BadUsage, "--topic wants --offset and --partition of 0 or more"},
		{"--topic t --offset 1 --partition -1", cli.BadUsage, "--topic wants --offset and --partition of 0 or more"},
		{"--topic t --offset 1 00", cli.BadUsage, `--topic and "00"`},
		{"--topic t --offset 1 --as held", cli.BadUsage, "--as held: of a record, want record, entry, tick or fold"},
		{"--offset 1 00", cli.BadUsage, "--offset and --partition want --topic"},
		{"--partition 1 00", cli.BadUsage, "--offset and --partition want --topic"},
		{"--encoding octal 00", cli.BadUsage, "--encoding octal: want hex, base64 or text"},
		{"--as clock ca 00", cli.BadUsage, "--as clock: it takes one argument"},
		{"--as entry ca", cli.BadUsage, "--as entry: it takes a key and a value"},
		{"--as record 00", cli.BadUsage, "--as record: want entry, clock, fold, held, key, tick, vc, vc-sender, vc-seq"},
		{"--as entry - -", cli.BadUsage, "standard input can be one of key and value"},
		{"--as clock 0*", cli.BadUsage, `"0*" is neither hexadecimal nor base64`},
		{"--as clock --encoding hex AAA=", cli.BadUsage, `"AAA=": encoding/hex`},
		{"--as clock 0100", cli.Failed, "parsley: corrupt clock: ends too early at byte 1"},
		{"--as clock 02000000000000", cli.Failed, "parsley: corrupt clock: unknown version at byte 0"},
		{"--as vc-sender 00", cli.Failed, "parsley: corrupt vc-sender: wrong length at byte 0"},
		{"--as vc-sender " + strings.Repeat("A", 22), cli.Failed, "parsley: corrupt vc-sender: wrong length at byte 0"}, // hexadecimal
		{"--as vc-seq ffffffffffffffff", cli.Failed, "parsley: corrupt vc-seq: negative number at byte 0"},
		{"--as tick 00", cli.Failed, "parsley: corrupt tick key: wrong length at byte 0"},
		{"--as fold 03", cli.Failed, "parsley: corrupt fold key: not a known form at byte 0"},
		{"--as key 00", cli.Failed, "parsley: corrupt store key: not a known form at byte 0"},
		{"--encoding text f/x 00", cli.Failed, "parsley: corrupt store key: not a known form at byte 2"},
		{"--as held 00", cli.Failed, "parsley: corrupt held record: ends too early at byte 1"},
		{"ca 0100", cli.Failed, "value of ca: parsley: corrupt clock: ends too early at byte 1"},
		{"scope 01", cli.Failed, "value of scope: parsley: corrupt scope: ends too early at byte 0"},
		{"f/" + idA + ":7 00", cli.Failed, "value of f/" + idA + ":7: parsley: corrupt frontier: wrong length at byte 0"},
		{"sq/" + idA + ":7 00", cli.Failed, "corrupt send sequence: wrong length"},
		{"q/" + idA + ":7/m 00", cli.Failed, "corrupt queue: wrong length"},
		{"q/" + idA + ":7/e/0000000000000000 00", cli.Failed, "corrupt held record: ends too early"},
		{"ds/" + idA + ":7/" + idS + " 00", cli.Failed, "corrupt delivered mark: wrong length"},
		{"0100", cli.Failed, "not recognised, say --as what it is: no store key; parsley: corrupt clock: ends too early at byte 1; parsley: corrupt held record: ends too early at byte 2"},
	} {
		s.fails("", c.code, c.said, append([]string{"parsley", "decode"}, strings.Fields(c.args)...)...)
	}
	// no bytes are not a deleted entry, and standard input has a bound
	s.fails("", cli.Failed, "value of ca: parsley: corrupt clock: ends too early at byte 0", "parsley", "decode", "ca", "")
	s.fails("", cli.Failed, "value of ca: parsley: corrupt clock: ends too early at byte 0", "parsley", "decode", "--encoding", "base64", "Y2E=", "")
	s.fails(strings.Repeat("0", inputMax+1), cli.Failed, "standard input has more than 16777216 characters", "parsley", "decode", "-")
	var out bytes.Buffer
	if code, stdout, _ := s.run("", "parsley", "decode", "--as", "tick", "00"); code != cli.Failed || stdout != "" {
		t.Errorf("code %d, %q: a corrupt key is printed", code, stdout)
	}
	if err := (finding{{"claims", []claimObject{}}, {"a", 1}}).write(&out); err != nil || out.String() != "claims  0\na       1\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// stamped makes the topics orders and app-stage-…: state-changelog, fold-changelog, ticks, with records that were stamped, were not, or
// are corrupt, and returns the ids of the topics. frontier is the key in the changelog.
func (s session) stamped() (ids map[string]uuid.UUID, frontier parsley.Key) {
	s.t.Helper()
	s.topic("orders", 3)
	s.topic("app-stage-state-changelog", 1)
	s.topic("app-stage-fold-changelog", 1)
	s.topic("app-stage-ticks", 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	ids = map[string]uuid.UUID{}
	for name, d := range topics {
		ids[name] = uuid.UUID(d.ID)
	}
	frontier = parsley.Key{Kind: parsley.KeyFrontier, Channel: parsley.Channel{Topic: ids["orders"], Partition: 2}}
	held := parsley.Key{Kind: parsley.KeyHeld, Channel: frontier.Channel, Index: 1}
	stamp := parsley.Stamp{Tagged: true, Sender: uuid.MustParse(idS), Sequence: 4}
	stamp.Clock.RaiseOffset(frontier.Channel, 41)
	stamp.Clock.RaiseSequence(parsley.SequenceKey{Channel: parsley.Channel{Topic: uuid.MustParse(idA), Partition: 7}, Sender: stamp.Sender}, 9)
	headers := func(s *parsley.Stamp) (hs []kgo.RecordHeader) {
		all, _ := s.AppendHeaders([]parsley.Header{{Key: "a", Value: []byte("1")}}, nil)
		for _, h := range all {
			hs = append(hs, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		return hs
	}
	for _, r := range []*kgo.Record{
		{Topic: "orders", Partition: 2, Value: []byte("plain")},
		{Topic: "orders", Partition: 2, Value: []byte("stamped"), Headers: headers(&stamp)},
		{Topic: "orders", Partition: 2, Headers: headers(&parsley.Stamp{})},
		{Topic: "orders", Partition: 2, Headers: []kgo.RecordHeader{{Key: "vc", Value: []byte{}}}},
		{Topic: "app-stage-state-changelog", Key: frontier.Append(nil), Value: parsley.AppendNumber(nil, 41)},
		{Topic: "app-stage-state-changelog", Key: frontier.Append(nil)},
		{Topic: "app-stage-state-changelog", Key: []byte("f/x"), Value: []byte("1")},
		{Topic: "app-stage-state-changelog", Key: held.Append(nil), Value: unhex(s.t, heldS)},
		{Topic: "app-stage-fold-changelog", Key: parsley.AppendFoldKey(nil, []byte("kim")), Value: []byte("10")},
		{Topic: "app-stage-fold-changelog", Key: []byte{3}},
		{Topic: "app-stage-ticks", Key: parsley.AppendTickKey(nil, 3)},
	} {
		if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
	return ids, frontier
}

// object runs a command that must print this JSON object, given in the order of the names and without the timestamp of a record.
func (s session) object(want string, args ...string) {
	s.t.Helper()
	code, out, errs := s.run("", append(args, "--json")...)
	var o map[string]any
	if err := json.Unmarshal([]byte(out), &o); code != cli.OK || err != nil {
		s.t.Fatalf("code %d, %s, %s, %v", code, out, errs, err)
	}
	if _, ok := o["timestamp"].(float64); !ok && o["kind"] == "record" {
		s.t.Errorf("no timestamp: %s", out)
	}
	delete(o, "timestamp")
	if b, err := json.Marshal(o); string(b) != want || err != nil {
		s.t.Errorf("%s, %v\nwant %s", b, err, want)
	}
}

// TestParsleyFromTopic: what a producer stamped is read back from a broker, with the names of topics.
func TestParsleyFromTopic(t *testing.T) {
	s := session{t, broker(t)}
	ids, frontier := s.stamped()
	orders, changelog := wire.UUID(ids["orders"]).String(), "app-stage-state-changelog"
	read := func(topic string, partition, offset int, more ...string) []string {
		return append([]string{"parsley", "decode", "--topic", topic, "--partition", fmt.Sprint(partition), "--offset", fmt.Sprint(offset)}, more...)
	}
	at := func(offset int) string {
		return fmt.Sprintf(`"kind":"record","offset":%d,"partition":2,`, offset)
	}
	named := `"topic":"orders","topicId":"` + orders + `"}`
	s.object(`{`+at(0)+`"stamp":null,`+named, read("orders", 2, 0)...)
	s.object(`{"claims":[{"offset":41,"partition":2,"topic":"orders","topicId":"`+orders+`","uuid":"`+ids["orders"].String()+`"},`+
		`{"partition":7,"sender":"`+idS+`","sequence":9,"topicId":"AQIDBAUGBwgJCgsMDQ4PEA","uuid":"`+idA+`"}],`+
		at(1)+`"sender":"`+idS+`","sequence":4,`+named, read("orders", 2, 1)...)
	s.object(`{"claims":[],`+at(2)+named, read("orders", 2, 2)...)
	s.fails("", cli.Failed, "topic orders, partition 2, offset 3: parsley: corrupt clock: ends too early at byte 0", read("orders", 2, 3)...)
	s.fails("", cli.Failed, "topic orders, partition 2: no record at offset 4: ", read("orders", 2, 4)...)
	s.fails("", cli.Failed, "partition 2: offset 5 is out of range, it has 0 to 4", read("orders", 2, 5)...)
	s.fails("", cli.Failed, "topic orders has no partition 3, but 3 partitions", read("orders", 3, 0)...)
	s.fails("", cli.Failed, "topic none: UNKNOWN_TOPIC_OR_PARTITION", read("none", 0, 0)...)

	entry := `"key":"` + frontier.String() + `","kind":"store entry","of":"frontier",`
	s.object(`{`+entry+`"offset":41,"partition":2,`+named, read(changelog, 0, 0)...)
	s.object(`{"deleted":true,`+entry+`"partition":2,`+named, read(changelog, 0, 1)...)
	s.fails("", cli.Failed, "topic app-stage-state-changelog, partition 0, offset 2: parsley: corrupt store key: ", read(changelog, 0, 2)...)
	s.object(`{"kind":"record","offset":0,"partition":0,"stamp":null,"topic":"app-stage-state-changelog","topicId":"`+wire.UUID(ids[changelog]).String()+`"}`,
		read(changelog, 0, 0, "--as", "record")...)
	s.object(`{"claims":[{"offset":5,"partition":1,"topicId":"AQIDBAUGBwgJCgsMDQ4PEA","uuid":"`+idA+`"}],"headers":[],"index":1,"key":"q/`+frontier.Channel.String()+
		`/e/0000000000000001","kind":"store entry","of":"held record","offset":1,"partition":2,"recordKey":"\n\u000b","sender":"`+idS+`","sequence":10,`+
		`"topic":"orders","topicId":"`+orders+`","value":"\f"}`, read(changelog, 0, 3)...)
	fold := "app-stage-fold-changelog"
	s.object(`{"key":"kim","kind":"fold key","tick":false}`, read(fold, 0, 0)...)
	s.object(`{"key":"kim","kind":"fold key","tick":false}`, read(fold, 0, 0, "--as", "fold")...)
	s.fails("", cli.Failed, "topic app-stage-fold-changelog, partition 0, offset 1: parsley: corrupt fold key", read(fold, 0, 1)...)
	s.object(`{"kind":"tick key","partition":3}`, read("app-stage-ticks", 0, 0, "--as", "tick")...)
	s.fails("", cli.Failed, "corrupt store key", read("app-stage-ticks", 0, 0, "--as", "entry")...)
	if name := parsley.StateChangelog("app", "stage"); name != changelog || !strings.HasSuffix(name, stateChangelog) {
		t.Error(name)
	}
	if name := parsley.FoldChangelog("app", "stage"); name != fold || !strings.HasSuffix(name, foldChangelog) {
		t.Error(name)
	}
}

// An offset whose record was compacted away is no offset of the next record.
func TestParsleyCompacted(t *testing.T) {
	s := session{t, broker(t, "log.cleaner.backoff.ms", "10")}
	args := "topic create t --config cleanup.policy=compact --config segment.bytes=16384 --config min.cleanable.dirty.ratio=0.01"
	if code, _, errs := s.run("", strings.Fields(args)...); code != cli.OK {
		t.Fatal(errs)
	}
	for range 4 { // each fills a segment
		s.want("k "+strings.Repeat("v", 15000)+"\n", "", "produce", "--topic", "t", "--format", `%k %v\n`)
	}
	var errs string
	waitFor(t, func() bool {
		var code int
		code, _, errs = s.run("", "parsley", "decode", "--topic", "t", "--offset", "0")
		return code == cli.Failed
	})
	if !strings.Contains(errs, "topic t, partition 0: no record at offset 0: ") {
		t.Error(errs)
	}
	if code, out, errs := s.run("", "parsley", "decode", "--topic", "t", "--offset", "3"); code != cli.OK || !strings.Contains(out, "offset     3\n") {
		t.Error(code, out, errs)
	}
}

// The worked example of the page is what the command prints.
func TestParsleyPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/parsley.md")
	if err != nil {
		t.Fatal(err)
	}
	const prompt = "    $ kaas "
	_, rest, ok := strings.Cut(string(page), prompt)
	if !ok || strings.Contains(rest, prompt) {
		t.Fatal("want one example")
	}
	command, rest, _ := strings.Cut(rest, "\n")
	var want strings.Builder
	for line := range strings.Lines(rest) {
		text, indented := strings.CutPrefix(line, "    ")
		if !indented && line != "\n" {
			break
		}
		want.WriteString(text)
	}
	session{t: t}.want("", strings.TrimRight(want.String(), "\n")+"\n", strings.Fields(command)...)
	if !strings.Contains(string(page), parsley.SenderID("bank", "welcome", 0).String()) {
		t.Error("the sender of the example is not that of bank/welcome/0")
	}
}
