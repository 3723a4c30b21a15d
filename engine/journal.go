package engine

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"kaas/engine/vfs"
)

// journal is the file kaas.journal of a data directory: which logs may be dirty and from where to recover them, and log
// starts inside a segment. A start reads it and knows which logs it need not look at.
//
// It is a text file of lines, each with a CRC; a later line replaces an earlier one of the same log; FORMAT.md has the
// grammar. It is written in place at its end and rewritten whole when most of it is outdated.
type journal struct {
	fs  vfs.FS
	dir string

	mu      sync.Mutex // guards what follows; held over appends to the page cache
	file    vfs.File
	size    int64
	entries map[string]journalEntry
	lines   int  // in the file
	doubt   bool // a sync of the file failed: only a new one is durable

	nameNew bool         // the file's name is not yet durable; guarded by syncMu
	written atomic.Int64 // lines ever written; behind the write
	synced  atomic.Int64 // of those, durable; behind the sync, so that nobody passes one that still runs
	syncMu  sync.Mutex   // one sync at a time; taken before mu
}

type journalEntry struct {
	dirty    bool
	failed   bool  // dirty, and went offline: what the page cache has of it need not be on the disk
	holes    bool  // dirty, and what is scanned may have been compacted: by another program, or before a repair
	recovery int64 // offset from which a dirty log is scanned
	start    int64 // log start, 0: that of the first segment
	// topic is the id of the topic that the log belongs to: an entry must not be taken for that of a later topic of the same name. Zero:
	// not known, whoever has the name.
	topic [16]byte
}

// empty reports that there is nothing to remember.
func (e *journalEntry) empty() bool { return !e.dirty && e.recovery == 0 && e.start == 0 }

// is reports whether the entry is about a log of that topic.
func (e *journalEntry) is(topic [16]byte) bool {
	return e.topic == topic || e.topic == [16]byte{} || topic == [16]byte{}
}

// claim makes it an entry of that topic; what it says of another goes.
func (e *journalEntry) claim(topic [16]byte) {
	if !e.is(topic) {
		*e = journalEntry{}
	}
	e.topic = topic
}

const (
	journalName     = "kaas.journal"
	journalMax      = 1 << 30
	journalSlack    = 4096 // outdated lines before it is rewritten
	journalMinLines = 64
	holesSuffix     = "-holes"
)

var errDoubt = errors.New("an earlier sync of the journal failed")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func openJournal(f vfs.FS, dir string) (*journal, error) {
	j := &journal{fs: f, dir: dir, entries: map[string]journalEntry{}}
	b, err := vfs.ReadFile(f, dir+"/"+journalName, journalMax)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	missing := err != nil
	all := 0
	for rest := b; len(rest) > 0; all++ {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		j.apply(line)
	}
	if missing {
		if err := syncParents(f, dir); err != nil {
			return nil, err
		}
	}
	if all != len(j.entries) || len(b) > 0 && b[len(b)-1] != '\n' { // outdated or damaged lines
		if err := j.rewrite(); !vfs.NoRoom(err) {
			return j, err
		}
	}
	// Nothing to write: an empty file need not be durable before the first line is.
	if j.file, err = f.Open(dir+"/"+journalName, vfs.Create); err != nil {
		return nil, err
	}
	j.size = int64(bytes.LastIndexByte(b, '\n') + 1) // half a line is written over
	j.nameNew = missing
	if len(j.entries) == 0 {
		return j, nil
	}
	// After a kill neither these lines nor the directories of the logs in them need be durable: a log start is published from here. They go
	// to a new file, as a sync of this one may have failed before. A full disk has no room for that: then there was no such failure, as
	// a rule.
	if err := j.rewrite(); !vfs.NoRoom(err) {
		return j, err
	}
	if err := j.file.Sync(); err != nil {
		return nil, err
	}
	return j, f.SyncDir(dir)
}

// ask finds out whether the kernel has failed to write something that the process before may not have heard of: a kill can come between a
// failed sync and the line that says so, or while the sync runs. A volume that is opened later tells, if nobody was told. Then every dirty log
// counts as failed. While it is asked the file says that already: who dies meanwhile has taken the answer along.
func (j *journal) ask(v vfs.Volume, log *slog.Logger) error {
	if v == nil || !j.anyDirty() {
		return nil
	}
	was := j.entries
	j.entries = map[string]journalEntry{}
	for name, e := range was {
		e.failed = e.dirty
		j.entries[name] = e
	}
	written := j.rewrite()
	if written != nil && !vfs.NoRoom(written) { // a full disk leaves the risk of a kill just now
		return written
	}
	if err := v.Sync(); err != nil {
		log.Warn("the file system has failed to write something: what unclean logs keep is written again", "error", err)
		return nil
	}
	j.entries = was
	if written != nil {
		return nil
	}
	if err := j.rewrite(); !vfs.NoRoom(err) { // then the next start writes again in vain
		return err
	}
	return nil
}

// syncParents makes the name of a new data directory durable, and the names above it, of which some may be new too. It runs
// before the journal is made: a data directory with a journal is durable.
func syncParents(f vfs.FS, dir string) error {
	for dir = path.Clean(dir); dir != path.Dir(dir); dir = path.Dir(dir) {
		if err := f.SyncDir(path.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) { // not ours, so not made by us
			return err
		}
	}
	return nil
}

