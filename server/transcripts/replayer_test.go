package transcripts

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		want, got string
		paths     string // where they differ
	}{
		{`{"a":1,"b":"x"}`, `{"a":1,"b":"x"}`, ""},
		{`{"a":1}`, `{"a":2}`, "a"},
		{`{"a":1}`, `{"a":1,"b":2}`, "b"},
		{`{"a":1,"b":2}`, `{"a":1}`, "b"},
		{`{"$only":true,"a":1}`, `{"a":1,"b":2}`, ""},
		{`{"a":null}`, `{"a":""}`, "a"},
		{`{"a":""}`, `{"a":null}`, "a"},
		{`{"a":[]}`, `{"a":null}`, "a"},
		{`{"a":{"$any":1}}`, `{"a":"anything"}`, ""},
		{`{"a":{"$any":1}}`, `{}`, "a"},
		{`{"a":{"$text":"x"}}`, `{"a":null}`, ""},
		{`{"a":{"$oneOf":[1,2]}}`, `{"a":2}`, ""},
		{`{"a":{"$oneOf":[1,2]}}`, `{"a":3}`, "a"},
		{`{"a":"${x}","b":"${x}"}`, `{"a":7,"b":7}`, ""},
		{`{"a":"${x}","b":"${x}"}`, `{"a":7,"b":8}`, "b"},
		{`{"a":"${x}"}`, `{"a":null}`, "a"},
		{`{"a":"${x}","b":"${x+1}"}`, `{"a":7,"b":8}`, ""},
		{`{"a":"${x}","b":"${x+1}"}`, `{"a":7,"b":7}`, "b"},
		{`{"a":"t-${given}"}`, `{"a":"t-g"}`, ""},
		{`{"a":"t-${given}"}`, `{"a":"t-h"}`, "a"},
		{`{"u":[{"k":1},{"k":2}]}`, `{"u":[{"k":2},{"k":1}]}`, ""},
		{`{"u":[{"k":1},{"k":2}]}`, `{"u":[{"k":2},{"k":2}]}`, "u[0].k"},
		{`{"o":[{"k":1},{"k":2}]}`, `{"o":[{"k":2},{"k":1}]}`, "o[0].k o[1].k"},
		{`{"o":[1]}`, `{"o":[1,1]}`, "o"},
		{`{"a":true}`, `{"a":false}`, "a"},
	} {
		want, err := parseJSON([]byte(c.want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseJSON([]byte(c.got))
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(&Scenario{}, &Broker{}, nil)
		s.vars["given"] = "g"
		m := &matcher{s: s, unordered: map[string]bool{"u": true}}
		m.match("", "", want, got)
		var paths []string
		for _, d := range m.diffs {
			paths = append(paths, d.path)
		}
		if p := strings.Join(paths, " "); p != c.paths {
			t.Errorf("%s against %s: want differences at %q, got %q", c.want, c.got, c.paths, p)
		}
	}
}

// TestDecodeIsStrict: what no client could read is no answer.
func TestDecodeIsStrict(t *testing.T) {
	for _, c := range []struct {
		name         string
		key, version int
		hex          string
		want         string // part of the error, or of the value
	}{
		{"whole", 18, 0, "0000" + "00000001" + "001200000003", `{"errorCode":0,"apiKeys":[{"apiKey":18,"minVersion":0,"maxVersion":3}]}`},
		{"byte left over", 18, 0, "0000" + "00000001" + "001200000003" + "00", "1 bytes left over"},
		{"cut", 18, 0, "0000" + "00000001" + "0012000000", "want 2 bytes"},
		{"null array", 18, 0, "0000" + "ffffffff", "may not be null"},
		{"array too long", 18, 0, "0000" + "7fffffff", "does not fit"},
		{"null string", 17, 1, "0000" + "00000001" + "ffff", "may not be null"},
		{"unknown tag", 18, 3, "0000" + "01" + "00000000" + "01" + "63" + "01" + "ff", `"_unknownTag99":"hex:ff"`},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		o, err := decodeMessage(schemas.Responses[fmt.Sprint(c.key)], c.version, b)
		got := mustText(o)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: want %s, got %s", c.name, c.want, got)
		}
	}
}

// fake answers every frame by what reply returns for it; nil closes the connection.
func fake(t *testing.T, reply func(frame []byte) []byte) *Broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		for {
			var h [4]byte
			if _, err := io.ReadFull(c, h[:]); err != nil {
				return
			}
			b := make([]byte, int(h[2])<<8|int(h[3]))
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			r := reply(b)
			if r == nil {
				return
			}
			if _, err := c.Write(append([]byte{0, 0, byte(len(r) >> 8), byte(len(r))}, r...)); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return &Broker{Plain: l.Addr().String(), Patience: 200 * time.Millisecond}
}

// TestPlay: a scenario of one ApiVersions v0 request against brokers that answer rightly and wrongly.
func TestPlay(t *testing.T) {
	const body = "\x00\x00\x00\x00\x00\x01\x00\x12\x00\x00\x00\x03"
	respond := func(correlation func(c []byte), body string) func([]byte) []byte {
		return func(frame []byte) []byte {
			c := append([]byte(nil), frame[4:8]...)
			if correlation != nil {
				correlation(c)
			}
			return append(c, body...)
		}
	}
	hangUp := func([]byte) []byte { return nil }
	response := json.RawMessage(`{"errorCode":0,"apiKeys":[{"apiKey":18,"minVersion":0,"maxVersion":3}]}`)
	for _, c := range []struct {
		name    string
		reply   func([]byte) []byte
		outcome string
		want    string
	}{
		{"right", respond(nil, body), "", ""},
		{"wrong value", respond(nil, body[:11]+"\x04"), "", "apiKeys[0].maxVersion: want 3, got 4"},
		{"wrong correlation id", respond(func(c []byte) { c[3]++ }, body), "", "correlation id: want 1, got 2"},
		{"left over", respond(nil, body+"x"), "", "1 bytes left over"},
		{"closed", hangUp, "", "want an answer, got connection closed"},
		{"closed as it should", hangUp, "closed", ""},
		{"not closed", respond(nil, body), "closed", "want the connection closed, got an answer"},
		{"silent, answered", respond(nil, body), "silent", "want no answer yet, got one of 16 bytes"},
		{"silent, closed", hangUp, "silent", "want no answer, connection open, got connection closed"},
	} {
		b := fake(t, c.reply)
		sc := &Scenario{Name: "x", Steps: []*step{{Conn: "c", API: "ApiVersions", Response: response, Outcome: c.outcome}}}
		got := b.Play(sc)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q, got %q", c.name, c.want, got)
		}
	}
}
