package regress

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// served are the numbers of faults in what the broker serves: the page has a row for each.
func served() (out []int) {
	for n := 1; n <= 81; n++ {
		if n <= 36 || n >= 44 && n <= 55 || n == 66 || n == 69 || n >= 72 {
			out = append(out, n)
		}
	}
	return out
}

var (
	rowForm  = regexp.MustCompile(`(?m)^\| (\d+) \| (.+?) \| (.+) \|$`)
	nameForm = regexp.MustCompile("`([^`]+)`")
)

// docs/regressions.md names a test for every fault, and every test that it names is there and runs.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "regressions.md"))
	if err != nil {
		t.Fatal(err)
	}
	pending, err := os.ReadFile(filepath.Join(root, "server", "transcripts", "notyet_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[int]int{}
	for _, row := range rowForm.FindAllStringSubmatch(string(page), -1) {
		n, _ := strconv.Atoi(row[1])
		rows[n]++
		names := nameForm.FindAllStringSubmatch(row[3], -1)
		if len(names) == 0 {
			t.Errorf("%d: no test", n)
		}
		for _, name := range names {
			if err := testExists(name[1], string(pending)); err != nil {
				t.Errorf("%d: %v", n, err)
			}
		}
	}
	for _, n := range served() {
		if rows[n] != 1 {
			t.Errorf("%d rows for fault %d", rows[n], n)
		}
	}
	if len(rows) != len(served()) {
		t.Errorf("%d rows, want %d", len(rows), len(served()))
	}
}

// testExists looks for "dir.TestName" or "transcript name".
func testExists(name, pending string) error {
	if script, ok := strings.CutPrefix(name, "transcript "); ok {
		found, err := filepath.Glob(filepath.Join(root, "server", "transcripts", "testdata", "*", script+".json"))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("no transcript %s", script)
		}
		if regexp.MustCompile(`[\s]` + regexp.QuoteMeta(script) + "[\\s`]").MatchString(pending) {
			return fmt.Errorf("transcript %s is still pending", script)
		}
		return nil
	}
	dir, test, ok := strings.Cut(name, ".")
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if !ok || err != nil {
		return fmt.Errorf("%s is no name of a test", name)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if strings.Contains(string(src), "\nfunc "+test+"(t *testing.T)") {
			return nil
		}
	}
	return fmt.Errorf("no test %s in %s", test, dir)
}

// The check above sees a test that is not there.
func TestPageCheck(t *testing.T) {
	pending := "\"groups\": `\n\t\ta-b produce-v9 c`"
	for name, want := range map[string]bool{
		"engine.TestTornTail": true, "engine.TestTorn": false, "nowhere.TestTornTail": false, "TestTornTail": false, "engine.FuzzX": false,
		"transcript produce-v10": true, "transcript produce-v9": false, "transcript produce": false,
	} {
		if err := testExists(name, pending); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
