package arch

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// stalePages names, for each page that is generated, the test that fails when it is stale.
var stalePages = map[string]string{
	"docs/api-matrix.md":    "server/api.TestMatrixPageIsCurrent",
	"docs/api-reference.md": "server/api/gen.TestReferencePageIsCurrent",
	"docs/commands.md":      "cmd/kaas.TestReferenceIsFresh",
	"docs/configuration.md": "server/config/gen.TestGeneratedFilesAreFresh",
	"docs/metrics.md":       "server/metrics.TestPageIsCurrent",
}

var (
	fence    = regexp.MustCompile("(?ms)^```.*?^```[^\n]*$")
	indented = regexp.MustCompile(`(?m)^(?: {4}|\t)[^\n]*$`)
	code     = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.+?)\s*$`)
	slugged  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	pageName = regexp.MustCompile(`\bdocs/[\w-]+\.md\b`)
)

// anchors are the names by which the headings of a page can be linked to, as forges make them: lower case, no punctuation, hyphens for spaces,
// and a number from the second of the same name on.
func anchors(text string) map[string]bool {
	out, seen := map[string]bool{}, map[string]int{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.ReplaceAll(slugged.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
		if n := seen[name]; n > 0 {
			out[fmt.Sprintf("%s-%d", name, n)] = true
		} else {
			out[name] = true
		}
		seen[name]++
	}
	return out
}

// deadLinks tells which links of a page lead nowhere within the repository. Addresses of the network are not asked.
func deadLinks(fsys fs.FS, name, text string) (dead []string) {
	prose := code.ReplaceAllString(indented.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), "")
	for _, m := range link.FindAllStringSubmatch(prose, -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		target := name
		if file != "" {
			target = path.Join(path.Dir(name), file)
		}
		if _, err := fs.Stat(fsys, target); err != nil {
			dead = append(dead, fmt.Sprintf("%s: %s: %v", name, m[1], err))
			continue
		}
		if anchor == "" {
			continue
		}
		page, err := fs.ReadFile(fsys, target)
		if err != nil || !anchors(string(page))[anchor] {
			dead = append(dead, fmt.Sprintf("%s: %s: no such heading", name, m[1]))
		}
	}
	return dead
}

// listFiles lists the files of the repository that match the patterns, new ones that git does not ignore among them.
func listFiles(t *testing.T, patterns ...string) (names []string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, patterns...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("no git here to list the files with: %v", err)
	}
	for _, name := range strings.Fields(string(out)) {
		if _, err := os.Stat(path.Join(root(t), name)); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// Every link of a page leads somewhere, and every page under docs/ that a comment or a page names is there.
func TestLinks(t *testing.T) {
	fsys := os.DirFS(root(t))
	pages := 0
	for _, name := range listFiles(t, "*.md", "*.go", "Makefile", ".ci/*") {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".md") {
			pages++
			for _, d := range deadLinks(fsys, name, string(text)) {
				t.Error(d)
			}
		}
		if name == "server/arch/pages_test.go" || !strings.Contains(string(text), "docs/") {
			continue
		}
		for _, page := range pageName.FindAllString(string(text), -1) {
			if _, err := fs.Stat(fsys, page); err != nil {
				t.Errorf("%s names %s: %v", name, page, err)
			}
		}
	}
	if pages < 10 {
		t.Errorf("%d pages looked at: there are more", pages)
	}
}

// Every page of docs/ can be reached from the README.
func TestEveryPageIsLinked(t *testing.T) {
	readme, err := os.ReadFile(path.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range listFiles(t, "docs/*.md") {
		if !strings.Contains(string(readme), "]("+name+")") {
			t.Errorf("README.md has no link to %s", name)
		}
	}
}

// A page that says it is generated has a test that finds it stale.
func TestGeneratedPages(t *testing.T) {
	found := 0
	for _, name := range listFiles(t, "docs/*.md") {
		text, err := os.ReadFile(path.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text[:min(len(text), 400)]), "Do not edit.") {
			continue
		}
		found++
		dir, test, ok := strings.Cut(stalePages[name], ".")
		if !ok {
			t.Errorf("%s is generated and no test is known that finds it stale", name)
			continue
		}
		there := false
		for _, src := range listFiles(t, dir+"/*_test.go") {
			if text, err := os.ReadFile(path.Join(root(t), src)); err == nil && path.Dir(src) == dir {
				there = there || strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)")
			}
		}
		if !there {
			t.Errorf("%s: there is no test %s in %s", name, test, dir)
		}
	}
	if found != len(stalePages) {
		t.Errorf("%d generated pages, %d are in the table", found, len(stalePages))
	}
}

// TestDeadLinks keeps the check itself honest.
func TestDeadLinks(t *testing.T) {
	page := "# One\n## 2. Two words, `x`\n## One\n```\n# not a heading\n[a](none)\n```\n    [b](none)\n`[c](none)` [d](https://x.invalid/y)\n"
	fsys := fstest.MapFS{"docs/page.md": {Data: []byte(page)}, "README.md": {Data: []byte("# Readme")}}
	if dead := deadLinks(fsys, "docs/page.md", page); dead != nil {
		t.Error(dead)
	}
	for target, want := range map[string]bool{
		"../README.md": true, "../README.md#readme": true, "..": true, "page.md": true, "#one": true, "#one-1": true, "#2-two-words-x": true,
		"../README.md#none": false, "README.md": false, "page.md#not-a-heading": false, "#two": false, "../docs#one": false,
	} {
		if dead := deadLinks(fsys, "docs/page.md", "see [it]("+target+"), there"); (dead == nil) != want {
			t.Errorf("%s: %v", target, dead)
		}
	}
}
