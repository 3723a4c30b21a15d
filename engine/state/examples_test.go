package state

import (
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"

	"kaas/engine/vfs"
)

var updateExamples = flag.Bool("update-examples", false, "write the dumps of engine/FORMAT.md §11 anew")

// example is the part of FORMAT.md under the heading of a file: the text before its dump, the bytes of the dump, and the text after it.
func example(t *testing.T, text, name string) (before string, b []byte, after string) {
	t.Helper()
	head := "### `" + name + "`\n"
	at := strings.Index(text, head)
	if at < 0 {
		t.Fatalf("FORMAT.md has no %s", name)
	}
	at += len(head)
	end := at
	for line := range strings.Lines(text[at:]) {
		if line != "\n" && !strings.HasPrefix(line, "    0") {
			break
		}
		end += len(line)
		if len(line) > 14 {
			digits, _, _ := strings.Cut(line[14:], "|")
			raw, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			b = append(b, raw...)
		}
	}
	return text[:at], b, text[end:]
}

// TestExamples: the files of FORMAT.md §11 are those that the store writes, byte for byte, and it opens with them.
func TestExamples(t *testing.T) {
	fs := vfs.Memory()
	s := open(t, fs, Options{})
	var put, del Batch
	put.Put([]byte("a"), []byte("1"))
	put.Put([]byte("ab"), []byte("22"))
	del.Delete([]byte("a"))
	for _, b := range []*Batch{&put, &del} {
		if err := s.Apply(b, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	text, files := string(raw), vfs.Memory()
	if err := files.MkdirAll("/s"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{logName(1), ckptName(1)} {
		want, err := vfs.ReadFile(fs, "/s/"+name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		before, b, after := example(t, text, name)
		if *updateExamples {
			text, b = before+"\n    "+strings.ReplaceAll(strings.TrimSpace(hex.Dump(want)), "\n", "\n    ")+"\n\n"+after, want
		}
		if string(b) != string(want) {
			t.Errorf("%s is not as FORMAT.md has it (-update-examples writes the dumps):\n%s", name, hex.Dump(want))
		}
		if err := vfs.WriteFile(files, "/s", name, b); err != nil {
			t.Fatal(err)
		}
	}
	if *updateExamples {
		if err := os.WriteFile("../FORMAT.md", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, files, Options{})
	defer s.Close()
	if v, ok, err := s.Get([]byte("ab")); string(v) != "22" || !ok || err != nil || s.Stats().Keys != 1 {
		t.Errorf("ab is %q %v %v of %d keys", v, ok, err, s.Stats().Keys)
	}
}
