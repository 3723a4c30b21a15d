package kraft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kaas/codec/batch"
	"kaas/engine/segment"
	"kaas/server/config"
)

// MetadataDir is the directory of Apache's metadata log in a data directory.
const MetadataDir = "__cluster_metadata-0"

// recordBytesMax bounds what a compressed batch of metadata may become; Apache's own batches have 8 MiB at most.
const recordBytesMax = 1 << 28

// Control records of the metadata log; the number is in the key, after a version of 2 bytes.
const (
	controlSnapshotHeader = 3
	controlSnapshotFooter = 4
)

// readMetadata applies the newest snapshot and all that follows it in the log.
func readMetadata(dir string) (*image, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var bases []int64
	snapshot, from := "", int64(0)
	for _, e := range entries {
		if base, suffix, ok := segment.ParseName(e.Name()); ok && suffix == segment.LogSuffix {
			bases = append(bases, base)
		}
		if end, ok := parseSnapshotName(e.Name()); ok && (snapshot == "" || end >= from) { // later epochs sort later
			snapshot, from = e.Name(), end
		}
	}
	slices.Sort(bases)
	img := newImage()
	r := metadataReader{img: img, inflater: batch.NewInflater(recordBytesMax)}
	if snapshot != "" {
		if err := r.readSnapshot(filepath.Join(dir, snapshot)); err != nil {
			return nil, err
		}
		img.snapshot, img.end = snapshot, from
	}
	if len(bases) == 0 && snapshot == "" || len(bases) > 0 && bases[0] > from {
		return nil, refusef("the metadata log has no records from offset %d on: %s is incomplete", from, dir)
	}
	for i, base := range bases {
		last := i == len(bases)-1
		if !last && bases[i+1] <= from {
			continue
		}
		if err := r.readSegment(filepath.Join(dir, segment.FileName(base, segment.LogSuffix)), last); err != nil {
			return nil, err
		}
	}
	return img, nil
}

// parseSnapshotName reads <end offset, 20 digits>-<epoch, 10 digits>.checkpoint.
func parseSnapshotName(name string) (end int64, ok bool) {
	stem, ok := strings.CutSuffix(name, ".checkpoint")
	if !ok || len(stem) != 31 || stem[20] != '-' {
		return 0, false
	}
	end, err := strconv.ParseInt(stem[:20], 10, 64)
	_, err2 := strconv.ParseInt(stem[21:], 10, 32)
	return end, err == nil && err2 == nil
}

// metadataReader applies files to an image.
type metadataReader struct {
	img      *image
	inflater *batch.Inflater

	inTxn   bool
	pending []func() error // records of a metadata transaction, applied when it ends
}

func (r *metadataReader) readSnapshot(name string) error {
	footer := false
	end, err := walkBatches(name, func(v batch.View) error {
		if footer {
			return errors.New("records after the footer")
		}
		if v.IsControl() {
			t, err := r.controlType(v)
			footer = t == controlSnapshotFooter
			return err
		}
		return r.apply(v, true)
	})
	if err == nil && end != nil {
		err = end
	}
	if err == nil && !footer {
		err = errors.New("no footer")
	}
	if err != nil {
		return refusef("snapshot of the metadata %s: %v", name, err)
	}
	return nil
}

// readSegment applies what a segment has beyond img.end. Only the last may end in a torn batch.
func (r *metadataReader) readSegment(name string, last bool) error {
	damage, err := walkBatches(name, func(v batch.View) error {
		switch {
		case v.LastOffset() < r.img.end:
			return nil
		case v.BaseOffset() > r.img.end:
			return fmt.Errorf("offset %d follows %d", v.BaseOffset(), r.img.end-1)
		}
		if !v.IsControl() {
			if err := r.apply(v, false); err != nil {
				return err
			}
		}
		r.img.end = v.LastOffset() + 1
		return nil
	})
	if err == nil && damage != nil {
		if last {
			r.img.torn = true
			return nil
		}
		err = damage
	}
	if err != nil {
		return refusef("metadata log %s: %v", name, err)
	}
	return nil
}

func (r *metadataReader) controlType(v batch.View) (uint16, error) {
	var c batch.Cursor
	if err := c.Open(v, r.inflater); err != nil {
		return 0, err
	}
	if !c.Next() || len(c.Key()) < 4 {
		return 0, errors.New("bad control record")
	}
	return binary.BigEndian.Uint16(c.Key()[2:]), nil
}

// apply takes the records of a batch into the image, in the log those that it does not have yet.
func (r *metadataReader) apply(v batch.View, whole bool) error {
	var c batch.Cursor
	if err := c.Open(v, r.inflater); err != nil {
		return err
	}
	for c.Next() {
		if !whole && c.Offset() < r.img.end {
			continue
		}
		m, err := decodeRecord(c.Value())
		if err == nil {
			err = r.take(m)
		}
		if err != nil {
			return fmt.Errorf("offset %d: %w", c.Offset(), err)
		}
	}
	return c.Err()
}

// walkBatches calls f for each batch of a file. damage is why the file ends before its last byte; it is nil if it does not.
func walkBatches(name string, f func(v batch.View) error) (damage, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	for pos := int64(0); pos < info.Size(); {
		head := make([]byte, batch.HeaderSize)
		n, err := file.ReadAt(head, pos)
		if err != nil && err != io.EOF {
			return nil, err
		}
		h, err := batch.PeekHeader(head[:n])
		if err == nil && int64(h.Size()) > info.Size()-pos {
			err = batch.ErrTorn
		}
		if err != nil {
			return fmt.Errorf("position %d: %w", pos, err), nil
		}
		b := make([]byte, h.Size())
		if _, err := file.ReadAt(b, pos); err != nil {
			return nil, err
		}
		v, err := batch.Next(b)
		if err != nil {
			return fmt.Errorf("position %d: %w", pos, err), nil
		}
		if err := f(v); err != nil {
			return nil, fmt.Errorf("position %d: %w", pos, err)
		}
		pos += int64(v.Size())
	}
	return nil, nil
}

// properties reads a Java properties file, as meta.properties is.
func properties(name string) (map[string]string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	list, problems := config.ParseProperties(name, string(b))
	if len(problems) > 0 {
		return nil, refusef("%v", problems[0])
	}
	m := map[string]string{}
	for _, s := range list {
		m[s.Key] = s.Value
	}
	return m, nil
}

// checkpoint reads one of Apache's offset checkpoints: 0, count, then lines of topic, partition and offset. Missing is empty.
func checkpoint(name string) (map[string]int64, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	bad := refusef("%s is damaged; remove it if Apache Kafka can do without it", name)
	f := strings.Fields(string(b))
	if len(f) < 2 || f[0] != "0" || len(f) != 2+3*int(parse(f[1])) {
		return nil, bad
	}
	m := map[string]int64{}
	for f = f[2:]; len(f) > 0; f = f[3:] {
		partition, offset := parse(f[1]), parse(f[2])
		if partition < 0 || offset < 0 {
			return nil, bad
		}
		m[f[0]+"-"+f[1]] = offset
	}
	return m, nil
}

// parse reads a number; -1 for what is none or negative.
func parse(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
