package schema

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/small.golden anew")

// TestGolden generates code from a small table that has one of everything.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/small.txt")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse("000_small", string(text))
	if err != nil {
		t.Fatal(err)
	}
	files, err := Generate([]*File{f}, []ErrorFact{{-1, "UNKNOWN_SERVER_ERROR", false, "failure"}, {0, "NONE", false, "success"}})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, name := range []string{"000_small_gen.go", "registry_gen.go", "errors_gen.go", "messages_gen_test.go"} {
		got.WriteString("==> " + name + "\n")
		got.Write(files[name])
		delete(files, name)
	}
	if len(files) != 0 {
		t.Errorf("%d more files generated", len(files))
	}
	const golden = "testdata/small.golden"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	for i := range w {
		if i >= len(g) || g[i] != w[i] {
			t.Fatalf("%s:%d: generated %q, want %q", golden, i+1, append(g, "")[min(i, len(g))], w[i])
		}
	}
	if len(g) != len(w) {
		t.Errorf("generated %d lines, want %d", len(g), len(w))
	}
}

// TestUpToDate: codec/api is what the tables say.
func TestUpToDate(t *testing.T) {
	tables, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	errors, err := LoadErrors()
	if err != nil {
		t.Fatal(err)
	}
	files, err := Generate(tables, errors)
	if err != nil {
		t.Fatal(err)
	}
	const dir = "../api"
	there, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range there {
		if IsGenerated(e.Name()) && files[e.Name()] == nil {
			t.Errorf("%s: no table gives this file; run go generate ./codec/schema", e.Name())
		}
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the tables say (%v); run go generate ./codec/schema", name, err)
		}
	}
}

// TestLoad checks the tables against a few facts counted by hand.
func TestLoad(t *testing.T) {
	files, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	versions := 0
	for _, f := range files {
		for _, m := range f.Messages {
			kinds[m.Kind]++
			versions += int(m.Versions.Hi-m.Versions.Lo) + 1
		}
	}
	want := map[string]int{"request": 75, "response": 75, "header": 2, "data": 27, "metadata": 25}
	for kind, n := range want {
		if kinds[kind] != n {
			t.Errorf("%d messages of kind %s, want %d", kinds[kind], kind, n)
		}
	}
	if len(kinds) != len(want) {
		t.Errorf("kinds %v", kinds)
	}
	fetch := files[1].Messages[1]
	topics := fetch.Root.Fields[3]
	if topics.Name != "Responses" || !topics.Array || topics.Struct.Go != "FetchResponseFetchableTopicResponse" {
		t.Errorf("field 3 of FetchResponse is %+v", topics)
	}
	if n := fetch.minSizeAt(topics.Struct, 0); n != 2+4 {
		t.Errorf("a topic of Fetch v0 takes %d bytes at least, want 6", n)
	}
	if n := fetch.minSizeAt(topics.Struct, 16); n != 16+1+1 {
		t.Errorf("a topic of Fetch v16 takes %d bytes at least, want 18", n)
	}
}

func TestSpan(t *testing.T) {
	for text, want := range map[string]Span{"none": {1, 0}, "3": {3, 3}, "0-4": {0, 4}, "2+": {2, open}} {
		got, err := parseSpan(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "a", "3-2", "-1", "1+2", "40000", "+"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
	within := Span{1, 6}
	for _, c := range []struct {
		span               Span
		condition, outside string
	}{
		{Span{0, open}, "", ""},
		{Span{1, 6}, "", ""},
		{Span{3, open}, "version >= 3", "version < 3"},
		{Span{0, 4}, "version <= 4", "version > 4"},
		{Span{2, 3}, "version >= 2 && version <= 3", "(version < 2 || version > 3)"},
		{Span{7, 9}, "false", "true"},
		{noVersion, "false", "true"},
	} {
		if got := c.span.condition(within); got != c.condition {
			t.Errorf("%v within %v: condition %q, want %q", c.span, within, got, c.condition)
		}
		if got := c.span.outside(within); got != c.outside {
			t.Errorf("%v within %v: outside %q, want %q", c.span, within, got, c.outside)
		}
	}
}

// TestParseErrors: what the generator cannot do, or what is misspelt, is refused with the line.
func TestParseErrors(t *testing.T) {
	head := "data D versions=0-2 flexible=1+\n"
	for text, want := range map[string]string{
		"nonsense\n":                                                    "incomplete statement",
		"what is this\n":                                                `unknown statement "what"`,
		"listeners broker\n":                                            "listeners without api",
		"data D flexible=1+\n":                                          "message needs versions",
		"data D versions=0+\n":                                          "message needs versions",
		"data D versions=0 odd\n":                                       `unknown attribute "odd"`,
		"  A: int8 0+\n":                                                "indented too deep",
		head + "      A: int8 0+\n":                                     "indented too deep",
		head + "  A int8 0+\n":                                          "neither field nor struct",
		head + "  A: int7 0+\n":                                         `unknown type "int7"`,
		head + "  A: int8 0+ odd=1\n":                                   `unknown attribute "odd=1"`,
		head + "  A: int8 2-1\n":                                        `bad versions "2-1"`,
		head + "  A: Missing 0+\n":                                      "no struct Missing",
		head + "  A: []bool 0+\n":                                       "no arrays of bool",
		head + "  A: int8 1+ tag=0\n":                                   "tag and tagged go together",
		head + "  A: int8 0+ tag=0 tagged=0+\n":                         "not flexible",
		head + "  A: int8 1+ tag=0 tagged=2+\n":                         "tagged in some versions and in line in others",
		head + "  A: int8 0+ nullable=0+\n":                             "int8 cannot be null",
		head + "  A: []int8 0+ default=1\n":                             "default is empty or null",
		head + "  A: S 0+ nullable=0+\n    B: int8 0+\n":                "nullable struct",
		head + "  A: S 0+\n    B: int8 0+\n  C: S 0+\n    B: int8 0+\n": "struct S defined twice",
		head + "  A: S 1+ tag=0 tagged=1+\n    B: records 1+\n":         "this type cannot be tagged",
		head + "  A: S 5+\n    B: int8 0+\n":                            "never on the wire",
	} {
		if _, err := Parse("t", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := parseErrors("code\n-1\tA\tno\t-\tx\n1\tB\tno\t-\ty\n"); err == nil {
		t.Error("a gap in the error codes is not noticed")
	}
}
