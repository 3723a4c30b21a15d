package logtool

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/codec/batch"
	"kaas/engine/producer"
	"kaas/engine/vfs"
)

// tree reads all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// differences lists the files that are not in both trees with the same content.
func differences(a, b map[string]string) (list []string) {
	for name := range a {
		if x, ok := b[name]; !ok || x != a[name] {
			list = append(list, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// filled is a data directory that a broker has left: topic orders, see fill. It is made once and copied for each test.
func filled(t *testing.T) (data string) {
	t.Helper()
	data = filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(data, os.DirFS(original(t))); err != nil {
		t.Fatal(err)
	}
	return data
}

// original must not be changed.
func original(t *testing.T) string {
	t.Helper()
	if originalDir == "" {
		dir, err := os.MkdirTemp("", "logtool")
		if err != nil {
			t.Fatal(err)
		}
		originalDir = dir
		fill(t, dir, func() {})
	}
	return originalDir
}

var originalDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if originalDir != "" {
		os.RemoveAll(originalDir)
	}
	os.Exit(code)
}

// logs are the log files of a partition, in order.
func logs(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(list) < 3 {
		t.Fatalf("%d segments, %v", len(list), err)
	}
	return list
}

// beside is the name of another file of the same segment.
func beside(log, suffix string) string { return strings.TrimSuffix(log, ".log") + suffix }

func alter(t *testing.T, path string, f func(b []byte) []byte) {
	t.Helper()
	change(t, filepath.Dir(path), filepath.Base(path), f)
}

// harm is a way to damage a filled directory that can be mended without loss; changed are the files that a repair changes, at least.
type harm struct {
	name    string
	do      func(t *testing.T, data, dir string, logs []string)
	changed func(logs []string) []string // relative to dir, or with ../ to the data directory
}

func last(l []string) string { return l[len(l)-1] }

func names1(f func(logs []string) string) func([]string) []string {
	return func(l []string) []string { return []string{f(l)} }
}

func fixed(names ...string) func([]string) []string {
	return func([]string) []string { return names }
}

// segmentHarms damage what belongs to segments.
func segmentHarms() []harm {
	return []harm{
		{"a torn tail", func(t *testing.T, _, _ string, l []string) {
			alter(t, last(l), func(b []byte) []byte { return append(b, b[:1000]...) })
		}, names1(last)},
		{"garbage behind the log", func(t *testing.T, _, _ string, l []string) {
			alter(t, last(l), func(b []byte) []byte { return append(b, bytes.Repeat([]byte{0xa5}, 5000)...) })
		}, names1(last)},
		{"an index of something else", func(t *testing.T, _, _ string, l []string) {
			alter(t, beside(l[1], ".index"), func(b []byte) []byte { return flip(b, 7) })
		}, names1(func(l []string) string { return beside(l[1], ".index") })},
		{"a time index of something else", func(t *testing.T, _, _ string, l []string) {
			alter(t, beside(l[0], ".timeindex"), func(b []byte) []byte { return flip(b, 7) })
		}, names1(func(l []string) string { return beside(l[0], ".timeindex") })},
		{"a transaction that the log does not have", func(t *testing.T, _, dir string, l []string) {
			b := make([]byte, txnWidth)
			b[25] = 1
			write(t, dir, filepath.Base(beside(l[1], ".txnindex")), b)
		}, names1(func(l []string) string { return beside(l[1], ".txnindex") })},
		{"a damaged snapshot", func(t *testing.T, _, _ string, l []string) {
			alter(t, beside(l[1], ".snapshot"), func(b []byte) []byte { return flip(b, 20) })
		}, names1(func(l []string) string { return beside(l[1], ".snapshot") })},
		{"a snapshot of other producers", func(t *testing.T, _, dir string, l []string) {
			var s producer.State
			s.Append(77, 0, 3, 0, 5, t0, 0, false)
			write(t, dir, filepath.Base(beside(l[1], ".snapshot")), s.Snapshot(true))
		}, names1(func(l []string) string { return beside(l[1], ".snapshot") })},
		{"such a snapshot between two segments", func(t *testing.T, _, dir string, l []string) {
			var s producer.State
			s.Append(77, 0, 3, 0, 5, t0, 0, false)
			write(t, dir, "00000000000000000007.snapshot", s.Snapshot(true))
		}, fixed("00000000000000000007.snapshot")},
	}
}

// otherHarms damage the rest.
func otherHarms() []harm {
	return []harm{
		{"damaged epochs", func(t *testing.T, _, dir string, _ []string) {
			write(t, dir, epochsName, []byte("0\n7\n"))
		}, fixed(epochsName)},
		{"epochs that are not the log's", func(t *testing.T, _, dir string, _ []string) {
			write(t, dir, epochsName, []byte("0\n1\n9 0\n"))
		}, fixed(epochsName)},
		{"a damaged topic id", func(t *testing.T, _, dir string, _ []string) {
			write(t, dir, metadataName, []byte("version: 0\ntopic_id: x"))
		}, fixed(metadataName)},
		{"what a compaction and a deletion left", func(t *testing.T, _, dir string, _ []string) {
			for _, name := range []string{logFile + ".cleaned", indexFile + ".swap", logFile + ".deleted", epochsName + ".tmp", "00000000000000000007.index"} {
				write(t, dir, name, []byte("x"))
			}
		}, fixed(logFile+".cleaned", indexFile+".swap", logFile+".deleted", epochsName+".tmp", "00000000000000000007.index")},
		{"a swap that was cut short", func(t *testing.T, _, dir string, l []string) {
			for _, suffix := range []string{".log", ".index", ".timeindex"} {
				if err := os.Rename(beside(l[0], suffix), beside(l[0], suffix)+".swap"); err != nil {
					t.Fatal(err)
				}
			}
			write(t, dir, txnFile+".swap", nil)
		}, fixed(logFile, logFile+".swap", indexFile+".swap", timeFile+".swap")},
		{"a journal with a damaged line", func(t *testing.T, data, _ string, _ []string) {
			write(t, data, "kaas.journal", []byte("00000000 dirty orders-0 5 0\n"))
		}, fixed("../kaas.journal")},
		{"a damaged cleaner checkpoint", func(t *testing.T, data, _ string, _ []string) {
			write(t, data, cleanerName, []byte("0\n9\n"))
		}, fixed("../" + cleanerName)},
		{"a torn tail of the store", func(t *testing.T, data, _ string, _ []string) {
			list, err := filepath.Glob(filepath.Join(data, storeDir, "*.log"))
			if err != nil || len(list) == 0 {
				t.Fatal(list, err)
			}
			alter(t, last(list), func(b []byte) []byte { return append(b, 9, 0, 0, 0, 1, 2, 3) })
		}, fixed("../__kaas/0000000001.log")},
		{"what a checkpoint of the store left", func(t *testing.T, data, _ string, _ []string) {
			write(t, filepath.Join(data, storeDir), "0000000099.ckp.tmp", []byte("x"))
		}, fixed("../__kaas/0000000099.ckp.tmp")},
	}
}

// TestRepair damages one thing at a time. A dry run changes nothing; a repair changes what it says, of which the backup has all; then all
// is in order, a second one has nothing to do, and the broker opens the directory with every record.
func TestRepair(t *testing.T) {
	original(t) // before they run beside each other
	for _, c := range slices.Concat(segmentHarms(), otherHarms()) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data := filled(t)
			dir := filepath.Join(data, "orders-0")
			l := logs(t, dir)
			c.do(t, data, dir, l)
			var want []string
			for _, name := range c.changed(l) {
				if !filepath.IsAbs(name) {
					name = filepath.Join(dir, name)
				}
				rel, _ := filepath.Rel(data, name)
				want = append(want, rel)
			}
			before := tree(t, data)
			code, out, _ := command("repair", "--dry-run", data)
			if d := differences(before, tree(t, data)); code != 0 || len(d) > 0 {
				t.Fatalf("dry run: code %d, changed %v\n%s", code, d, out)
			}
			backup := filepath.Join(t.TempDir(), "backup")
			code, out, stderr := command("repair", "--backup", backup, data)
			after := tree(t, data)
			changed := differences(before, after)
			if code != 0 {
				t.Fatalf("code %d, %q\n%s", code, stderr, out)
			}
			for _, name := range want {
				if !slices.Contains(changed, name) {
					t.Errorf("%s was not changed\n%s", name, out)
				}
			}
			for _, name := range changed {
				if !strings.Contains(out, filepath.Join(data, name)+" (") {
					t.Errorf("the change of %s was not told\n%s", name, out)
				}
			}
			copies := tree(t, backup)
			for _, name := range changed {
				if b, ok := before[name]; ok && copies[name] != b {
					t.Errorf("%s was changed without a copy", name)
				}
			}
			clean(t, data)
			unchanged(t, data)
			if got := readBack(t, data); got != 2000 {
				t.Errorf("%d records of orders-0, want 2000", got)
			}
		})
	}
}

