package logtool

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"kaas/engine"
	"kaas/engine/segment"
)

const metadataName = "partition.metadata"

// partition is the check of one directory.
type partition struct {
	*sink
	dir string
	ctx *dataDir
	counts
	files  map[string]map[int64]bool // by suffix, then base offset
	epochs []epochEntry
	lacks  map[int32]bool // epochs that were told to be missing

	first, next int64 // offsets: the first there is, and the one after the batch before
	end         int64 // after the last
	epoch       int32 // of the last batch
	replay      *replay

	id      [16]byte // of the topic, by partition.metadata
	hasID   bool
	foreign bool // that is not the catalog's
}

func newPartition(s *sink, dir string, ctx *dataDir) *partition {
	return &partition{sink: s, dir: dir, ctx: ctx, files: map[string]map[int64]bool{}, lacks: map[int32]bool{}, first: -1, epoch: -1}
}

type partitionObject struct {
	Type string `json:"type"`
	Dir  string `json:"dir"`
	counts
	FirstOffset int64 `json:"firstOffset"`
	NextOffset  int64 `json:"nextOffset"`
	Problems    int   `json:"problems"`
}

// conclude tells the verdict.
func (p *partition) conclude() {
	verdict := "ok"
	if p.problems > 0 {
		verdict = fmt.Sprintf("%d PROBLEMS", p.problems)
	}
	offsets := "empty"
	if p.first >= 0 {
		offsets = "offsets " + span(p.first, p.end-1)
	}
	p.text("%s: %d segments, %d batches, %d records, %d bytes, %s: %s", p.dir, p.Segments, p.Batches, p.Records, p.Bytes, offsets, verdict)
	p.object(partitionObject{"partition", p.dir, p.counts, p.first, p.end, p.problems})
}

func (p *partition) path(base int64, suffix string) string {
	return filepath.Join(p.dir, segment.FileName(base, suffix))
}

// behind tells whether the files beside a segment may lack what its log has: they are written when it is sealed. limit is the base of the
// next segment, -1 for the last one.
func (p *partition) behind(limit int64) bool {
	line, known := p.ctx.line(p.dir)
	switch {
	case p.running:
		return true
	case !known: // no journal says how the last process ended
		return limit < 0
	case !line.Dirty:
		return false
	}
	return limit < 0 || limit > line.Recovery
}

func (p *partition) check() error {
	if err := p.list(); err != nil {
		return err
	}
	if err := p.smallFiles(); err != nil {
		return err
	}
	bases := p.sorted(segment.LogSuffix)
	if err := p.begin(bases); err != nil {
		return err
	}
	for i, base := range bases {
		limit := int64(-1)
		if i+1 < len(bases) {
			limit = bases[i+1]
		}
		if err := p.segment(base, limit); err != nil {
			return err
		}
	}
	if err := p.replay.end(); err != nil {
		return err
	}
	p.checkEnd()
	for _, swap := range p.leftovers {
		if err := p.checkSwap(swap); err != nil {
			return err
		}
	}
	return nil
}

// checkEnd compares what other files say of offsets with where the log ends.
func (p *partition) checkEnd() {
	if n := len(p.epochs); n > 0 && !p.behind(-1) && p.first >= 0 && p.epochs[n-1].start > p.end {
		p.tell(&Problem{filepath.Join(p.dir, epochsName), 0, fmt.Sprintf("epoch %d begins at %d, but the log ends at %d", p.epochs[n-1].epoch, p.epochs[n-1].start, p.end)})
	}
	if line, known := p.ctx.line(p.dir); known && p.first >= 0 && !p.running && line.Start > p.end {
		p.note(p.ctx.journal, fmt.Sprintf("the log of %s starts at %d, but ends at %d: the next start empties it", filepath.Base(p.dir), line.Start, p.end))
	}
}

// checkSwap reads a log file that compaction was about to put in place: it stands for segments that may be gone.
func (p *partition) checkSwap(path string) error {
	if !strings.HasSuffix(path, segment.LogSuffix+segment.SwapSuffix) {
		return nil
	}
	r, closeFile, err := openBatches(path)
	if err != nil {
		return err
	}
	defer closeFile()
	for {
		v, pos, err := r.next()
		var problem *Problem
		switch {
		case errors.As(err, &problem):
			p.tell(problem)
			return nil
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case !v.CheckCRC():
			p.tell(&Problem{path, pos, "batch of offsets " + span(v.BaseOffset(), v.LastOffset()) + ": CRC does not match"})
		}
	}
}

