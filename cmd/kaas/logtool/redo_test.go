package logtool

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"kaas/engine/redo"
	"kaas/engine/vfs"
)

// TestVerifyRedo: after a kill the commit journal goes with the logs; what is damaged of it, or of the logs where it was, is told.
func TestVerifyRedo(t *testing.T) {
	data := killed(t)
	clean(t, data)
	old, err := redo.Scan(vfs.OS, data)
	if err != nil {
		t.Fatal(err)
	}
	var last *redo.Record
	frames := map[int64]bool{}
	for _, r := range old.All() {
		if r.Log == "orders-0" {
			last = r
		}
		_, at := r.Where()
		frames[at] = true
	}
	old.Close()
	if last == nil || len(frames) < 3 {
		t.Fatalf("%d pieces, of orders-0: %+v", len(frames), last)
	}
	name, _ := last.Where()
	segs := logs(t, filepath.Join(data, "orders-0"))
	segment := segs[len(segs)-1]
	for _, c := range []struct {
		what, file string
		change     func(b []byte) []byte
		want       string
	}{
		{"lost by a power cut", segment, func(b []byte) []byte { clear(b[last.At+100:]); return b }, "pieces are not in their logs, the first of orders-0: the next start writes them"},
		{"something else in the log", segment, func(b []byte) []byte { return flip(b, last.At+100) }, "the log has something else there"},
		{"a damaged frame", filepath.Join(data, name), func(b []byte) []byte { return flip(b, 60) }, name + ": byte 0: the checksum of the frame does not match, and a whole one follows it"},
	} {
		var was []byte
		alter(t, c.file, func(b []byte) []byte { was = bytes.Clone(b); return c.change(b) })
		code, out, _ := command("verify", data)
		if code != 1 && c.file != segment || !strings.Contains(out, c.want) {
			t.Errorf("%s: code %d\n%s\nwant %s", c.what, code, out, c.want)
		}
		alter(t, c.file, func([]byte) []byte { return was })
	}
	clean(t, data)
}
