package logtool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kaas/engine"
	"kaas/engine/state"
	"kaas/engine/vfs"
)

func repairCommand() *cobra.Command {
	r := &repair{fs: vfs.OS, now: time.Now}
	var asJSON bool
	c := &cobra.Command{
		Use:   "repair DIR",
		Short: "Mend a data directory, or one partition of it, after copying what is changed",
		Long: `Mend what "kaas log verify" finds in a data directory of kaas, or in the directory of one of its partitions. No broker may run on it.

What is done to a partition is what the engine's recovery does when it reads the whole log anew: a torn tail is cut, a compaction
that was cut short is finished or taken back, and indexes, transaction indexes, producer snapshots and leader epochs that do not fit are
built again from the log. Partitions in which nothing is wrong are not touched, and neither are sound files of the others.

All of it is found out before anything is changed. Then every file that is to be changed or removed is copied into the backup directory
and synced, and only then is it changed: copying the backup back undoes the repair. A second run finds nothing to do.

A log that is damaged in the middle is refused: it can only go on from there, and sound batches behind the damage would be lost. The
offsets are told; --cut-damaged cuts such a log before the first damaged batch. (If a replica, a backup or the producer still has the
records, that is better.) A damaged store of topics and settings (__kaas) is refused always, except for a torn tail.

With --json every line is one object, its field "type" says what: edit (one file; "action" is cut, rewrite, create or remove),
refused, partition, total. The exit code is 1 if something is left that could not be mended.`,
		Example: `  kaas log repair --dry-run data
  kaas log repair --backup /backup/kaas-repair data
  kaas log repair --cut-damaged data/orders-0`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r.output = newOutput(c.OutOrStdout(), asJSON)
			return errors.Join(r.run(args[0]), r.flush())
		},
	}
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "only tell what would be done")
	c.Flags().BoolVar(&r.cutDamaged, "cut-damaged", false, "cut a log before damage in its middle: what follows is lost, but for the backup")
	c.Flags().StringVar(&r.backup, "backup", "", "`directory` for the copies; it must not exist (default: beside DIR, named after it and the time)")
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return c
}

// repair is one run of the command.
type repair struct {
	*output
	fs         vfs.FS
	now        func() time.Time
	dryRun     bool
	cutDamaged bool
	backup     string

	data            string // data directory, absolute
	saved           map[string]bool
	edits, left     int // files changed; what could not be mended
	mended, refused int // partitions
}

type editObject struct {
	Type   string `json:"type"`
	File   string `json:"file"`
	Action string `json:"action"`
	From   int64  `json:"fromBytes"`
	To     int64  `json:"toBytes"`
	Backup string `json:"backup,omitempty"`
}

type refusedObject struct {
	Type string `json:"type"`
	Dir  string `json:"dir"`
	Why  string `json:"why"`
	// Of a log with sound batches behind the damage: the range of offsets that would be lost, the end exclusive.
	From    int64 `json:"fromOffset,omitempty"`
	To      int64 `json:"toOffset,omitempty"`
	Batches int   `json:"soundBatches,omitempty"`
}

type repairTotal struct {
	Type    string `json:"type"`
	Files   int    `json:"files"`
	Mended  int    `json:"partitionsMended"`
	Refused int    `json:"partitionsRefused"`
	Left    int    `json:"problemsLeft"`
	Backup  string `json:"backup,omitempty"`
	DryRun  bool   `json:"dryRun"`
}

func (r *repair) run(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	t, err := findTarget(dir)
	if err != nil {
		return err
	}
	r.data, r.saved = t.data, map[string]bool{}
	if err := r.ours(); err != nil {
		return err
	}
	lock, err := r.fs.Lock(filepath.Join(t.data, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%s is in use by a broker: stop it first", t.data)
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := r.chooseBackup(); err != nil {
		return err
	}
	if err := r.everything(t); err != nil {
		return err
	}
	what := "changed"
	if r.dryRun {
		what = "to be changed; nothing was done"
	}
	r.text("%d files %s, %d partitions refused, %d problems left", r.edits, what, r.refused, r.left)
	total := repairTotal{"total", r.edits, r.mended, r.refused, r.left, "", r.dryRun}
	if len(r.saved) > 0 {
		total.Backup = r.backup
		r.text("what was there before is in %s", r.backup)
	}
	r.object(total)
	if r.left > 0 || r.refused > 0 {
		return fmt.Errorf("not all could be mended: %d partitions refused, %d problems left", r.refused, r.left)
	}
	return nil
}

// ours refuses directories that kaas did not write: the engine would make a journal there, and what it may hold it cannot know.
func (r *repair) ours() error {
	for _, name := range []string{storeDir, engine.JournalName} {
		if _, err := os.Stat(filepath.Join(r.data, name)); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%s is not a data directory of kaas (no %s, no %s): one that Apache Kafka wrote is mended by a start of Apache Kafka, or imported first (kaas import)",
		r.data, storeDir, engine.JournalName)
}

func (r *repair) chooseBackup() (err error) {
	if r.backup == "" {
		r.backup = r.data + ".repair-" + r.now().UTC().Format("20060102T150405Z")
	}
	if r.backup, err = filepath.Abs(r.backup); err != nil {
		return err
	}
	if rel, err := filepath.Rel(r.data, r.backup); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return fmt.Errorf("the backup directory %s lies in the data directory", r.backup)
	}
	if _, err := os.Lstat(r.backup); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the backup directory %s exists already", r.backup)
	}
	return nil
}