// clean wants a verify without problems and leftovers.
func clean(t *testing.T, data string) {
	t.Helper()
	code, out, stderr := command("verify", "--records", data)
	if code != 0 || strings.Contains(out, "left by") || strings.Contains(out, "without its .log") {
		t.Errorf("verify: code %d, %q\n%s", code, stderr, out)
	}
}

// unchanged wants a repair that has nothing to do.
func unchanged(t *testing.T, data string) {
	t.Helper()
	before := tree(t, data)
	code, out, _ := command("repair", data)
	if d := differences(before, tree(t, data)); code != 0 || len(d) > 0 || out != "0 files changed, 0 partitions refused, 0 problems left\n" {
		t.Errorf("repair of what is in order: code %d, changed %v\n%s", code, d, out)
	}
}

// readBack starts a broker on data and counts the records of orders-0.
func readBack(t *testing.T, data string) (n int) {
	t.Helper()
	b := broker(t, data)
	defer func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	}()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Ready().Listeners["PLAINTEXT"]),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup("orders", 0)
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { n, next = n+1, r.Offset+1 })
	}
	return n
}

// TestRepairOfDamageInTheMiddle: it is refused with the offsets that would be lost, and nothing is changed; when it is wanted, the log ends
// before the damage, and the backup has what was behind it.
func TestRepairOfDamageInTheMiddle(t *testing.T) {
	for name, harm := range map[string]func(b []byte, pos int64) []byte{
		"a flipped bit in a record":     func(b []byte, pos int64) []byte { return flip(b, pos+100) },
		"a damaged length":              func(b []byte, pos int64) []byte { return flip(b, pos+9) },
		"a hole":                        func(b []byte, pos int64) []byte { clear(b[pos : pos+300]); return b },
		"a batch that is there no more": func(b []byte, pos int64) []byte { return append(b[:pos:pos], b[pos+1:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			data := filled(t)
			dir := filepath.Join(data, "orders-0")
			l := logs(t, dir)
			raw, err := os.ReadFile(l[1])
			if err != nil {
				t.Fatal(err)
			}
			pos := positions(t, raw)[3]
			at := batch.View(raw[pos:]).BaseOffset()
			alter(t, l[1], func(b []byte) []byte { return harm(b, pos) })
			before := tree(t, data)
			code, out, stderr := command("repair", "--json", data)
			why := fmt.Sprintf(`"fromOffset":%d,"toOffset":2000,`, at)
			if d := differences(before, tree(t, data)); code != 1 || len(d) > 0 || !strings.Contains(out, why) || !strings.Contains(stderr, "1 partitions refused") {
				t.Fatalf("code %d, changed %v, %q, want %s\n%s", code, d, stderr, why, out)
			}
			backup := filepath.Join(t.TempDir(), "backup")
			if code, out, stderr := command("repair", "--cut-damaged", "--backup", backup, dir); code != 0 {
				t.Fatalf("code %d, %q\n%s", code, stderr, out)
			}
			copies := tree(t, backup)
			for _, log := range l[1:] {
				rel, _ := filepath.Rel(data, log)
				if copies[rel] != before[rel] {
					t.Errorf("no copy of %s", rel)
				}
			}
			if now := logs0(t, dir); !slices.Equal(now, l[:2]) {
				t.Errorf("segments left: %v", now)
			}
			clean(t, data)
			unchanged(t, data)
			if got := readBack(t, data); int64(got) != at {
				t.Errorf("%d records of orders-0, want %d", got, at)
			}
		})
	}
}

func logs0(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// guardFS watches that no file that was there at the beginning is changed before a copy of it is durable, and fails at an operation.
type guardFS struct {
	vfs.FS
	t        *testing.T
	data     string
	backup   string
	before   map[string]string
	synced   map[string]bool // files, and directories since the last change of a name in them
	ops      int
	failAt   int
	changing int // operations that changed the data directory
}

var errGuard = fmt.Errorf("the operation was made to fail")

func (g *guardFS) op() error {
	if g.ops++; g.ops == g.failAt {
		return errGuard
	}
	return nil
}

// check is called before name is changed.
func (g *guardFS) check(name string) {
	rel, err := filepath.Rel(g.data, name)
	if err != nil || strings.HasPrefix(rel, "..") {
		return
	}
	g.changing++
	old, ok := g.before[rel]
	if !ok {
		return
	}
	to := filepath.Join(g.backup, rel)
	b, err := os.ReadFile(to)
	if err != nil || string(b) != old {
		g.t.Errorf("%s is changed without a copy: %v", rel, err)
	}
	for _, name := range []string{to, filepath.Dir(to), filepath.Dir(g.backup)} {
		if !g.synced[name] {
			g.t.Errorf("%s is changed before %s is durable", rel, name)
		}
	}
}

func (g *guardFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if mode == vfs.ReadOnly {
		return g.FS.Open(name, mode)
	}
	if err := g.op(); err != nil {
		return nil, err
	}
	g.synced[name], g.synced[filepath.Dir(name)] = false, false
	f, err := g.FS.Open(name, mode)
	return &guardFile{f, g, name}, err
}

func (g *guardFS) Remove(name string) error {
	g.check(name)
	if err := g.op(); err != nil {
		return err
	}
	return g.FS.Remove(name)
}

func (g *guardFS) Rename(from, to string) error {
	g.check(to)
	if !g.synced[from] {
		g.t.Errorf("%s gets its name before it is durable", to)
	}
	if err := g.op(); err != nil {
		return err
	}
	return g.FS.Rename(from, to)
}

func (g *guardFS) SyncDir(dir string) error {
	if err := g.op(); err != nil {
		return err
	}
	g.synced[dir] = true
	return g.FS.SyncDir(dir)
}

type guardFile struct {
	vfs.File
	g    *guardFS
	name string
}

func (f *guardFile) WriteAt(p []byte, off int64) (int, error) {
	f.g.check(f.name)
	if err := f.g.op(); err != nil {
		return 0, err
	}
	f.g.synced[f.name] = false
	return f.File.WriteAt(p, off)
}

func (f *guardFile) Truncate(size int64) error {
	f.g.check(f.name)
	if err := f.g.op(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *guardFile) Sync() error {
	if err := f.g.op(); err != nil {
		return err
	}
	f.g.synced[f.name] = true
	return f.File.Sync()
}

// TestRepairInterrupted: at whatever operation a repair ends, no file was changed without a durable copy, and the next one does the rest.
func TestRepairInterrupted(t *testing.T) {
	harmed := filled(t)
	dir := filepath.Join(harmed, "orders-0")
	l := logs(t, dir)
	alter(t, l[1], func(b []byte) []byte { return flip(b, positions(t, b)[3]+100) })
	alter(t, beside(l[0], ".index"), func(b []byte) []byte { return flip(b, 7) })
	write(t, dir, epochsName, []byte("0\n7\n"))
	write(t, dir, logFile+".cleaned", []byte("x"))
	before := tree(t, harmed)
	reached := false
	for n := 1; ; n += 1 + n/3 { // of early operations each, then a sample
		data := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(data, os.DirFS(harmed)); err != nil {
			t.Fatal(err)
		}
		backup := filepath.Join(t.TempDir(), "backup")
		g := &guardFS{FS: vfs.OS, t: t, data: data, backup: backup, before: maps.Clone(before), synced: map[string]bool{}, failAt: n}
		var out bytes.Buffer
		r := &repair{output: newOutput(&out, false), fs: g, now: time.Now, cutDamaged: true, backup: backup}
		err := r.run(data)
		if t.Failed() {
			t.Fatalf("operation %d: %v\n%s", n, err, out.String())
		}
		if err == nil {
			if g.changing < 5 {
				t.Errorf("only %d changes were seen", g.changing)
			}
			break
		}
		reached = reached || g.changing > 0
		code, text, stderr := command("repair", "--cut-damaged", data)
		if code != 0 {
			t.Fatalf("after operation %d (%v): code %d, %q\n%s", n, err, code, stderr, text)
		}
		if now := logs0(t, filepath.Join(data, "orders-0")); len(now) != 2 {
			t.Errorf("after operation %d (%v): segments left: %v", n, err, now)
		}
		clean(t, data)
	}
	if !reached {
		t.Error("no repair ended after the first change")
	}
}

// killed is a data directory as a kill of its broker leaves it: logs dirty, data in the commit journal, nothing closed.
func killed(t *testing.T) (data string) {
	t.Helper()
	data = filepath.Join(t.TempDir(), "killed")
	running := t.TempDir()
	fill(t, running, func() {
		if err := os.CopyFS(data, os.DirFS(running)); err != nil {
			t.Fatal(err)
		}
	})
	return data
}

// TestRepairAfterKill: what the last process left is no problem. With damage besides, all that it had acknowledged is there after the
// repair, also what only the commit journal has, which itself stays for the other logs.
func TestRepairAfterKill(t *testing.T) {
	data := killed(t)
	dir := filepath.Join(data, "orders-0")
	clean(t, data)
	l := logs(t, dir)
	alter(t, beside(l[0], ".index"), func(b []byte) []byte { return flip(b, 7) })
	alter(t, l[len(l)-1], func(b []byte) []byte { // the power went: the last batches are in the commit journal only
		n := len(bytes.TrimRight(b, "\x00"))
		clear(b[n-500 : n])
		return b
	})
	redo, err := filepath.Glob(filepath.Join(data, "kaas.redo.*"))
	if err != nil || len(redo) == 0 {
		t.Fatalf("no commit journal: %v", err)
	}
	before := tree(t, data)
	if code, out, stderr := command("repair", "--backup", filepath.Join(t.TempDir(), "backup"), data); code != 0 {
		t.Fatalf("code %d, %q\n%s", code, stderr, out)
	}
	after := tree(t, data)
	for _, name := range redo {
		if rel := filepath.Base(name); before[rel] != after[rel] {
			t.Errorf("%s was changed", rel)
		}
	}
	clean(t, data)
	unchanged(t, data)
	if got := readBack(t, data); got != 2000 {
		t.Errorf("%d records of orders-0, want 2000", got)
	}
}

// TestRepairAfterFailedSync: the journal goes on saying that the log failed, so that the next start writes again what it keeps of it.
func TestRepairAfterFailedSync(t *testing.T) {
	data := filled(t)
	l := logs(t, filepath.Join(data, "orders-0"))
	const body = "failed orders-0 0 0"
	line := fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)), body)
	write(t, data, "kaas.journal", []byte(line))
	alter(t, last(l), func(b []byte) []byte { return append(b, b[:1000]...) })
	if code, out, stderr := command("repair", "--backup", filepath.Join(t.TempDir(), "backup"), data); code != 0 {
		t.Fatalf("code %d, %q\n%s", code, stderr, out)
	}
	clean(t, data)
	if got := tree(t, data)["kaas.journal"]; got != line {
		t.Errorf("the journal says %q, want %q", got, line)
	}
}

