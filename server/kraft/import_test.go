package kraft_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kaas/engine/state"
	"kaas/engine/vfs"
	"kaas/server/catalog"
	"kaas/server/kraft"
)

const catalogDir = "__kaas"

func importDir(dir string, dryRun bool) (*kraft.Report, error) {
	return kraft.Import(dir, kraft.Options{DryRun: dryRun, Unprotected: true, CatalogDir: catalogDir, Now: func() time.Time { return time.Unix(1<<31, 0) }})
}

func mustImport(t *testing.T, dir string) *kraft.Report {
	t.Helper()
	r, err := importDir(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestReport: what an import says of the archive of a clean stop.
func TestReport(t *testing.T) {
	t.Parallel()
	dir := unpack(t, "clean")
	r := mustImport(t, dir)
	if r.Already || r.DryRun || !r.Clean || r.TornMetadata || r.NodeID != 1 || r.ClusterID != "QmBc4yIcR4SsLRAsROTFSA" || r.MetadataOffset != 175 ||
		r.NextProducerID != 1<<51 {
		t.Errorf("%+v", r)
	}
	names := []string{"__consumer_offsets", "__transaction_state", "appendtime", "compacted", "deleted-some", "gone-and-back", "orders", "plain"}
	for i, topic := range r.Topics {
		if topic.Name != names[i] || topic.Internal != (i < 2) || topic.LastEpoch != 1 {
			t.Errorf("topic %d: %+v, want %s", i, topic, names[i])
		}
	}
	plain := kraft.TopicReport{Name: "plain", ID: "aQ3cni1BS1qTPFamJq79nw", Partitions: 3, LastEpoch: 1, Bytes: 55574,
		Configs: map[string]string{"index.interval.bytes": "512", "retention.ms": "-1", "segment.bytes": "16384"}}
	if len(r.Topics) != len(names) || !reflect.DeepEqual(r.Topics[7], plain) {
		t.Errorf("%d topics, plain %+v", len(r.Topics), r.Topics[len(r.Topics)-1])
	}
	stored := kraft.Stored{ACLs: 2, ScramUsers: []string{"alice SCRAM-SHA-256", "bob SCRAM-SHA-512"}, Quotas: 1, Features: 1}
	if !reflect.DeepEqual(r.Stored, stored) {
		t.Errorf("stored %+v", r.Stored)
	}
	alone := []string{"__cluster_metadata-0", "bootstrap.checkpoint", "cleaner-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties",
		"recovery-point-offset-checkpoint", "replication-offset-checkpoint"}
	if !slices.Equal(r.LeftAlone, alone) || r.Removed != nil {
		t.Errorf("left alone %v, removed %v", r.LeftAlone, r.Removed)
	}
	if len(r.Warnings) != 2 || !strings.Contains(r.Warnings[0], "2 ACLs are kept but NOT enforced") {
		t.Errorf("warnings %q", r.Warnings)
	}
	if _, err := os.Stat(filepath.Join(dir, ".kafka_cleanshutdown")); !os.IsNotExist(err) {
		t.Errorf("Apache's mark of a clean stop: %v", err)
	}
}

// TestKept: ACLs, users and quotas are in the catalog as they were in the metadata.
func TestKept(t *testing.T) {
	dir := unpack(t, "killed")
	mustImport(t, dir)
	store, err := state.Open(vfs.OS, filepath.Join(dir, catalogDir), state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	k, err := catalog.ReadKept(store)
	if err != nil {
		t.Fatal(err)
	}
	operations := map[int8]bool{}
	for _, a := range k.ACLs {
		operations[a.Operation] = true
		if a.ResourceType != 2 || a.PatternType != 4 || a.Permission != 3 || a.Resource != "orders" || a.Principal != "User:alice" || a.Host != "*" {
			t.Errorf("%+v", a)
		}
	}
	if len(k.ACLs) != 2 || !operations[3] || !operations[4] { // Read and Write
		t.Errorf("operations %v", operations)
	}
	users := []catalog.ScramUser{{Name: "alice", Mechanism: 1, Iterations: 4096}, {Name: "bob", Mechanism: 2, Iterations: 8192}}
	for i, u := range k.Users {
		size := 32 * int(u.Mechanism)
		if len(u.Salt) == 0 || len(u.StoredKey) != size || len(u.ServerKey) != size || bytes.Equal(u.StoredKey, u.ServerKey) {
			t.Errorf("%+v", u)
		}
		if u.Salt, u.StoredKey, u.ServerKey = nil, nil, nil; !reflect.DeepEqual(u, users[i]) {
			t.Errorf("%+v, want %+v", u, users[i])
		}
	}
	quotas := []catalog.Quota{{Entity: []catalog.QuotaEntity{{Type: "user", Name: "alice"}}, Values: map[string]float64{"producer_byte_rate": 1048576}}}
	if len(k.Users) != 2 || !reflect.DeepEqual(k.Quotas, quotas) || !maps.Equal(k.Features, map[string]int16{"metadata.version": 19}) {
		t.Errorf("users %v, quotas %v, features %v", k.Users, k.Quotas, k.Features)
	}
}

func TestDryRunAndAgain(t *testing.T) {
	t.Parallel()
	dir := unpack(t, "killed")
	before := tree(t, dir)
	dry, err := importDir(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(tree(t, dir), before) {
		t.Error("a dry run changed something")
	}
	r := mustImport(t, dir)
	if dry.DryRun = false; !reflect.DeepEqual(dry, r) {
		t.Errorf("done %+v, the dry run said %+v", r, dry)
	}
	after := tree(t, dir)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was changed", name)
		}
		delete(after, name)
	}
	for name := range after {
		if name != "kaas.journal" && !strings.HasPrefix(name, catalogDir+"/") {
			t.Errorf("%s is new", name)
		}
	}
	again := mustImport(t, dir)
	if !again.Already || again.MetadataOffset != 138 || !reflect.DeepEqual(again.Stored, r.Stored) {
		t.Errorf("second time: %+v", again)
	}
	now := tree(t, dir)
	for name, content := range before {
		if now[name] != content {
			t.Errorf("%s was changed by the second import", name)
		}
	}
}

// TestImportAfterApacheWrote: the catalog is not made anew behind the back of one who has it.
func TestImportAfterApacheWrote(t *testing.T) {
	dir := unpack(t, "clean")
	log := filepath.Join(dir, kraft.MetadataDir, "00000000000000000000.log")
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, whole[:len(whole)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if r := mustImport(t, dir); !r.TornMetadata || r.MetadataOffset >= 175 {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(log, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	var refusal *kraft.Refusal
	if _, err := importDir(dir, false); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "Apache Kafka has written since, up to 175") {
		t.Errorf("%v", err)
	}
}

// TestSnapshot: the metadata in a third archive was altered after that of clean, Apache taking a snapshot at every record. Its last
// snapshot and its log say the same.
func TestSnapshot(t *testing.T) {
	read := func(remove string) *kraft.Report {
		dir := unpack(t, "snapshot")
		files, err := filepath.Glob(filepath.Join(dir, kraft.MetadataDir, remove))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if err := os.Remove(files[0]); err != nil {
			t.Fatal(err)
		}
		r, err := importDir(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		r.Dir, r.LeftAlone = "", nil
		return r
	}
	bySnapshot, byLog := read("*.log"), read("*.checkpoint")
	if bySnapshot.Snapshot != "00000000000000000338-0000000003.checkpoint" || bySnapshot.MetadataOffset != 338 {
		t.Errorf("%+v", bySnapshot)
	}
	if bySnapshot.Snapshot = ""; !reflect.DeepEqual(bySnapshot, byLog) {
		t.Errorf("by snapshot %+v, by log\n%+v", bySnapshot, byLog)
	}
	brokers := map[string]map[string]string{"": {"log.retention.ms": "777777777"}, "1": {"message.max.bytes": "2000000", "my.unknown.key": "(hidden)"}}
	stored := kraft.Stored{ACLs: 2, ScramUsers: []string{"bob SCRAM-SHA-512"}, Quotas: 2, Features: 1, ClientMetrics: 1}
	if !reflect.DeepEqual(byLog.BrokerConfigs, brokers) || !reflect.DeepEqual(byLog.Stored, stored) {
		t.Errorf("broker settings %v, stored %+v", byLog.BrokerConfigs, byLog.Stored)
	}
	plain := map[string]string{"retention.ms": "-1", "segment.bytes": "16384"}
	if late := byLog.Topics[6]; len(byLog.Topics) != 9 || late.Name != "late" || late.Partitions != 2 || !maps.Equal(byLog.Topics[8].Configs, plain) {
		t.Errorf("topics %+v", byLog.Topics)
	}
}

func TestInUse(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		dir := unpack(t, "clean", "orders-0")
		before := tree(t, dir)
		// As Apache does: a record lock of the process.
		f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			t.Fatal(err)
		}
		if _, err := importDir(dir, dryRun); !errors.Is(err, kraft.ErrInUse) {
			t.Errorf("beside Apache: %v", err)
		}
		f.Close()
		lock, err := vfs.OS.Lock(filepath.Join(dir, ".lock"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := importDir(dir, dryRun); !errors.Is(err, kraft.ErrInUse) {
			t.Errorf("beside kaas: %v", err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(tree(t, dir), before) {
			t.Error("something was changed")
		}
	}
}

// dying is a file system that ends, as the process would, after some changes.
type dying struct {
	vfs.FS
	left int
	once bool // one change fails, and all after it go well: not the end of the process, but an error
}

var errDead = errors.New("dead")

func (d *dying) change() error {
	if d.left--; d.left == -1 || d.left < 0 && !d.once {
		return errDead
	}
	return nil
}

func (d *dying) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if mode == vfs.Create || mode == vfs.CreateNew {
		if err := d.change(); err != nil {
			return nil, err
		}
	}
	f, err := d.FS.Open(name, mode)
	return &dyingFile{f, d}, err
}

func (d *dying) MkdirAll(dir string) error {
	if err := d.change(); err != nil {
		return err
	}
	return d.FS.MkdirAll(dir)
}

func (d *dying) Rename(from, to string) error {
	if err := d.change(); err != nil {
		return err
	}
	return d.FS.Rename(from, to)
}

func (d *dying) Remove(name string) error {
	if err := d.change(); err != nil {
		return err
	}
	return d.FS.Remove(name)
}

func (d *dying) SyncDir(dir string) error {
	if err := d.change(); err != nil {
		return err
	}
	return d.FS.SyncDir(dir)
}

type dyingFile struct {
	vfs.File
	d *dying
}

func (f *dyingFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.d.change(); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f *dyingFile) Sync() error {
	if err := f.d.change(); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestInterrupted: an import that ends after any of its changes leaves the directory as Apache needs it, or it is done; and the next
// import does the rest.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	o := kraft.Options{Unprotected: true, CatalogDir: catalogDir}
	done, undone := 0, 0
	for n := 0; ; n++ {
		dir := unpack(t, "clean", "orders-0")
		before := tree(t, dir)
		_, err := kraft.ImportOn(&dying{FS: vfs.OS, left: n}, dir, o)
		if err == nil {
			break
		}
		if !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		after := tree(t, dir)
		_, imported := after[catalogDir+"/"]
		for name, content := range before {
			if got, ok := after[name]; (!ok || got != content) && !(imported && name == ".kafka_cleanshutdown") {
				t.Errorf("after %d changes: %s is not as it was", n, name)
			}
		}
		for name := range after {
			// Of what is new Apache must not trip over anything: it passes over files, and the staging directory it removes.
			if _, old := before[name]; !old && !imported && name != "kaas.journal" && name != "kaas.journal.tmp" && !strings.HasPrefix(name, "__kaas-0.import-delete/") {
				t.Errorf("after %d changes: %s is new", n, name)
			}
		}
		if imported {
			done++
		} else {
			undone++
		}
		if r := mustImport(t, dir); r.Already != imported {
			t.Errorf("after %d changes: imported %v, then %v", n, imported, r.Already)
		}
		end := tree(t, dir)
		for name := range end {
			if strings.Contains(name, "import") || name == ".kafka_cleanshutdown" {
				t.Errorf("after %d changes and another import: %s is there", n, name)
			}
		}
	}
	if done < 2 || undone < 5 {
		t.Errorf("interrupted %d times before the rename, %d times after", undone, done)
	}
}

// TestFailed: an import that fails leaves the directory as it was, or is done.
func TestFailed(t *testing.T) {
	t.Parallel()
	failed := 0
	for n := 0; ; n++ {
		dir := unpack(t, "clean", "orders-0")
		before := tree(t, dir)
		_, err := kraft.ImportOn(&dying{FS: vfs.OS, left: n, once: true}, dir, kraft.Options{Unprotected: true, CatalogDir: catalogDir})
		if err == nil {
			break
		}
		after := tree(t, dir)
		if _, imported := after[catalogDir+"/"]; !imported && !maps.Equal(after, before) {
			for name := range after {
				if _, ok := before[name]; !ok {
					t.Errorf("change %d failed: %s is new", n, name)
				}
			}
		}
		failed++
	}
	if failed < 7 {
		t.Errorf("%d failures", failed)
	}
}

// TestRefusals: what is not understood is left alone.
func TestRefusals(t *testing.T) {
	replace := func(name, old, new string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !strings.Contains(string(b), old) {
				t.Fatalf("%v: %q", err, b)
			}
			write(t, dir, name, strings.Replace(string(b), old, new, 1))
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add := func(name, content string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { write(t, dir, name, content) }
	}
	metaLog := kraft.MetadataDir + "/00000000000000000000.log"
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"not Kafka's":       {remove("meta.properties"), "holds no meta.properties"},
		"ZooKeeper":         {replace("meta.properties", "version=1", "version=0"), "not of KRaft mode"},
		"another node":      {replace("meta.properties", "node.id=1", "node.id=2"), "controllers are"},
		"bad directory id":  {replace("meta.properties", "directory.id=U", "directory.id=?"), "directory.id"},
		"another directory": {replace("meta.properties", "directory.id=UD9oaA", "directory.id=UD9oaB"), "lies in another log directory"},
		"broker only":       {remove(kraft.MetadataDir), "is no controller"},
		"two controllers":   {replace(kraft.MetadataDir+"/quorum-state", `{"voterId":1}`, `{"voterId":1},{"voterId":2}`), "controllers are"},
		"no metadata":       {remove(metaLog), "is incomplete"},
		"bad log starts":    {add("log-start-offset-checkpoint", "0\n2\ndeleted-some 0 17\n"), "log-start-offset-checkpoint is damaged"},
		"negative start":    {add("log-start-offset-checkpoint", "0\n1\ndeleted-some 0 -17\n"), "log-start-offset-checkpoint is damaged"},
		"damaged swap":      {add("compacted-0/00000000000000000000.log.swap", "x"), "is damaged at byte 0"},
		"unfinished swap": {func(t *testing.T, dir string) {
			add("compacted-0/00000000000000000000.log.swap", "")(t, dir)
			add("compacted-0/00000000000000000000.index.cleaned", "")(t, dir)
		}, "replaced segments after cleaning"},
		"stray partition":    {add("nobody-0/partition.metadata", "version: 0\ntopic_id: aQ3cni1BS1qTPFamJq79nw\n"), "no topic of the metadata owns directory nobody-0"},
		"one more partition": {add("plain-3/x", ""), "no topic of the metadata owns directory plain-3"},
		"another topic's":    {add("plain-1/partition.metadata", "version: 0\ntopic_id: aQ3cni1BS1qTPFamJq79nA\n"), "belongs to topic id aQ3cni1BS1qTPFamJq79nA"},
		"format 1":           {add("plain-1/00000000000000000000.log", oldMessage(1)), "holds messages of format 1 (position 0)"},
		"format 0":           {add("plain-1/00000000000000000219.log", oldMessage(0)), "holds messages of format 0 (position 0)"},
		"no batch":           {add("plain-1/00000000000000000000.log", strings.Repeat("x", 100)), "does not begin with a record batch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := unpack(t, "clean", "compacted-0", "plain-1")
			c.change(t, dir)
			before := tree(t, dir)
			_, err := importDir(dir, false)
			var refusal *kraft.Refusal
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if !maps.Equal(tree(t, dir), before) {
				t.Error("something was changed")
			}
		})
	}
}

// TestSwapIsFinished: a kill while a cleaned segment took its place. What it stands for is what is read, whether the segments that it
// replaces are there, and with their offsets, or gone.
func TestSwapIsFinished(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{true, false} {
		dir := unpack(t, "killed")
		at := filepath.Join(dir, "compacted-0")
		segments, err := filepath.Glob(filepath.Join(at, "*.log"))
		if err != nil || len(segments) < 2 {
			t.Fatal(segments, err)
		}
		first := strings.TrimSuffix(segments[0], ".log")
		for _, suffix := range []string{".log", ".index", ".timeindex"} {
			b, err := os.ReadFile(first + suffix)
			if err == nil {
				err = os.WriteFile(first+suffix+".swap", b, 0o644)
			}
			if err == nil && !old {
				err = os.Remove(first + suffix)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		mustImport(t, dir)
		b := serve(t, dir)
		check(t, b, "killed", fmt.Sprintf("with a swap, old segment there %v", old), 0)
		stop(t, b)
		if left, err := filepath.Glob(filepath.Join(at, "*.swap")); len(left) > 0 || err != nil {
			t.Errorf("left: %v %v", left, err)
		}
	}
}

// TestOldFormatBehindRecoveryPoint: in what a start scans, every batch is looked at, or the scan would take the rest for a torn tail.
func TestOldFormatBehindRecoveryPoint(t *testing.T) {
	t.Parallel()
	for archive, refused := range map[string]bool{"killed": true, "clean": false} {
		dir := unpack(t, archive, "plain-1")
		segments, err := filepath.Glob(filepath.Join(dir, "plain-1", "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		last := segments[len(segments)-1]
		b, err := os.ReadFile(last)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(last, append(b, oldMessage(1)...), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = importDir(dir, true)
		if !refused && err != nil || refused && (err == nil || !strings.Contains(err.Error(), "holds messages of format 1")) {
			t.Errorf("%s: %v", archive, err)
		}
	}
}

// TestLeftovers: of directories that Apache had put aside, deleted partitions go and the others stay.
func TestLeftovers(t *testing.T) {
	dir := unpack(t, "clean")
	const stem = "plain-0.0123456789abcdef0123456789abcdef"
	for _, suffix := range []string{"-delete", "-stray", "-future"} {
		write(t, dir, stem+suffix+"/x", "")
	}
	r, err := importDir(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Removed, []string{stem + "-delete"}) || !slices.Contains(r.LeftAlone, stem+"-stray") || !slices.Contains(r.LeftAlone, stem+"-future") {
		t.Errorf("removed %v, left alone %v", r.Removed, r.LeftAlone)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// oldMessage is a message of format 0 or 1.
func oldMessage(magic byte) string {
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, 1) // timestamp
	}
	body = append(body, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 'v') // null key, value
	b := make([]byte, 8)                                         // offset
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return string(append(b, body...))
}

// TestProtectedDirectoryIsRefused: nothing falls open by an import; a dry run only tells.
func TestProtectedDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := unpack(t, "clean")
	var refusal *kraft.Refusal
	if _, err := kraft.Import(dir, kraft.Options{CatalogDir: catalogDir}); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "2 ACLs and 2 SCRAM") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir + "/" + catalogDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused import left a catalog: %v", err)
	}
	if _, err := kraft.Import(dir, kraft.Options{CatalogDir: catalogDir, DryRun: true}); err != nil {
		t.Errorf("dry run: %v", err)
	}
}
