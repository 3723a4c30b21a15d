package client

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"kaas/cmd/kaas/cli"
)

// topic makes a topic of one partition, or more.
func (s session) topic(name string, partitions int) {
	s.t.Helper()
	s.want("", fmt.Sprintf("%s: created with %d partitions\n", name, partitions), "topic", "create", name, "--partitions", fmt.Sprint(partitions))
}

func TestProduceLines(t *testing.T) {
	s := session{t, broker(t)}
	for _, c := range []struct {
		name, in, out string // out: partition, offset, key, value, headers of what is then read
		args          []string
	}{
		{"lines", "one\n\nthree\r\nlast", "0|0||one|\n0|1|||\n0|2||three\r|\n0|3||last|\n", nil},
		{"keys", "a:1\nb:2:3\n:4\n", "0|0|a|1|\n0|1|b|2:3|\n0|2||4|\n", []string{"--key-separator", ":"}},
		{"headers", "x\n", "0|0||x|a=1,b==,\n", []string{"--header", "a=1", "--header", "b=="}},
		{"layout", "k1\tv1\nk2\tv2\n", "0|0|k1|v1|\n0|1|k2|v2|\n", []string{"--format", `%k\t%v\n`}},
		{"layout-with-headers", "1 v1 x=1\n", "0|0||v1|x=1,h=2,\n", []string{"--format", `%H %v %h{%k=%v\n}`, "--header", "h=2"}},
		{"nothing", "", "", nil},
	} {
		s.topic(c.name, 1)
		s.want(c.in, "", append([]string{"produce", "--topic", c.name}, c.args...)...)
		_, got, errs := s.run("", "consume", "--topic", c.name, "--format", `%p|%o|%k|%v|%h{%k=%v,}\n`)
		if got != c.out {
			t.Errorf("%s: %s\n%q\nwant\n%q", c.name, errs, got, c.out)
		}
	}
}

func TestProduceNulls(t *testing.T) {
	s := session{t, broker(t)}
	s.topic("t", 1)
	s.want("k:\nk:NULL\nNULL:v\n", "", "produce", "--topic", "t", "--key-separator", ":", "--null-marker", "NULL")
	_, out, _ := s.run("", "consume", "--topic", "t", "--json")
	for i, want := range []string{`"key":"k","value":"",`, `"key":"k","value":null,`, `"key":null,"value":"v",`} {
		if lines := strings.Split(out, "\n"); len(lines) != 4 || !strings.Contains(lines[i], want) {
			t.Errorf("line %d lacks %s:\n%s", i, want, out)
		}
	}
}

// TestProduceEveryWay: each compression and each kind of acknowledgement, and what is reported.
func TestProduceEveryWay(t *testing.T) {
	s := session{t, broker(t)}
	s.topic("t", 2)
	for i, c := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		code, out, errs := s.run(strings.Repeat("value\n", 3), "produce", "--topic", "t", "--partition", "1", "--compression", c, "--json")
		want := ""
		for j := range 3 {
			want += fmt.Sprintf(`{"topic":"t","partition":1,"offset":%d}`+"\n", 3*i+j)
		}
		if code != 0 || out != want || errs != "3 records written to t\n" {
			t.Errorf("%s: code %d, %q\n%s", c, code, errs, out)
		}
	}
	for acks, offset := range map[string]string{"0": "-1", "1": "15"} {
		want := `{"topic":"t","partition":1,"offset":` + offset + "}\n"
		if acks == "1" {
			want = strings.Replace(want, "15", "%d", 1)
		}
		code, out, errs := s.run("value\n", "produce", "--topic", "t", "--partition", "1", "--acks", acks, "--json", "--quiet")
		if ok := out == want || acks == "1" && (out == fmt.Sprintf(want, 15) || out == fmt.Sprintf(want, 16)); code != 0 || !ok || errs != "" {
			t.Errorf("acks %s: code %d, %q, %s", acks, code, errs, out)
		}
	}
	s.want("", strings.Repeat("value\n", 16), "consume", "--topic", "t", "--count", "16")
	s.want("1 a\n0 b\n", "", "produce", "--topic", "t", "--format", `%p %v\n`)
	s.want("", "0\tb\n", "consume", "--topic", "t", "--partition", "0", "--format", "partition,value")
	s.want("", "1\ta\n", "consume", "--topic", "t", "--partition", "1", "--offset", "-1", "--format", "partition,value")
	// Records of one key stay together, as with Kafka's own clients: murmur2 of these keys.
	s.topic("keyed", 3)
	s.want("a:1\nb:2\nc:3\na:4\n", "", "produce", "--topic", "keyed", "--key-separator", ":")
	s.want("", "1\n3\n4\n", "consume", "--topic", "keyed", "--partition", "1")
	s.want("", "2\n", "consume", "--topic", "keyed", "--partition", "2")
}

