package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every key that has an effect is named by a test of something else than this package, which parses and shows keys: what nobody sets and looks
// at may as well have none.
func TestEffectiveKeysAreTested(t *testing.T) {
	table, err := os.ReadFile("defs/keys.tsv")
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	column := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(string(table)), "\n") {
		cells := strings.Split(line, "\t")
		if i == 0 {
			for n, name := range cells {
				column[name] = n
			}
			continue
		}
		if cells[column["class"]] == "effective" {
			left[cells[column["key"]]] = true
		}
	}
	if len(left) < 100 {
		t.Fatalf("%d keys in defs/keys.tsv have an effect", len(left))
	}
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "../../server/config" || strings.HasPrefix(d.Name(), ".") && strings.Trim(d.Name(), ".") != ""):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for key := range left {
			if names(string(text), key) {
				delete(left, key)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range left {
		t.Errorf("%s has an effect, and no test outside server/config names it", key)
	}
}

// names tells whether a text has the key in code, not as part of a longer one and not in a comment alone.
func names(text, key string) bool {
	if !strings.Contains(text, key) {
		return false
	}
	for line := range strings.Lines(text) {
		if at := strings.Index(line, "//"); at >= 0 && strings.TrimSpace(line[:at]) == "" {
			continue
		}
		for rest := line; ; {
			before, after, found := strings.Cut(rest, key)
			if !found {
				break
			}
			if (before == "" || !inKey(before[len(before)-1])) && (after == "" || !inKey(after[0])) {
				return true
			}
			rest = after
		}
	}
	return false
}

// inKey tells whether a key can have that character.
func inKey(c byte) bool { return c == '.' || c == '-' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
