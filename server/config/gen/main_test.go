package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestGeneratedFilesAreFresh fails when the table changed and go generate was
// not run.
func TestGeneratedFilesAreFresh(t *testing.T) {
	keys, err := load("..")
	if err != nil {
		t.Fatal(err)
	}
	code, err := goFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{filepath.Join("..", "keys_gen.go"): code, docsPath(".."): docs(keys)} {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate ./server/config", path)
		}
	}
}
