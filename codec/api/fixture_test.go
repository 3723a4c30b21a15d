package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kaas/codec/wire"
)

// fixture is one line of testdata, made by Apache Kafka's own classes.
type fixture struct {
	Key               *int16 // nil: no API message
	Name              string
	Version           int16
	Kind              string
	Case              string
	HeaderVersion     int16   `json:"header_version"`
	HeaderHex         hexText `json:"header_hex"`
	CorrelationID     int32   `json:"correlation_id"`
	ClientID          *string `json:"client_id"`
	BodyHex           hexText `json:"body_hex"`
	PrefixedHex       hexText `json:"prefixed_hex"`
	JSON              map[string]any
	UnknownTags       []fixtureTag `json:"unknown_tags"`
	HeaderUnknownTags []fixtureTag `json:"header_unknown_tags"`
}

type fixtureTag struct {
	Tag  uint32
	Data hexText `json:"hex"`
}

type hexText []byte

func (h *hexText) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

func (f *fixture) message() string {
	switch f.Kind {
	case "request":
		return f.Name + "Request"
	case "response":
		return f.Name + "Response"
	}
	return f.Name
}

// eachFixture calls fn with every line of every file.
func eachFixture(t testing.TB, fn func(t testing.TB, f *fixture)) {
	fixtures, err := loadFixtures()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures {
		fn(t, f)
	}
}

