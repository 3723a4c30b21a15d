package logtool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kaas/engine"
	"kaas/engine/state"
	"kaas/engine/vfs"
	"kaas/server/catalog"
)

const (
	// storeDir is the directory of the broker's store of topics and settings in a data directory.
	storeDir = "__kaas"
	// cleanerName is the file that says how far logs are compacted (engine/FORMAT.md §8).
	cleanerName = "cleaner-offset-checkpoint"
)

type storeObject struct {
	Type     string `json:"type"`
	Dir      string `json:"dir"`
	Topics   int    `json:"topics"`
	Problems int    `json:"problems"`
}

// readContext reads what a data directory has besides partitions, and checks it if the whole directory is to be checked.
func readContext(t *target, s *sink) (*dataDir, error) {
	ctx := &dataDir{journal: filepath.Join(t.data, engine.JournalName)}
	check := s
	if t.only != "" {
		check = newSink(false) // a partition is asked about, not this
	}
	err := ctx.readJournal(t.data, check)
	if err == nil {
		err = ctx.checkRedo(t.data, check)
	}
	if err == nil {
		err = ctx.readStore(t.data, check)
	}
	if err == nil {
		err = checkCleaner(filepath.Join(t.data, cleanerName), check)
	}
	if check != s && err != nil {
		return ctx, nil
	}
	return ctx, err
}

func (c *dataDir) readJournal(data string, s *sink) error {
	if _, err := os.Stat(c.journal); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	lines, bad, err := engine.ReadJournal(vfs.OS, data)
	if err != nil {
		return err
	}
	c.lines = make(map[string]engine.JournalLine, len(lines))
	for _, l := range lines {
		c.lines[l.Name] = l
	}
	for _, at := range bad {
		s.doubt(&Problem{c.journal, at, "line does not verify"})
	}
	return nil
}

// readStore reads the topics and checks the store's files.
func (c *dataDir) readStore(data string, s *sink) error {
	dir := filepath.Join(data, storeDir)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil // Apache's, or a partition alone
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, d := range list {
		if !state.IsFile(d.Name()) {
			s.note(filepath.Join(dir, d.Name()), "not a file of a store; not checked")
		}
	}
	before := s.problems
	findings, leftovers, err := state.Verify(vfs.OS, dir)
	if err != nil {
		return err
	}
	for _, name := range leftovers {
		s.leftovers = append(s.leftovers, filepath.Join(dir, name))
		s.note(filepath.Join(dir, name), "left by a checkpoint; the next start removes it")
	}
	for _, f := range findings {
		s.doubt(&Problem{f.File, f.Offset, f.What})
	}
	if err := c.readTopics(dir); err != nil && len(findings) == 0 {
		s.doubt(&Problem{dir, 0, err.Error()})
	}
	verdict := "ok"
	if n := s.problems - before; n > 0 {
		verdict = fmt.Sprintf("%d PROBLEMS", n)
	}
	s.text("%s: %d topics: %s", dir, len(c.topics), verdict)
	s.object(storeObject{"store", dir, len(c.topics), s.problems - before})
	return nil
}

// readTopics opens the store as a start does, on an overlay: opening may cut a torn tail.
func (c *dataDir) readTopics(dir string) error {
	o := newOverlay(vfs.OS)
	defer o.close()
	store, err := state.Open(o, dir, state.Options{CacheBytes: -1})
	if err != nil {
		return err
	}
	list, err := catalog.ReadTopics(store)
	if cerr := store.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	c.topics = make(map[string]topicFacts, len(list))
	for _, t := range list {
		c.topics[t.Name] = topicFacts{t.ID, t.Partitions, t.Configs}
	}
	return nil
}

// checkCleaner reads cleaner-offset-checkpoint: version 0, count, then lines of topic, partition and offset.
func checkCleaner(path string, s *sink) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		s.tell(&Problem{path, 0, "no version 0 and count"})
		return nil
	}
	if n, err := strconv.Atoi(lines[1]); err != nil || n != len(lines)-2 {
		s.tell(&Problem{path, 2, fmt.Sprintf("%d entries, the count says %q", len(lines)-2, lines[1])})
	}
	at := int64(len(lines[0]) + len(lines[1]) + 2)
	for _, line := range lines[2:] {
		f := strings.Fields(line)
		ok := len(f) == 3
		for i := 1; ok && i < 3; i++ {
			n, err := strconv.ParseInt(f[i], 10, 64)
			ok = err == nil && n >= 0
		}
		if !ok {
			s.tell(&Problem{path, at, "want a topic, a partition and an offset"})
			return nil
		}
		at += int64(len(line)) + 1
	}
	return nil
}