// apply takes one line; one that does not verify was never synced and is passed over.
func (j *journal) apply(line []byte) {
	if len(line) < 10 || line[8] != ' ' {
		return
	}
	crc, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil || uint32(crc) != crc32.Checksum(line[9:], castagnoli) {
		return
	}
	f := bytes.Split(line[9:], []byte{' '})
	if len(f) != 4 && len(f) != 5 {
		return
	}
	recovery, err1 := strconv.ParseInt(string(f[2]), 10, 64)
	start, err2 := strconv.ParseInt(string(f[3]), 10, 64)
	if err1 != nil || err2 != nil {
		return
	}
	state, holes := strings.CutSuffix(string(f[0]), holesSuffix)
	failed := state == "failed"
	e := journalEntry{dirty: failed || state == "dirty", failed: failed, holes: holes, recovery: recovery, start: start}
	if len(f) == 5 {
		if n, err := base64.RawURLEncoding.Decode(e.topic[:], f[4][:min(len(f[4]), 22)]); err != nil || n != len(e.topic) {
			return
		}
	}
	j.lines++
	j.set(string(f[1]), e)
}

func (j *journal) set(name string, e journalEntry) {
	if e.empty() {
		delete(j.entries, name)
	} else {
		j.entries[name] = e
	}
}

func appendLine(b []byte, name string, e journalEntry) []byte {
	state := "clean"
	switch {
	case e.failed:
		state = "failed"
	case e.dirty:
		state = "dirty"
	}
	if e.dirty && e.holes {
		state += holesSuffix
	}
	body := fmt.Sprintf("%s %s %d %d", state, name, e.recovery, e.start)
	if e.topic != [16]byte{} && !e.empty() {
		body += " " + topicID(e.topic)
	}
	return fmt.Appendf(b, "%08x %s\n", crc32.Checksum([]byte(body), castagnoli), body)
}

// rewrite replaces the file by one with the present entries only.
func (j *journal) rewrite() error {
	names := make([]string, 0, len(j.entries))
	for n := range j.entries {
		names = append(names, n)
	}
	sort.Strings(names)
	var b []byte
	for _, n := range names {
		b = appendLine(b, n, j.entries[n])
	}
	if err := vfs.WriteFile(j.fs, j.dir, journalName, b); err != nil {
		return err
	}
	file, err := j.fs.Open(j.dir+"/"+journalName, vfs.ReadWrite)
	if err != nil {
		return err
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.size, j.lines, j.doubt = file, int64(len(b)), len(names), false
	return nil
}

func (j *journal) get(name string) journalEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries[name]
}

// anyDirty reports that a log may be dirty.
func (j *journal) anyDirty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e.dirty {
			return true
		}
	}
	return false
}

func (j *journal) dirty(name string) bool { return j.get(name).dirty }

// update changes the entry of a log and writes its line. The line survives the process at once, a power cut after sync.
func (j *journal) update(name string, change func(e *journalEntry)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return ErrClosed
	}
	old := j.entries[name]
	e := old
	change(&e)
	if e == old {
		return nil
	}
	line := appendLine(nil, name, e)
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		return err
	}
	j.size += int64(len(line))
	j.lines++
	j.set(name, e)
	j.written.Add(1)
	return nil
}

// forget drops the entry of a log that is gone.
func (j *journal) forget(name string) {
	// A line that could not be written leaves an entry of a log that is gone, which a new log of that name forgets again.
	_ = j.update(name, func(e *journalEntry) { *e = journalEntry{} })
}

// sync makes all lines durable.
func (j *journal) sync() error {
	return j.syncTo(j.written.Load())
}

// syncTo makes the first n lines durable.
func (j *journal) syncTo(n int64) error {
	if j.synced.Load() >= n {
		return nil
	}
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	if j.synced.Load() >= n {
		return nil
	}
	j.mu.Lock()
	file, seen := j.file, j.written.Load()
	var err error
	if j.doubt {
		err = errDoubt
	}
	j.mu.Unlock()
	if file == nil {
		return ErrClosed
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil && j.nameNew {
		err = j.fs.SyncDir(j.dir)
	}
	j.nameNew = false
	if err != nil {
		// What a failed sync leaves behind is unknown: the entries go into a new file instead.
		j.mu.Lock()
		defer j.mu.Unlock()
		j.doubt = true
		if rerr := j.rewrite(); rerr != nil {
			return errors.Join(err, rerr)
		}
		seen = j.written.Load()
	}
	j.synced.Store(seen)
	return nil
}

// compact rewrites the file when it is mostly outdated.
func (j *journal) compact() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil || j.lines < max(journalMinLines, len(j.entries)+journalSlack) {
		return nil
	}
	if err := j.rewrite(); err != nil {
		return err
	}
	j.synced.Store(j.written.Load())
	return nil
}

func (j *journal) close() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	var err error
	if j.lines != len(j.entries) || j.doubt {
		err = j.rewrite()
	} else if j.synced.Load() < j.written.Load() {
		err = j.file.Sync()
	}
	j.file.Close()
	j.file = nil
	return err
}