// everything mends the data directory's own files, and the partitions one after the other.
func (r *repair) everything(t *target) error {
	about := newSink(false)
	dirs := t.partitions(newSink(false))
	ctx, err := readContext(t, about)
	if err != nil {
		return err
	}
	if t.only == "" {
		if err := r.ownFiles(about); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		p := newPartition(newSink(false), dir, ctx)
		if err := p.check(); err != nil {
			return err
		}
		if len(p.found)+len(p.leftovers) == 0 {
			continue
		}
		if err := r.partition(p); err != nil {
			return err
		}
	}
	return nil
}

// ownFiles mends the store, the journal and the cleaner's file, as a start would.
func (r *repair) ownFiles(about *sink) error {
	store, journal := filepath.Join(r.data, storeDir), filepath.Join(r.data, engine.JournalName)
	var broken bool // of the store
	o := newOverlay(r.fs)
	defer o.close()
	for _, p := range about.found {
		switch {
		case filepath.Dir(p.File) == store || p.File == store:
			broken = true
		case p.File == journal:
			if err := r.journal(o); err != nil {
				return err
			}
		case filepath.Base(p.File) == cleanerName:
			if err := o.Remove(p.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err // without it compaction begins at the log start
			}
		}
	}
	refused := false
	if broken || len(about.leftovers) > 0 {
		why, err := r.store(o, store)
		if err != nil {
			return err
		}
		if refused = why != ""; refused {
			r.refuse(&refusedObject{Dir: store, Why: why + ": the store of topics and settings cannot be mended; put it back from a backup"})
		}
	}
	edits, err := o.edits()
	if err != nil {
		return err
	}
	kept := edits[:0]
	for _, e := range edits {
		if inStore := filepath.Dir(e.name) == store; inStore && !refused || !inStore && !isRedo(e.name) {
			kept = append(kept, e)
		}
	}
	return r.apply(o, kept)
}

// journal writes the journal anew, without the lines that do not verify.
func (r *repair) journal(o *overlay) error {
	e, err := engine.Open(engineConfig(o, r.data))
	if err != nil {
		return err
	}
	return e.Close()
}

// store opens the store as a start does, which cuts a torn tail and removes what is left over. why: it cannot be opened, or there is
// more wrong with it.
func (r *repair) store(o *overlay, dir string) (why string, err error) {
	s, err := state.Open(o, dir, state.Options{CacheBytes: -1})
	var c *state.CorruptError
	if errors.As(err, &c) {
		return c.Error(), nil
	}
	if err != nil {
		return "", err
	}
	if err := s.Close(); err != nil {
		return "", err
	}
	findings, _, err := state.Verify(o, dir)
	if err != nil || len(findings) == 0 {
		return "", err
	}
	return fmt.Sprintf("%s at offset %d: %s", findings[0].File, findings[0].Offset, findings[0].What), nil
}

func (r *repair) refuse(o *refusedObject) {
	o.Type = "refused"
	r.refused++
	r.text("REFUSED %s: %s", o.Dir, o.Why)
	r.object(o)
}

type mendedObject struct {
	Type     string `json:"type"`
	Dir      string `json:"dir"`
	Problems int    `json:"problemsBefore"`
	Left     int    `json:"problemsLeft"`
}

// partition mends one in which something is wrong.
func (r *repair) partition(p *partition) error {
	plan, refused, err := r.plan(p)
	if plan != nil {
		defer plan.over.close()
	}
	if err != nil {
		return err
	}
	if refused != nil {
		r.refuse(refused)
		return nil
	}
	if err := r.apply(plan.over, plan.edits); err != nil {
		return err
	}
	left := 0
	if !r.dryRun {
		if left, err = r.again(p); err != nil {
			return err
		}
	}
	r.left += left
	if len(plan.edits) > 0 {
		r.mended++
	}
	switch {
	case r.dryRun:
		r.text("%s: %d problems, %d files to be changed", p.dir, len(p.found), len(plan.edits))
	case left > 0:
		r.text("%s: %d problems, of which %d cannot be mended", p.dir, len(p.found), left)
	default:
		r.text("%s: mended", p.dir)
	}
	r.object(mendedObject{"partition", p.dir, len(p.found), left})
	return nil
}

// again verifies a partition that was mended, and tells what is left.
func (r *repair) again(p *partition) (left int, err error) {
	ctx := *p.ctx
	if err := ctx.readJournal(r.data, newSink(false)); err != nil {
		return 0, err
	}
	q := newPartition(newSink(false), p.dir, &ctx)
	if err := q.check(); err != nil {
		return 0, err
	}
	for _, x := range q.found {
		r.text("LEFT    %s", x.Error())
		r.object(problemObject{"problem", x.File, x.Position, x.What})
	}
	return len(q.found), nil
}