// loadFixtures reads all files, once for all tests.
var loadFixtures = sync.OnceValues(func() ([]*fixture, error) {
	paths, err := filepath.Glob("testdata/*.jsonl.gz")
	if err != nil || len(paths) != 77 {
		return nil, fmt.Errorf("%d files of fixtures (%v), want 75 API keys and two more", len(paths), err)
	}
	var all []*fixture
	for _, path := range paths {
		if all, err = appendFixtures(all, path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return all, nil
})

func appendFixtures(all []*fixture, path string) ([]*fixture, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		f := &fixture{}
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.UseNumber()
		if err := d.Decode(f); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, lines.Err()
}

// TestFixtures decodes every message that Apache Kafka wrote, compares it with Apache's JSON, and encodes it to the same bytes.
func TestFixtures(t *testing.T) {
	walk := newWalker(t)
	count := map[bool]int{}
	// One object per message for all fixtures: what one decoding leaves behind must not show in the next.
	reused := map[string]Message{}
	eachFixture(t, func(t testing.TB, f *fixture) {
		name := f.message()
		m := reused[name]
		if m == nil {
			m = newMessage[name]()
			reused[name] = m
		}
		body := f.BodyHex
		if f.Key == nil {
			r := wire.NewReader(f.PrefixedHex)
			if v := r.Int16(); v != f.Version || !bytes.Equal(f.PrefixedHex[2:], body) {
				t.Errorf("%s v%d %s: prefix %d", name, f.Version, f.Case, v)
			}
		}
		count[f.Key != nil]++
		r := wire.NewReader(body)
		m.Decode(&r, f.Version)
		if r.Err() != nil || r.Rest() != 0 {
			t.Errorf("%s v%d %s: %v, %d bytes left", name, f.Version, f.Case, r.Err(), r.Rest())
			return
		}
		walk.compare(t, f, m)
		var w wire.Writer
		m.Encode(&w, f.Version)
		if w.Err != nil || !bytes.Equal(w.B, body) {
			t.Errorf("%s v%d %s: encoded (%v)\n%x, want\n%x", name, f.Version, f.Case, w.Err, w.B, body)
		}
		again := newMessage[name]()
		r.Reset(append([]byte(nil), body...))
		again.Decode(&r, f.Version)
		w.Reset()
		again.Encode(&w, f.Version)
		if r.Err() != nil || w.Err != nil || !bytes.Equal(w.B, body) {
			t.Errorf("%s v%d %s: a fresh object gives (%v, %v)\n%x, want\n%x", name, f.Version, f.Case, r.Err(), w.Err, w.B, body)
		}
	})
	if count[true] != 4036 || count[false] != 245 {
		t.Errorf("%d API messages and %d others, want 4036 and 245", count[true], count[false])
	}
}

// TestDefaults: the case "default" is the message as Apache's class is born.
func TestDefaults(t *testing.T) {
	n := 0
	eachFixture(t, func(t testing.TB, f *fixture) {
		if f.Case != "default" {
			return
		}
		n++
		m := newMessage[f.message()]()
		m.Default()
		var w wire.Writer
		m.Encode(&w, f.Version)
		if w.Err != nil || !bytes.Equal(w.B, f.BodyHex) {
			t.Errorf("%s v%d: default is (%v) %x, want %x", f.message(), f.Version, w.Err, w.B, f.BodyHex)
		}
	})
	if n < 500 {
		t.Errorf("only %d defaults", n)
	}
}

// TestHeaderFixtures: the registry gives the header version that Apache uses, and the header has Apache's bytes.
func TestHeaderFixtures(t *testing.T) {
	type place struct {
		key, version int16
		kind         string
	}
	seen := map[place]bool{}
	eachFixture(t, func(t testing.TB, f *fixture) {
		if f.Key == nil {
			return
		}
		fact, ok := Lookup(*f.Key)
		if !ok || fact.Name != f.Name || f.Version < fact.Min || f.Version > fact.Max {
			t.Fatalf("%s v%d: registry says %+v", f.Name, f.Version, fact)
		}
		seen[place{*f.Key, f.Version, f.Kind}] = true
		r := wire.NewReader(f.HeaderHex)
		var w wire.Writer
		if f.Kind == "request" {
			version := fact.RequestHeader(f.Version)
			key, v, ok := wire.PeekRequest(f.HeaderHex)
			if version != f.HeaderVersion || !ok || key != *f.Key || v != f.Version {
				t.Fatalf("%s v%d: request header %d, want %d; peeked %d %d", f.Name, f.Version, version, f.HeaderVersion, key, v)
			}
			var h wire.RequestHeader
			h.Decode(&r, version)
			client := wire.NullString{}
			if f.ClientID != nil {
				client = wire.Some(*f.ClientID)
			}
			if h.Key != *f.Key || h.Version != f.Version || h.CorrelationID != f.CorrelationID || h.ClientID != client {
				t.Errorf("%s v%d %s: header %+v", f.Name, f.Version, f.Case, h)
			}
			sameTags(t, f, "header", h.UnknownTags, f.HeaderUnknownTags)
			h.Encode(&w, version)
			sameAsGenerated(t, f, &RequestHeader{}, version)
		} else {
			version := fact.ResponseHeader(f.Version)
			if version != f.HeaderVersion {
				t.Fatalf("%s v%d: response header %d, want %d", f.Name, f.Version, version, f.HeaderVersion)
			}
			var h wire.ResponseHeader
			h.Decode(&r, version)
			if h.CorrelationID != f.CorrelationID {
				t.Errorf("%s v%d %s: header %+v", f.Name, f.Version, f.Case, h)
			}
			sameTags(t, f, "header", h.UnknownTags, f.HeaderUnknownTags)
			h.Encode(&w, version)
			sameAsGenerated(t, f, &ResponseHeader{}, version)
		}
		if r.Err() != nil || r.Rest() != 0 || w.Err != nil || !bytes.Equal(w.B, f.HeaderHex) {
			t.Errorf("%s v%d %s: header (%v, %d left, %v) %x, want %x",
				f.Name, f.Version, f.Case, r.Err(), r.Rest(), w.Err, w.B, f.HeaderHex)
		}
	})
	for _, f := range Facts {
		for v := f.Min; v <= f.Max; v++ {
			for _, kind := range []string{"request", "response"} {
				if !seen[place{f.Key, v, kind}] {
					t.Errorf("no fixture has the header of %s v%d, %s", f.Name, v, kind)
				}
			}
		}
	}
}

// sameAsGenerated: the headers written by hand in wire and those of the tables are the same.
func sameAsGenerated(t testing.TB, f *fixture, m Message, version int16) {
	r := wire.NewReader(f.HeaderHex)
	m.Decode(&r, version)
	var w wire.Writer
	m.Encode(&w, version)
	if r.Err() != nil || r.Rest() != 0 || w.Err != nil || !bytes.Equal(w.B, f.HeaderHex) {
		t.Errorf("%s v%d %s: %T of the table: (%v, %v) %x, want %x", f.Name, f.Version, f.Case, m, r.Err(), w.Err, w.B, f.HeaderHex)
	}
}

func sameTags(t testing.TB, f *fixture, where string, got []wire.Tag, want []fixtureTag) {
	if len(got) != len(want) {
		t.Errorf("%s v%d %s: %s: %d unknown tags, want %d", f.Name, f.Version, f.Case, where, len(got), len(want))
		return
	}
	for i := range want {
		if got[i].ID != want[i].Tag || !bytes.Equal(got[i].Data, want[i].Data) {
			t.Errorf("%s v%d %s: %s: tag %d %x, want %d %x",
				f.Name, f.Version, f.Case, where, got[i].ID, got[i].Data, want[i].Tag, want[i].Data)
		}
	}
}

// lowerFirst gives the name that Kafka's JSON uses.
func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
