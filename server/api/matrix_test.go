package api

import (
	"bytes"
	"os"
	"testing"

	"kaas/codec/api"
)

func TestMatrixPageIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := WriteMatrix(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/api-matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/api-matrix.md is stale: run go generate ./server/api")
	}
}

func TestOnlyHandledKeysAreAdvertised(t *testing.T) {
	table := joinHandlers()
	keys := advertise(&table)
	if len(keys) != len(served) {
		t.Fatalf("%d keys advertised, %d rows in the table", len(keys), len(served))
	}
	for i, k := range keys {
		h := table[k.ApiKey]
		if h == nil || h.serve == nil && k.ApiKey != api.KeyProduce && k.ApiKey != api.KeyFetch {
			t.Errorf("key %d is advertised and has no handler", k.ApiKey)
		}
		if k.MinVersion != h.min || k.MaxVersion != h.max {
			t.Errorf("key %d: advertised %d-%d, handled %d-%d", k.ApiKey, k.MinVersion, k.MaxVersion, h.min, h.max)
		}
		if i > 0 && keys[i-1].ApiKey >= k.ApiKey {
			t.Errorf("keys %d and %d are not in order", keys[i-1].ApiKey, k.ApiKey)
		}
	}
}

func TestSoftwareNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "apache-kafka-java": true, "1.2.3": true, "A.b-C9": true,
		"": false, "-a": false, "a-": false, ".": false, "a b": false, "a_b": false, "ä": false, "a\x00": false,
	} {
		if got := softwareName(name); got != want {
			t.Errorf("softwareName(%q) = %v", name, got)
		}
	}
}
