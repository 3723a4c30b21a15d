package main

import (
	"bytes"
	"go/ast"
	"os"
	"reflect"
	"testing"
)

func TestReferencePageIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := writeReference(&want, ".."); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/api-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/api-reference.md is stale: run go generate ./server/api")
	}
}

func TestDescribe(t *testing.T) {
	comment := func(lines ...string) *ast.CommentGroup {
		var g ast.CommentGroup
		for _, l := range lines {
			g.List = append(g.List, &ast.Comment{Text: "// " + l})
		}
		return &g
	}
	name, d := describe(comment("Fetch, key 1, v4-v16 (KIP-74). v5 log", "start.", "", "It reads (regression 34)", "files.", "",
		"Deviation: a,", "and b.", "Deviation: c."))
	want := &description{versions: "v4-v16", changes: "KIP-74. v5 log start.", paragraphs: []string{"It reads files."}, deviations: []string{"a, and b.", "c."}}
	if name != "Fetch" || !reflect.DeepEqual(d, want) {
		t.Errorf("%s: %+v", name, d)
	}
	if name, d = describe(comment("Heartbeat, key 12, v0.")); name != "Heartbeat" || !reflect.DeepEqual(d, &description{versions: "v0"}) {
		t.Errorf("%s: %+v", name, d)
	}
	if name, d = describe(comment("fetch, key 1, v4-v16. takes a request.")); d != nil {
		t.Errorf("%s: %+v", name, d)
	}
}