// TestRepairRefuses: directories that are in use or not kaas's, and backups in wrong places.
func TestRepairRefuses(t *testing.T) {
	data := filled(t)
	lock, err := vfs.OS.Lock(filepath.Join(data, lockName))
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(want string, args ...string) {
		t.Helper()
		code, out, stderr := command(append([]string{"repair"}, args...)...)
		if code != 1 || !strings.Contains(stderr, want) || out != "" {
			t.Errorf("%v: code %d, %q\n%s", args, code, stderr, out)
		}
	}
	refuse("is in use by a broker: stop it first", data)
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	refuse("lies in the data directory", "--backup", filepath.Join(data, "x"), data)
	refuse("exists already", "--backup", t.TempDir(), data)
	refuse("is not a data directory of kaas", filepath.Join(testdata, "apache", "orders-0"))
	refuse("neither a data directory", t.TempDir())
}

// TestRepairOfTheStore: damage inside the store of topics is refused, and nothing is changed.
func TestRepairOfTheStore(t *testing.T) {
	data := filled(t)
	change(t, filepath.Join(data, storeDir), "0000000001.log", func(b []byte) []byte { return flip(b, 60) })
	before := tree(t, data)
	code, out, _ := command("repair", data)
	if d := differences(before, tree(t, data)); code != 1 || len(d) > 0 || !strings.Contains(out, "put it back from a backup") {
		t.Errorf("code %d, changed %v\n%s", code, d, out)
	}
}
