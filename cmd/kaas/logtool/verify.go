package logtool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"kaas/engine/segment"
)

func verifyCommand() *cobra.Command {
	var asJSON, records, quiet bool
	c := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check a data directory, or the directory of one partition",
		Long: `Check a data directory, or the directory of one partition. Files are only read. Checked are:

  .log         every batch is whole, its CRC matches, its offsets follow those before it, lie in its segment and go with its
               number of records; leader epochs do not go back; with --records every batch is decompressed and each record
               read: lengths, offset order
  .index       whole ascending entries, each the position of a batch that holds its offset
  .timeindex   whole ascending entries, each the maximum timestamp of a batch that holds its offset, and none before is later
  .txnindex    whole ascending entries, each with the abort marker of its producer at its last offset
  .snapshot    CRC and size, no offset after the snapshot's own
  leader-epoch-checkpoint, partition.metadata
               they can be read; no epoch begins after a batch of it
  names        of directories and files

Not checked yet: that snapshots hold exactly the producers that the batches give, that no aborted transaction is missing
from a .txnindex, and the store of topics and settings in __kaas.

A torn tail is a problem although the next start of the broker cuts it, if nothing in it was acknowledged. What is odd and
harmless (files left over, unknown names) is told as a note. If a broker uses the directory, the newest segments change while
they are checked: stop it, or check a copy.

The exit code is 1 if there was a problem. With --json every line is one object, its field "type" says what: problem, note,
partition, total.`,
		Example: `  kaas log verify data
  kaas log verify --records --json data/orders-0 | jq 'select(.type == "problem")'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			v := &verify{output: newOutput(c.OutOrStdout(), asJSON), records: records}
			if !quiet {
				v.progress = progressTo(c.ErrOrStderr())
			}
			return v.run(args[0])
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	c.Flags().BoolVar(&records, "records", false, "decompress batches and read every record: slower")
	c.Flags().BoolVar(&quiet, "no-progress", false, "no progress on standard error (there is none anyway if that is no terminal)")
	return c
}

// progressTo returns a function that shows a line of progress, twice a second at most, if w is a terminal.
func progressTo(w io.Writer) func(line string) {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	var shown time.Time
	return func(line string) {
		if now := time.Now(); line == "" || now.Sub(shown) > time.Second/2 {
			shown = now
			fmt.Fprintf(f, "\r\x1b[K%s", line)
		}
	}
}

// verify is one run of the command.
type verify struct {
	*output
	records  bool
	progress func(line string) // nil: none

	done, all int // partitions
	total     counts
}

// counts are what was checked.
type counts struct {
	Segments int   `json:"segments"`
	Batches  int64 `json:"batches"`
	Records  int64 `json:"records"`
	Bytes    int64 `json:"bytes"`
}

func (c *counts) add(o counts) {
	c.Segments += o.Segments
	c.Batches += o.Batches
	c.Records += o.Records
	c.Bytes += o.Bytes
}

type noteObject struct {
	Type string `json:"type"`
	File string `json:"file"`
	Note string `json:"note"`
}

// note tells of what is odd and harmless.
func (v *verify) note(file, what string) {
	v.text("note    %s: %s", file, what)
	v.object(noteObject{"note", file, what})
}

// tell reports a problem; the line of progress goes first.
func (v *verify) tell(p *Problem) {
	v.clear()
	v.report(p)
}

type totalObject struct {
	Type       string `json:"type"`
	Partitions int    `json:"partitions"`
	counts
	Problems int `json:"problems"`
}

func (v *verify) run(dir string) error {
	dirs, err := v.partitions(dir)
	if err != nil {
		return err
	}
	v.all = len(dirs)
	for _, d := range dirs {
		if err := v.partition(d); err != nil {
			v.clear()
			return errors.Join(err, v.flush())
		}
		v.done++
	}
	v.clear()
	v.text("%d partitions, %d segments, %d batches, %d records, %d bytes: %d problems", v.done, v.total.Segments, v.total.Batches, v.total.Records, v.total.Bytes, v.problems)
	v.object(totalObject{"total", v.done, v.total, v.problems})
	if err := v.flush(); err != nil {
		return err
	}
	return found(v.problems)
}

func (v *verify) clear() {
	if v.progress != nil {
		v.progress("")
	}
}

// show tells where the run is.
func (v *verify) show(dir string, bytes int64) {
	if v.progress != nil {
		v.progress(fmt.Sprintf("%d of %d partitions, %d MiB, %s", v.done, v.all, (v.total.Bytes+bytes)>>20, filepath.Base(dir)))
	}
}

// partitions lists the partition directories of dir: itself, or those in it.
func (v *verify) partitions(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, d := range list {
		if _, suffix, ok := segment.ParseName(d.Name()); ok && suffix == segment.LogSuffix || d.Name() == metadataName {
			return []string{dir}, nil
		}
	}
	if !slices.ContainsFunc(list, func(d os.DirEntry) bool {
		return d.Name() == "__kaas" || d.Name() == "meta.properties" || d.IsDir() && partitionName(d.Name())
	}) {
		return nil, fmt.Errorf("%s is neither a data directory nor the directory of a partition", dir)
	}
	for _, d := range list {
		path := filepath.Join(dir, d.Name())
		switch {
		case !d.IsDir() || d.Name() == "__kaas" || d.Name() == "lost+found":
		case partitionName(d.Name()):
			dirs = append(dirs, path)
		case strings.HasSuffix(d.Name(), "-delete") || strings.HasSuffix(d.Name(), ".deleted"):
			v.note(path, "set aside to be removed; not checked")
		default:
			v.note(path, "not named as the directory of a partition; not checked")
		}
	}
	return dirs, nil
}

// partitionName reports whether name is <topic>-<partition>.
func partitionName(name string) bool {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 || i > 249 {
		return false
	}
	for _, c := range name[:i] {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	return err == nil && strconv.FormatInt(n, 10) == name[i+1:] && n >= 0
}

const metadataName = "partition.metadata"

// partition is the check of one directory.
type partition struct {
	v   *verify
	dir string
	counts
	files  map[string]map[int64]bool // by suffix, then base offset
	epochs []epochEntry

	first, next int64 // offsets: the first there is, and the one after the batch before
	end         int64 // after the last
	epoch       int32 // of the last batch
}

type partitionObject struct {
	Type string `json:"type"`
	Dir  string `json:"dir"`
	counts
	FirstOffset int64 `json:"firstOffset"`
	NextOffset  int64 `json:"nextOffset"`
	Problems    int   `json:"problems"`
}

func (v *verify) partition(dir string) error {
	before := v.problems
	p := &partition{v: v, dir: dir, files: map[string]map[int64]bool{}, first: -1, epoch: -1}
	v.show(dir, 0)
	if err := p.check(); err != nil {
		return err
	}
	v.total.add(p.counts)
	problems := v.problems - before
	verdict := "ok"
	if problems > 0 {
		verdict = fmt.Sprintf("%d PROBLEMS", problems)
	}
	offsets := "empty"
	if p.first >= 0 {
		offsets = "offsets " + span(p.first, p.end-1)
	}
	v.clear()
	v.text("%s: %d segments, %d batches, %d records, %d bytes, %s: %s", dir, p.Segments, p.Batches, p.Records, p.Bytes, offsets, verdict)
	v.object(partitionObject{"partition", dir, p.counts, p.first, p.end, problems})
	return v.output.w.Flush()
}

func (p *partition) path(base int64, suffix string) string {
	return filepath.Join(p.dir, segment.FileName(base, suffix))
}

func (p *partition) check() error {
	if err := p.list(); err != nil {
		return err
	}
	if err := p.smallFiles(); err != nil {
		return err
	}
	bases := p.sorted(segment.LogSuffix)
	for i, base := range bases {
		limit := int64(-1)
		if i+1 < len(bases) {
			limit = bases[i+1]
		}
		if err := p.segment(base, limit); err != nil {
			return err
		}
	}
	for _, at := range p.sorted(segment.SnapshotSuffix) {
		if err := p.snapshot(at, len(bases) > 0); err != nil {
			return err
		}
	}
	return nil
}

func (p *partition) sorted(suffix string) []int64 {
	var list []int64
	for base := range p.files[suffix] {
		list = append(list, base)
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	return list
}

// list sorts the files of the directory by kind.
func (p *partition) list() error {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	for _, d := range entries {
		name := d.Name()
		base, suffix, ok := segment.ParseName(name)
		_, known := kinds[suffix]
		switch {
		case ok && known && d.Type().IsRegular():
			if p.files[suffix] == nil {
				p.files[suffix] = map[int64]bool{}
			}
			p.files[suffix][base] = true
		case name == epochsName || name == metadataName:
		default:
			p.v.note(filepath.Join(p.dir, name), "not a file of a partition; not checked")
		}
	}
	for _, suffix := range []string{segment.IndexSuffix, segment.TimeIndexSuffix, segment.TxnIndexSuffix} {
		for _, base := range p.sorted(suffix) {
			if !p.files[segment.LogSuffix][base] {
				p.v.note(p.path(base, suffix), "without its .log; not checked")
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
			p.v.tell(problem)
		} else {
			p.epochs = list
		}
	}
	path = filepath.Join(p.dir, metadataName)
	b, err = os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	version, id := "", ""
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch k {
		case "version":
			version = strings.TrimSpace(v)
		case "topic_id":
			id = strings.TrimSpace(v)
		}
	}
	if version != "0" || len(id) != 22 {
		p.v.tell(&Problem{path, 0, fmt.Sprintf("version %q and topic id %q: want 0 and 22 characters", version, id)})
	}
	return nil
}

func (p *partition) snapshot(at int64, hasLog bool) error {
	path := p.path(at, segment.SnapshotSuffix)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, problem := producers(path, b)
	if problem != nil {
		p.v.tell(problem)
		return nil
	}
	if hasLog && at > p.end {
		p.v.tell(&Problem{path, 0, fmt.Sprintf("snapshot of offset %d, but the log ends at %d", at, p.end)})
	}
	for _, e := range list {
		if e.last != nil && e.last.LastOffset >= at {
			p.v.tell(&Problem{path, 0, fmt.Sprintf("producer %d wrote offset %d, after the snapshot's %d", e.id, e.last.LastOffset, at)})
		}
		if e.state.TxnFirst >= at {
			p.v.tell(&Problem{path, 0, fmt.Sprintf("transaction of producer %d begins at %d, after the snapshot's %d", e.id, e.state.TxnFirst, at)})
		}
	}
	return nil
}
