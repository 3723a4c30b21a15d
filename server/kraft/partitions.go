package kraft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/engine/segment"
)

// Files of Apache's in a data directory.
const (
	metaProperties  = "meta.properties"
	cleanMark       = ".kafka_cleanshutdown"
	recoveryPoints  = "recovery-point-offset-checkpoint"
	logStarts       = "log-start-offset-checkpoint"
	partitionMeta   = "partition.metadata"
	epochCheckpoint = "leader-epoch-checkpoint"
)

// survey is what the directory of one partition has.
type survey struct {
	id       wire.UUID // of partition.metadata, zero if there is none
	maxEpoch int32     // of leader-epoch-checkpoint, -1
	bytes    int64
	logs     []string // segment files, in order
	swaps    []string // .log.swap files: whole segments that take the place of those whose offsets they have, which the engine's first load does
}

// surveyPartition looks at a partition's directory. A missing one is empty: Apache was stopped before it was made.
func surveyPartition(dir string) (*survey, error) {
	s := &survey{maxEpoch: -1}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, suffix, ok := segment.ParseName(e.Name()); ok && suffix == segment.LogSuffix {
			info, err := e.Info()
			if err != nil {
				return nil, err
			}
			s.bytes += info.Size()
			s.logs = append(s.logs, filepath.Join(dir, e.Name()))
		}
	}
	if err := s.surveySwaps(dir, entries); err != nil {
		return nil, err
	}
	if s.id, err = readTopicID(filepath.Join(dir, partitionMeta)); err != nil {
		return nil, err
	}
	s.maxEpoch, err = readMaxEpoch(filepath.Join(dir, epochCheckpoint))
	return s, err
}

