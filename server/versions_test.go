package server

import (
	"bufio"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// fixtureLine is what this test needs of a line of codec/api/testdata.
type fixtureLine struct {
	Key           int16  `json:"key"`
	Name          string `json:"name"`
	Version       int16  `json:"version"`
	Kind          string `json:"kind"`
	Case          string `json:"case"`
	HeaderHex     string `json:"header_hex"`
	BodyHex       string `json:"body_hex"`
	CorrelationID int32  `json:"correlation_id"`
}

// Every request fixture that Apache's classes made, of every version served, gets an answer that decodes without rest, with the right
// header and correlation id (regressions 3, 10); the exceptions are those of Apache: no answer to Produce with acks=0.
func TestEveryVersionIsAnswered(t *testing.T) {
	b := broker(t)
	seen := map[int16]int{}
	for _, f := range requestFixtures(t) {
		min, max, ok := b.api.Served(f.Key)
		if !ok || f.Version < min || f.Version > max {
			continue
		}
		seen[f.Key]++
		c := dial(t, b)
		c.answered(f)
		c.c.Close()
	}
	if n := b.api.Stats().Panics + b.net.Stats().Panics; n != 0 {
		t.Errorf("%d handlers panicked", n)
	}
	for _, k := range []int16{api.KeyProduce, api.KeyFetch, api.KeyIncrementalAlterConfigs} {
		if seen[k] == 0 {
			t.Errorf("no fixture of key %d was sent", k)
		}
	}
}

// answered sends one fixture and checks the answer.
func (c *client) answered(f fixtureLine) {
	c.t.Helper()
	head, err1 := hex.DecodeString(f.HeaderHex)
	body, err2 := hex.DecodeString(f.BodyHex)
	if err := errors.Join(err1, err2); err != nil {
		c.t.Fatal(err)
	}
	var w wire.Writer
	frame := w.BeginFrame()
	w.B = append(append(w.B, head...), body...)
	w.EndFrame(frame)
	silent, patience := f.quiet(body), deadline
	if silent {
		patience = 50 * time.Millisecond
	}
	c.write(w.B)
	if err := c.c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	if silent {
		c.silent(f)
		return
	}
	fact, _ := api.Lookup(f.Key)
	m := api.NewResponse(f.Key)
	r := wire.NewReader(c.read())
	var h wire.ResponseHeader
	h.Decode(&r, fact.ResponseHeader(f.Version))
	m.Decode(&r, f.Version)
	if r.Err() != nil || r.Rest() != 0 || h.CorrelationID != f.CorrelationID {
		c.t.Errorf("%s v%d %s: %v, %d bytes left over, correlation id %d (want %d)", f.Name, f.Version, f.Case, r.Err(), r.Rest(), h.CorrelationID, f.CorrelationID)
	}
}

// silent accepts no answer, or a closed connection: an acks=0 request that went wrong.
func (c *client) silent(f fixtureLine) {
	c.t.Helper()
	var one [1]byte
	n, err := c.c.Read(one[:])
	var timeout net.Error
	if n != 0 || err != io.EOF && !(errors.As(err, &timeout) && timeout.Timeout()) && !errors.Is(err, net.ErrClosed) {
		c.t.Errorf("%s v%d %s: acks=0 was answered: %d bytes, %v", f.Name, f.Version, f.Case, n, err)
	}
}

// quiet tells whether the request is a Produce with acks=0.
func (f *fixtureLine) quiet(body []byte) bool {
	if f.Key != api.KeyProduce {
		return false
	}
	var q api.ProduceRequest
	r := wire.NewReader(body)
	q.Decode(&r, f.Version)
	return q.Acks == 0
}

// requestFixtures reads every request of the codec's fixtures.
func requestFixtures(t *testing.T) (out []fixtureLine) {
	t.Helper()
	files, err := filepath.Glob("../codec/api/testdata/[0-9]*.jsonl.gz")
	if err != nil || len(files) < 75 {
		t.Fatalf("%d fixture files: %v", len(files), err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(z)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var l fixtureLine
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if l.Kind == "request" {
				out = append(out, l)
			}
		}
		if lines.Err() != nil {
			t.Fatal(lines.Err())
		}
	}
	return out
}
