package logtool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"kaas/engine/segment"
)

func verifyCommand() *cobra.Command {
	var quiet bool
	v := &verify{}
	c := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check a data directory, or the directory of one partition",
		Long: `Check a data directory, or the directory of one partition. Files are only read. Checked are:

  .log         every batch is whole, its CRC matches, its offsets follow those before it, lie in its segment and go with its
               number of records; leader epochs do not go back; with --records every batch is decompressed and each record
               read: lengths, offset order
  .index       whole ascending entries, each the position of a batch that holds its offset
  .timeindex   whole ascending entries, each the maximum timestamp of a batch that holds its offset, and none before is later
  .txnindex    whole ascending entries, each with the abort marker of its producer at its last offset; first and last stable
               offset as the log gives them; no aborted transaction of the log is missing
  .snapshot    CRC and size, no offset after the snapshot's own; producers, sequences and open transactions as the log gives them
  leader-epoch-checkpoint, partition.metadata
               they can be read; epochs begin where the batches say
  .swap        a segment that compaction was about to put in place is whole
  kaas.journal, cleaner-offset-checkpoint
               every line can be read
  kaas.redo.*  the commit journal: frames and their checksums; of what the next start is to write, that it is whole batches, and what the logs
               have already in that place
  __kaas       the store of topics and settings: frames, CRCs, sequence, values, checkpoint
  names        of directories and files; what a crash left over

A torn tail is a problem although the next start of the broker cuts it, if nothing in it was acknowledged. What is odd and
harmless (files left over, unknown names) is told as a note. After a kill the files beside the newest segments may lack what the next
start finds in the log: that is a note too. A directory that a broker uses is refused. With --running it is checked as it is, and what
may be a write under way is a note.

The exit code is 1 if there was a problem. With --json every line is one object, its field "type" says what: problem, note,
partition, store, total. "kaas log repair" mends what can be mended.`,
		Example: `  kaas log verify data
  kaas log verify --records --json data/orders-0 | jq 'select(.type == "problem")'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			v.output = newOutput(c.OutOrStdout(), v.json)
			if !quiet {
				v.progress = progressTo(c.ErrOrStderr())
			}
			return v.run(args[0])
		},
	}
	c.Flags().BoolVar(&v.json, "json", false, "one JSON object a line")
	c.Flags().BoolVar(&v.records, "records", false, "decompress batches and read every record: slower")
	c.Flags().BoolVar(&v.running, "running", false, "check a directory although a broker uses it")
	c.Flags().IntVar(&v.parallel, "parallel", runtime.GOMAXPROCS(0), "partitions checked at the same time")
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
	json     bool
	records  bool
	running  bool
	parallel int

	mu        sync.Mutex        // guards what follows, and the terminal
	progress  func(line string) // nil: none
	done, all int               // partitions

	read, size atomic.Int64 // bytes of logs: checked, and to check
	total      counts
}

// sink takes what is found out about one partition, until its turn to be printed comes.
type sink struct {
	*output
	buf     bytes.Buffer
	records bool
	running bool
	read    func(n int64) // told about bytes that were checked; may be nil

	found     []*Problem
	leftovers []string // files that a start would remove or rename
}

func newSink(json bool) *sink {
	s := &sink{}
	s.output = newOutput(&s.buf, json)
	return s
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
func (s *sink) note(file, what string) {
	s.text("note    %s: %s", file, what)
	s.object(noteObject{"note", file, what})
}

// tell reports a problem.
func (s *sink) tell(p *Problem) {
	s.found = append(s.found, p)
	s.report(p)
}

// doubt reports what is a problem unless a broker is writing just there.
func (s *sink) doubt(p *Problem) {
	if s.running {
		s.note(p.File, fmt.Sprintf("byte %d: %s; the broker may be writing there", p.Position, p.What))
	} else {
		s.tell(p)
	}
}

type totalObject struct {
	Type       string `json:"type"`
	Partitions int    `json:"partitions"`
	counts
	Problems int `json:"problems"`
}

func (v *verify) run(dir string) error {
	target, err := findTarget(dir)
	if err != nil {
		return err
	}
	release, inUse, err := shareLock(target.data)
	if err != nil {
		return err
	}
	defer release()
	if inUse && !v.running {
		return fmt.Errorf("%s is in use by a broker: stop it, or check it as it is with --running", target.data)
	}
	v.running = inUse
	err = v.check(target)
	v.clear()
	if err != nil {
		return errors.Join(err, v.flush())
	}
	v.text("%d partitions, %d segments, %d batches, %d records, %d bytes: %d problems", v.done, v.total.Segments, v.total.Batches, v.total.Records, v.total.Bytes, v.problems)
	v.object(totalObject{"total", v.done, v.total, v.problems})
	if err := v.flush(); err != nil {
		return err
	}
	return found(v.problems)
}

// check checks the store and then the partitions, several at a time; what is found is printed in their order.
func (v *verify) check(target *target) error {
	about := v.sink()
	dirs := target.partitions(about)
	ctx, err := readContext(target, about)
	if err != nil {
		return err
	}
	if err := v.print(about); err != nil {
		return err
	}
	v.all = len(dirs)
	for _, d := range dirs {
		v.size.Add(logBytes(d))
	}
	type result struct {
		p   *partition
		err error
	}
	results := make([]chan result, len(dirs))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	var next atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range max(1, min(v.parallel, len(dirs))) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(dirs)); i = next.Add(1) - 1 {
				select {
				case <-stop:
					return
				default:
				}
				p := newPartition(v.sink(), dirs[i], ctx)
				results[i] <- result{p, p.check()}
			}
		})
	}
	defer wg.Wait()
	defer close(stop)
	for i := range results {
		r := <-results[i]
		if r.err != nil {
			return r.err
		}
		r.p.conclude()
		v.total.add(r.p.counts)
		if err := v.print(r.p.sink); err != nil {
			return err
		}
		v.mu.Lock()
		v.done++
		v.mu.Unlock()
	}
	return nil
}

// sink makes one for this run.
func (v *verify) sink() *sink {
	s := newSink(v.output.json)
	s.records, s.running = v.records, v.running
	s.read = func(n int64) {
		done := v.read.Add(n)
		v.mu.Lock()
		v.show(done)
		v.mu.Unlock()
	}
	return s
}

// print passes on what a sink has.
func (v *verify) print(s *sink) error {
	if err := s.flush(); err != nil {
		return err
	}
	if s.buf.Len() > 0 {
		v.clear()
	}
	v.problems += s.problems
	if _, err := v.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	return v.w.Flush()
}

func (v *verify) clear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.progress != nil {
		v.progress("")
	}
}

// show tells where the run is; mu is held.
func (v *verify) show(done int64) {
	if v.progress != nil {
		v.progress(fmt.Sprintf("%s %d of %d partitions, %d of %d MiB", bar(done, v.size.Load()), v.done, v.all, done>>20, v.size.Load()>>20))
	}
}

// barWidth is the length of a full bar.
const barWidth = 30

// bar draws how much of all is done.
func bar(done, all int64) string {
	share := float64(1)
	if all > 0 {
		share = min(float64(done)/float64(all), 1)
	}
	n := int(share * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f %%", strings.Repeat("#", n), strings.Repeat("-", barWidth-n), 100*share)
}

// target is what is to be checked.
type target struct {
	data string   // data directory
	only string   // directory of a partition, "": all
	list []string // names in data
	dirs map[string]bool
}

// findTarget tells a data directory from that of a partition.
func findTarget(dir string) (*target, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	t := &target{data: dir, dirs: map[string]bool{}}
	for _, d := range list {
		if _, suffix, ok := segment.ParseName(d.Name()); ok && suffix == segment.LogSuffix || d.Name() == metadataName {
			return &target{data: filepath.Dir(filepath.Clean(dir)), only: dir}, nil
		}
		t.list = append(t.list, d.Name())
		t.dirs[d.Name()] = d.IsDir()
	}
	if !slices.ContainsFunc(t.list, func(name string) bool {
		return name == storeDir || name == "meta.properties" || t.dirs[name] && partitionName(name)
	}) {
		return nil, fmt.Errorf("%s is neither a data directory nor the directory of a partition", dir)
	}
	return t, nil
}

// partitions lists the partition directories.
func (t *target) partitions(s *sink) (dirs []string) {
	if t.only != "" {
		return []string{t.only}
	}
	for _, name := range t.list {
		path := filepath.Join(t.data, name)
		switch {
		case !t.dirs[name] || name == storeDir || name == "lost+found":
		case partitionName(name):
			dirs = append(dirs, path)
		case strings.HasSuffix(name, "-delete") || strings.HasSuffix(name, ".deleted"):
			s.note(path, "set aside to be removed; not checked")
		default:
			s.note(path, "not named as the directory of a partition; not checked")
		}
	}
	return dirs
}

// logBytes is the size of the logs in a directory, for the progress.
func logBytes(dir string) (n int64) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0 // the check says what is wrong
	}
	for _, d := range list {
		if _, suffix, ok := segment.ParseName(d.Name()); ok && suffix == segment.LogSuffix {
			if st, err := d.Info(); err == nil {
				n += st.Size()
			}
		}
	}
	return n
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