func TestProduceFailures(t *testing.T) {
	s := session{t, broker(t)}
	s.topic("t", 1)
	code, _, errs := s.run("a:1\nb:2\nno separator\nc:3\n", "produce", "--topic", "t", "--key-separator", ":")
	if want := "2 records written to t\nkaas: line 3 has no \":\" between key and value\n"; code != cli.Failed || errs != want {
		t.Errorf("code %d, %q, want %q", code, errs, want)
	}
	s.want("", "1\n2\n", "consume", "--topic", "t")
	s.fails("x\n", cli.Failed, "0 records written to never\nkaas: a record for never was not written: UNKNOWN_TOPIC_OR_PARTITION", "produce", "--topic", "never")
	s.fails("x\n", cli.Failed, "was not written", "produce", "--topic", "t", "--partition", "7")
	s.fails(strings.Repeat("x", 2<<20), cli.Failed, "MESSAGE_TOO_LARGE", "produce", "--topic", "t")
	s.fails("k only", cli.Failed, "unexpected EOF", "produce", "--topic", "t", "--format", `%k\t%v\n`)
	s.want("x\n", "", "produce", "--topic", "made", "--create")
	s.want("", "x\n", "consume", "--topic", "made")
}

// TestProduceInterrupted: what was read before the end of the context is written, and that is a success.
func TestProduceInterrupted(t *testing.T) {
	s := session{t, broker(t)}
	s.topic("t", 1)
	ctx, cancel := context.WithCancel(context.Background())
	in, feed := io.Pipe()
	defer feed.Close()
	out := &buffer{}
	errs, end := s.start(ctx, in, out, "produce", "--topic", "t", "--json")
	if _, err := io.WriteString(feed, "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(feed, "thr"); err != nil { // now the two lines were read
		t.Fatal(err)
	}
	waitFor(t, func() bool { return strings.Count(out.String(), "\n") == 2 })
	cancel()
	if code := end(); code != cli.OK || errs.String() != "2 records written to t\n" {
		t.Errorf("code %d, %q", code, errs)
	}
	s.want("", "one\ntwo\n", "consume", "--topic", "t")
}

// TestProduceBrokerGone: records that cannot be delivered in time are a failure.
func TestProduceBrokerGone(t *testing.T) {
	b := startBroker(t)
	s := session{t, b.Ready().Listeners["PLAINTEXT"]}
	s.topic("t", 1)
	in, feed := io.Pipe()
	out := &buffer{}
	errs, end := s.start(context.Background(), in, out, "produce", "--topic", "t", "--json", "--timeout", "1s")
	if _, err := io.WriteString(feed, "one\n"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return strings.Count(out.String(), "\n") == 1 })
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(feed, "two\n"); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	if code := end(); code != cli.Failed || !strings.HasPrefix(errs.String(), "1 records written to t\nkaas: a record for t was not written: ") {
		t.Errorf("code %d, %q", code, errs)
	}
}
