package regress

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

var kipForm = regexp.MustCompile(`(?m)^\| (\d+) \| [^|\n]+ \| [^|\n]+ \| (.+) \|$`)

// docs/kips.md names tests for every KIP, in ascending order, and every test that it names is there and runs.
func TestKIPs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "kips.md"))
	if err != nil {
		t.Fatal(err)
	}
	pending, err := os.ReadFile(filepath.Join(root, "server", "transcripts", "notyet_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	last, rows := 0, kipForm.FindAllStringSubmatch(string(page), -1)
	for _, row := range rows {
		n, _ := strconv.Atoi(row[1])
		if n <= last {
			t.Errorf("KIP-%d stands after KIP-%d", n, last)
		}
		last = n
		names := nameForm.FindAllStringSubmatch(row[2], -1)
		if len(names) == 0 {
			t.Errorf("KIP-%d: no test", n)
		}
		for _, name := range names {
			if err := testExists(name[1], string(pending)); err != nil {
				t.Errorf("KIP-%d: %v", n, err)
			}
		}
	}
	if all := regexp.MustCompile(`(?m)^\| \d+ \|`).FindAll(page, -1); len(rows) != len(all) || len(rows) < 30 {
		t.Errorf("%d rows were read of %d", len(rows), len(all))
	}
}

// Tests that other pages name are there, too.
func TestNamesInPages(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`([a-z0-9/]+\\.Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
			found++
			if err := testExists(name[1], ""); err != nil {
				t.Errorf("%s: %v", filepath.Base(page), err)
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names were found", found)
	}
}
