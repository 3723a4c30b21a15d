package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "kaas"

// mayImport says for each package which packages of this module its product code may import. The longest matching row
// counts. "x" matches x alone, "x/..." matches x and everything below it. Tests may import more.
var mayImport = []struct {
	pkg     string
	imports string
}{
	{"engine", "engine/vfs engine/segment engine/producer engine/commit engine/compact engine/redo"},
	{"engine/vfs", ""},
	{"engine/vfs/crashfs", "engine/vfs"},
	{"engine/segment", "engine/vfs"},
	{"engine/producer", "engine/vfs"},
	{"engine/commit", ""},
	{"engine/compact", "engine/segment engine/vfs"},
	{"engine/redo", "engine/vfs"},
	{"engine/state", "engine/vfs engine/commit"},
	{"netio/...", "netio/..."},
	{"codec/wire", ""},
	{"codec/schema/...", "codec/schema/..."},
	{"codec/api", "codec/wire"},
	{"codec/batch", "codec/wire"},
	{"codec/parsley", "codec/wire"},
	{"server/...", "server/... engine/... netio/... codec/..."},
	{"server/causal", "codec/parsley engine/state"},
	{"server/stage", "server/causal engine/state codec/parsley"},
	{"server/transcripts", ""}, // a second opinion: shares nothing with the product
	{"server/transcripts/replay", "server/transcripts"},
	{"server/brokertest", ""},
	{"server/history", ""},
	{"server/interop/...", ""},
	{"bench/...", "bench/... codec/..."},
	{"cmd/...", "cmd/... server/... engine/... netio/... codec/... bench/..."},
}

func matches(pattern, pkg string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

// row finds the rule for pkg; ok is false if there is none.
func row(pkg string) (imports []string, ok bool) {
	best := -1
	for _, r := range mayImport {
		if n := len(strings.TrimSuffix(r.pkg, "/...")); matches(r.pkg, pkg) && n > best {
			best, imports = n, strings.Fields(r.imports)
		}
	}
	return imports, best >= 0
}

// checkImport returns an error when pkg may not import dep (both relative to the module).
func checkImport(pkg, dep string) error {
	allowed, ok := row(pkg)
	if !ok {
		return fmt.Errorf("%s has no row in the import table", pkg)
	}
	for _, a := range allowed {
		if matches(a, dep) {
			return nil
		}
	}
	return fmt.Errorf("%s imports %s; the table allows %q", pkg, dep, allowed)
}

type listed struct {
	ImportPath string
	Name       string
	Doc        string
	Dir        string
	Imports    []string
	GoFiles    []string
}

func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// packages lists what is in the module, for the build of every tag in use.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-tags=interop,torture", "-json=ImportPath,Name,Doc,Dir,Imports,GoFiles", "./...")
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module+"/")
		all = append(all, p)
	}
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		if _, ok := row(p.ImportPath); !ok {
			t.Errorf("%s has no row in the import table", p.ImportPath)
			continue
		}
		for _, dep := range p.Imports {
			dep, ours := strings.CutPrefix(dep, module+"/")
			if !ours {
				continue
			}
			if err := checkImport(p.ImportPath, dep); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestImportTable keeps the rule itself honest: these are the imports that matter most.
func TestImportTable(t *testing.T) {
	for _, c := range []struct {
		pkg, dep string
		ok       bool
	}{
		{"engine", "engine/segment", true},
		{"engine", "codec/batch", false},
		{"engine/segment", "engine/vfs", true},
		{"engine/segment", "engine/producer", false},
		{"engine/commit", "engine/vfs", false},
		{"engine/state", "engine/commit", true},
		{"engine/state", "engine", false},
		{"netio", "codec/wire", false},
		{"netio", "engine", false},
		{"codec/api", "codec/wire", true},
		{"codec/batch", "codec/api", false},
		{"codec/wire", "netio", false},
		{"server", "engine", true},
		{"server/api", "netio", true},
		{"server", "bench", false},
		{"server", "cmd/kaas", false},
		{"server/causal", "server", false},
		{"server/transcripts", "codec/api", false},
		{"bench", "server", false},
		{"bench/floor", "codec/batch", true},
		{"cmd/kaas", "server", true},
		{"elsewhere", "engine", false},
	} {
		if err := checkImport(c.pkg, c.dep); (err == nil) != c.ok {
			t.Errorf("%s imports %s: allowed want %v, got %v", c.pkg, c.dep, c.ok, err)
		}
	}
}