func (p *partition) sorted(suffix string) []int64 {
	var list []int64
	for base := range p.files[suffix] {
		list = append(list, base)
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	return list
}

// leftover says what a name that a crash left means, "" if it is none.
func leftover(name string) string {
	for suffix, what := range map[string]string{
		segment.CleanedSuffix: "left by a compaction that was cut short; the next start removes it",
		segment.SwapSuffix:    "left by a compaction that was cut short; the next start finishes it or takes it back",
		".deleted":            "set aside to be removed; the next start does it",
		".tmp":                "left by a write that was cut short; the next start removes it",
	} {
		if strings.HasSuffix(name, suffix) {
			return what
		}
	}
	return ""
}

// list sorts the files of the directory by kind.
func (p *partition) list() error {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	for _, d := range entries {
		name := d.Name()
		path := filepath.Join(p.dir, name)
		base, suffix, ok := segment.ParseName(name)
		_, known := kinds[suffix]
		switch {
		case ok && known && d.Type().IsRegular():
			if p.files[suffix] == nil {
				p.files[suffix] = map[int64]bool{}
			}
			p.files[suffix][base] = true
		case name == epochsName || name == metadataName:
		case leftover(name) != "" && d.Type().IsRegular():
			p.leftovers = append(p.leftovers, path)
			p.note(path, leftover(name))
		default:
			p.note(path, "not a file of a partition; not checked")
		}
	}
	for _, suffix := range []string{segment.IndexSuffix, segment.TimeIndexSuffix, segment.TxnIndexSuffix} {
		for _, base := range p.sorted(suffix) {
			if !p.files[segment.LogSuffix][base] {
				p.leftovers = append(p.leftovers, p.path(base, suffix))
				p.note(p.path(base, suffix), "without its .log; not checked")
			}
		}
	}
	return nil
}

// smallFiles reads leader-epoch-checkpoint and partition.metadata.
func (p *partition) smallFiles() error {
	path := filepath.Join(p.dir, epochsName)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		list, problem := epochEntries(path, b)
		if problem != nil {
			p.tell(problem)
		} else {
			p.epochs = list
		}
	}
	path = filepath.Join(p.dir, metadataName)
	b, err = os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	id, problem := topicID(path, b)
	if problem != nil {
		p.tell(problem)
		return nil
	}
	p.id, p.hasID = id, true
	if want, known := p.ctx.topicID(p.dir); known && want != id {
		p.foreign = true
		p.note(path, fmt.Sprintf("topic id %s, the catalog has %s: it belongs to a deleted topic, and the next start sets it aside", idText(id), idText(want)))
	}
	return nil
}

func idText(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// topicID reads partition.metadata.
func topicID(path string, b []byte) (id [16]byte, problem *Problem) {
	version, text := "", ""
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch k {
		case "version":
			version = strings.TrimSpace(v)
		case "topic_id":
			text = strings.TrimSpace(v)
		}
	}
	n, err := base64.RawURLEncoding.Decode(id[:], []byte(text)[:min(len(text), 22)])
	if version != "0" || len(text) != 22 || err != nil || n != len(id) {
		return id, &Problem{path, 0, fmt.Sprintf("version %q and topic id %q: want 0 and 22 characters", version, text)}
	}
	return id, nil
}

// dataDir is what the data directory says of its partitions.
type dataDir struct {
	journal string                        // name of the file
	lines   map[string]engine.JournalLine // nil: there is no journal
	topics  map[string]topicFacts         // nil: there is no catalog, or it cannot be read
}

// topicFacts are of the catalog.
type topicFacts struct {
	id         [16]byte
	partitions int32
	configs    map[string]string
}

// line is what the journal says of a directory; known is false if there is no journal.
func (c *dataDir) line(dir string) (line engine.JournalLine, known bool) {
	return c.lines[filepath.Base(dir)], c.lines != nil
}

// topic is the catalog's topic of a partition's directory.
func (c *dataDir) topic(dir string) (topicFacts, bool) {
	name := filepath.Base(dir)
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return topicFacts{}, false
	}
	t, ok := c.topics[name[:i]]
	return t, ok
}

// topicID is the id that the catalog has for a partition's directory.
func (c *dataDir) topicID(dir string) (id [16]byte, known bool) {
	t, ok := c.topic(dir)
	return t.id, ok
}
