package logtool

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"kaas/cmd/kaas/cli"
	"kaas/codec/batch"
)

var update = flag.Bool("update", false, "write the golden files anew")

// t0 is the time of the first record of the tests: 2024-05-01T12:00:00Z.
const t0 = 1714564800000

// command runs `kaas log` with args.
func command(args ...string) (code int, stdout, stderr string) {
	root := &cobra.Command{Use: "kaas"}
	root.AddCommand(Command())
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	code = cli.Run(context.Background(), root, append([]string{"log"}, args...))
	return code, out.String(), errs.String()
}

// testdata is absolute, as tests change their directory so that output has short paths.
var testdata = func() string {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		panic(err)
	}
	return dir
}()

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join(testdata, name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("output differs from %s (-update writes it):\n%s\nwant:\n%s", path, got, want)
	}
}

// sample is a log of five batches, offsets 0 to 7, with what a log can have: headers, nulls, bytes that are no text,
// compression, a transaction with its abort marker, append time.
func sample() []byte {
	var b batch.Builder
	spec := batch.NewSpec()
	spec.LeaderEpoch = 0
	b.Begin(nil, spec)
	b.Append(t0, []byte("k1"), []byte("v1"), batch.Header{Key: "source", Value: []byte("test")}, batch.Header{Key: "none"})
	b.Append(t0+5, nil, []byte("say \"hi\"\n"))
	b.Append(t0+3, []byte{0xff, 0x00}, nil)
	log := b.End(nil)

	spec.BaseOffset, spec.Codec = 3, batch.CodecZstd
	b.Begin(log, spec)
	b.Append(t0+10, []byte("k2"), []byte(strings.Repeat("z", 50)))
	b.Append(t0+11, []byte("k3"), []byte{})
	log = b.End(&batch.Deflater{})

	spec = batch.NewSpec()
	spec.BaseOffset, spec.LeaderEpoch, spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence, spec.Transactional = 5, 1, 9, 2, 7, true
	b.Begin(log, spec)
	b.Append(t0+20, []byte("k4"), []byte("gone"))
	log = b.End(nil)
	log = batch.AppendMarker(log, batch.Marker{BaseOffset: 6, LeaderEpoch: 1, TimestampMs: t0 + 21, ProducerID: 9, ProducerEpoch: 2, Type: batch.ControlAbort, CoordinatorEpoch: 4})

	spec = batch.NewSpec()
	spec.BaseOffset, spec.LeaderEpoch, spec.LogAppendTimeMs = 7, 1, t0+30
	b.Begin(log, spec)
	b.Append(t0, []byte("k5"), []byte("v5"))
	return b.End(nil)
}

// positions are where the batches of a log begin.
func positions(t *testing.T, log []byte) (at []int64) {
	t.Helper()
	for pos := 0; pos < len(log); {
		v, err := batch.Peek(log[pos:])
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, int64(pos))
		pos += v.Size()
	}
	return at
}

// sampleDir makes the partition directory orders-0 of the sample and returns its path.
func sampleDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "orders-0")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	log := sample()
	at := positions(t, log)
	be := binary.BigEndian
	var index, times, txns []byte
	for _, e := range [][2]uint32{{4, uint32(at[1])}, {6, uint32(at[3])}} {
		index = be.AppendUint32(be.AppendUint32(index, e[0]), e[1])
	}
	for _, e := range [][2]uint64{{t0 + 11, 4}, {t0 + 21, 6}} {
		times = be.AppendUint32(be.AppendUint64(times, e[0]), uint32(e[1]))
	}
	txns = be.AppendUint16(txns, 0)
	for _, v := range []uint64{9, 5, 6, 7} {
		txns = be.AppendUint64(txns, v)
	}
	write(t, dir, "00000000000000000000.log", append(log, make([]byte, 4096)...))
	write(t, dir, "00000000000000000000.index", append(index, make([]byte, 64)...))
	write(t, dir, "00000000000000000000.timeindex", append(times, make([]byte, 120)...))
	write(t, dir, "00000000000000000000.txnindex", txns)
	write(t, dir, epochsName, []byte("0\n2\n0 0\n1 5\n"))
	write(t, dir, metadataName, []byte("version: 0\ntopic_id: LJpQf9ktRn-buK97x8zNIQ"))
	return dir
}

func write(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// change rewrites a file of dir.
func change(t *testing.T, dir, name string, f func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, name, f(b))
}