// surveySwaps looks at what a cleaning left that was stopped. Apache takes back a swap of which, or of a segment before which, a .cleaned
// file is left: those of a segment that was split count together or not at all. The engine does not, so such a directory is refused.
func (s *survey) surveySwaps(dir string, entries []fs.DirEntry) error {
	cleaned := int64(math.MaxInt64)
	for _, e := range entries {
		if base, _, ok := segment.ParseName(strings.TrimSuffix(e.Name(), segment.CleanedSuffix)); ok && strings.HasSuffix(e.Name(), segment.CleanedSuffix) {
			cleaned = min(cleaned, base)
		}
	}
	for _, e := range entries {
		base, suffix, ok := segment.ParseName(strings.TrimSuffix(e.Name(), segment.SwapSuffix))
		switch {
		case !ok || suffix != segment.LogSuffix || !strings.HasSuffix(e.Name(), segment.SwapSuffix):
		case base >= cleaned:
			return refusef("%s holds %s and .cleaned files: Apache Kafka was stopped while it replaced segments after cleaning; start and stop it once more so that it finishes",
				dir, e.Name())
		default:
			s.swaps = append(s.swaps, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

func readTopicID(name string) (wire.UUID, error) {
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wire.UUID{}, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "topic_id: "); ok {
			id, err := wire.ParseUUID(text)
			if err != nil {
				return id, refusef("%s: %v", name, err)
			}
			return id, nil
		}
	}
	return wire.UUID{}, nil
}

// readMaxEpoch reads the last epoch of a checkpoint. What does not parse does not count: the metadata has the epochs as well.
func readMaxEpoch(name string) (int32, error) {
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return -1, err
	}
	f := strings.Fields(string(b))
	highest := int32(-1)
	for i := 2; i+1 < len(f); i += 2 {
		if n, err := strconv.ParseInt(f[i], 10, 32); err == nil {
			highest = max(highest, int32(n))
		}
	}
	return highest, nil
}

// checkFormat refuses message formats before 2. Apache writes them in order of age, so the first batch of a segment tells; in
// segments that the first start will scan every batch is looked at, since the scan would take an old one for a torn tail.
func (s *survey) checkFormat(log engine.Imported) error {
	for _, name := range s.swaps {
		if err := checkSwap(name); err != nil {
			return err
		}
	}
	for i, name := range s.logs {
		scanned := log.Dirty
		if i+1 < len(s.logs) {
			next, _, _ := segment.ParseName(filepath.Base(s.logs[i+1]))
			scanned = log.Dirty && next > log.Recovery
		}
		if err := checkSegment(name, scanned); err != nil {
			return err
		}
	}
	return nil
}

// checkSwap refuses a swap in which not every batch is whole: the segments that it stands for may be gone, and Apache would not find them
// either. The engine would not open the log.
func checkSwap(name string) error {
	if err := checkSegment(name, true); err != nil {
		return err
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for pos := 0; pos < len(b); {
		v, err := batch.Next(b[pos:])
		if err != nil {
			return refusef("%s is damaged at byte %d: %v", name, pos, err)
		}
		pos += v.Size()
	}
	return nil
}

// checkSegment walks the headers of a segment, or looks at the first. Without all it must be a batch of format 2 or nothing.
func checkSegment(name string, all bool) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	head := make([]byte, batch.HeaderSize)
	for pos := int64(0); pos < info.Size(); {
		n, err := f.ReadAt(head, pos)
		if err != nil && err != io.EOF {
			return err
		}
		v, err := batch.PeekHeader(head[:n])
		if err == nil {
			if pos += int64(v.Size()); !all {
				return nil
			}
			continue
		}
		magic, err := oldMagic(f, pos, info.Size())
		switch {
		case err != nil:
			return err
		case magic >= 0:
			return refusef("segment %s holds messages of format %d (position %d): only format 2 can be read; write the topic anew with Apache Kafka 3.0 or later",
				name, magic, pos)
		case !all && !allZero(head[:n]):
			return refusef("segment %s does not begin with a record batch", name)
		}
		return nil // a torn tail, or room allocated ahead: recovery's business
	}
	return nil
}

func allZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// oldMagic is 0 or 1 if a message of that format is at pos, by its CRC; otherwise -1.
func oldMagic(f io.ReaderAt, pos, size int64) (int, error) {
	const head, minMessage = 17, 14 // offset 8, size 4, CRC 4, magic 1; the smallest message by its size field
	b := make([]byte, head)
	if n, err := f.ReadAt(b, pos); n < head {
		if err == io.EOF {
			err = nil
		}
		return -1, err
	}
	length := int64(int32(binary.BigEndian.Uint32(b[8:])))
	if b[16] > 1 || length < minMessage || pos+12+length > size {
		return -1, nil
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(f, pos+16, length-4)); err != nil {
		return -1, err
	}
	if sum.Sum32() != binary.BigEndian.Uint32(b[12:]) {
		return -1, nil
	}
	return int(b[16]), nil
}

// takePartition checks one partition of a topic and says what the journal needs to know of its log.
func (p *plan) takePartition(t *topic, index int32, part *partition, r *TopicReport) error {
	name := fmt.Sprintf("%s-%d", t.name, index)
	if len(part.replicas) != 1 || part.replicas[0] != p.report.NodeID {
		return refusef("partition %s has replicas on %v: only a node that is alone (%d) can be imported; reassign the partitions first",
			name, part.replicas, p.report.NodeID)
	}
	if p.elsewhere(part.directories) {
		return refusef("partition %s lies in another log directory (%v): only a broker with one log directory can be imported", name, part.directories)
	}
	s, err := surveyPartition(filepath.Join(p.dir, name))
	if err != nil {
		return err
	}
	if s.id != (wire.UUID{}) && s.id != t.id {
		if !p.img.removed[s.id] {
			return refusef("directory %s belongs to topic id %v, not %v as the metadata has it: move it away if its records are not needed", name, s.id, t.id)
		}
		// kaas sets it aside as Apache does: a topic that was deleted, and made again before its directory was gone.
		p.report.Removed = append(p.report.Removed, name)
		r.LastEpoch = max(r.LastEpoch, part.epoch)
		return nil
	}
	log := engine.Imported{Name: name, Dirty: !p.report.Clean, Recovery: p.recovery[name], Start: p.starts[name]}
	if err := s.checkFormat(log); err != nil {
		return err
	}
	if len(s.logs)+len(s.swaps) > 0 { // without a segment there is nothing to scan, and the log start counts
		p.logs = append(p.logs, log)
	} else if log.Start > 0 {
		p.logs = append(p.logs, engine.Imported{Name: name, Start: log.Start})
	}
	r.LastEpoch = max(r.LastEpoch, part.epoch, s.maxEpoch)
	r.Bytes += s.bytes
	p.known[name] = true
	return nil
}

// elsewhere tells whether a partition was assigned to another directory. The first 100 ids are reserved (unassigned, lost,
// migrating).
func (p *plan) elsewhere(directories []wire.UUID) bool {
	if p.directory == (wire.UUID{}) || len(directories) == 0 {
		return false
	}
	d := directories[0]
	reserved := allZero(d[:15]) && d[15] < 100
	return !reserved && d != p.directory
}
