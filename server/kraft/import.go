package kraft

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"kaas/engine"
	"kaas/engine/state"
	"kaas/engine/vfs"
	"kaas/server/catalog"
)

const (
	lockName = ".lock"
	// stagingDir is where the catalog is built. Apache does not start beside a directory whose name is not a partition's; one with a name
	// like this it takes for a deleted partition's and removes, should an import have ended before it was done.
	stagingDir = "__kaas-0.import-delete"
)

// ErrInUse says that a broker, Apache's or kaas, has the directory open.
var ErrInUse = errors.New("a broker has the data directory open: stop it first")

// Options of Import.
type Options struct {
	DryRun bool // change nothing
	// Unprotected takes over a directory with ACLs or SCRAM credentials, though they are not enforced yet; without it that is refused.
	Unprotected bool
	// CatalogDir is the name of the catalog in the data directory.
	CatalogDir string
	Now        func() time.Time // nil: time.Now
}

// Import makes dir, which Apache Kafka wrote, one that kaas serves. A directory that was imported before is left as it is, and
// reported so. Errors: Refusal, ErrInUse, or those of files; the directory is then as it was.
func Import(dir string, o Options) (*Report, error) { return importOn(vfs.OS, dir, o) }

// importOn is Import with a file system for what is written.
func importOn(files vfs.FS, dir string, o Options) (*Report, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, refusef("%s is no directory", dir)
	}
	lock, err := lockDir(files, dir, o.DryRun)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	if _, err := os.Stat(filepath.Join(dir, o.CatalogDir)); err == nil {
		return already(files, dir, o)
	}
	p, err := makePlan(dir)
	if err != nil {
		return nil, err
	}
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	p.report.DryRun = o.DryRun
	p.ownProducerIDs(now())
	if s := p.report.Stored; !o.DryRun && !o.Unprotected && s.ACLs+len(s.ScramUsers) > 0 {
		return nil, refusef("%s has %d ACLs and %d SCRAM credentials, which this version does not enforce: its data would be open to everybody who reaches the port; "+
			"import it with --unprotected if other means keep them out", dir, s.ACLs, len(s.ScramUsers))
	}
	if o.DryRun {
		// The catalog judges the seed as it would the real one.
		return p.report, p.plant(vfs.Memory(), "/catalog")
	}
	return p.report, p.run(files, o.CatalogDir)
}

// noLock stands in for the lock of a directory that has no lock file: nobody has ever had it open.
type noLock struct{}

func (noLock) Unlock() error { return nil }

func lockDir(files vfs.FS, dir string, dryRun bool) (vfs.Unlocker, error) {
	name := filepath.Join(dir, lockName)
	if _, err := os.Stat(name); dryRun && errors.Is(err, fs.ErrNotExist) {
		return noLock{}, nil
	}
	lock, err := files.Lock(name)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
	}
	return lock, err
}

// run builds the catalog beside, writes the journal, and renames the catalog in.
func (p *plan) run(files vfs.FS, catalogDir string) error {
	staging := filepath.Join(p.dir, stagingDir)
	if err := removeDirs(files, staging, filepath.Join(staging, catalogDir)); err != nil {
		return err
	}
	undo := func(err error) error {
		// What cannot be taken back is in nobody's way, and the next import removes it.
		_ = removeDirs(files, staging, filepath.Join(staging, catalogDir))
		_ = files.Remove(filepath.Join(p.dir, engine.JournalName))
		_ = files.Remove(filepath.Join(p.dir, engine.JournalName+".tmp")) // of a journal that could not be written whole
		return err
	}
	if err := p.plant(files, filepath.Join(staging, catalogDir)); err != nil {
		return undo(err)
	}
	if err := files.SyncDir(staging); err != nil {
		return undo(err)
	}
	if err := engine.WriteJournal(files, p.dir, p.logs); err != nil {
		return undo(err)
	}
	if err := files.Rename(filepath.Join(staging, catalogDir), filepath.Join(p.dir, catalogDir)); err != nil {
		return undo(err)
	}
	return finish(files, p.dir)
}

// finish does what an import does after its rename; doing it again is harmless.
func finish(files vfs.FS, dir string) error {
	if err := files.SyncDir(dir); err != nil {
		return err
	}
	if err := removeDirs(files, filepath.Join(dir, stagingDir)); err != nil {
		return err
	}
	if err := files.Remove(filepath.Join(dir, cleanMark)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return files.SyncDir(dir)
}

// plant makes the store of the catalog in dir.
func (p *plan) plant(files vfs.FS, dir string) error {
	store, err := state.Open(files, dir, state.Options{})
	if err != nil {
		return err
	}
	err = catalog.Plant(store, &p.seed)
	if cerr := store.Close(); err == nil {
		err = cerr
	}
	return err
}

// removeDirs removes directories with the files in them, the last first. Those that are not there are no error.
func removeDirs(files vfs.FS, dirs ...string) error {
	for i := len(dirs) - 1; i >= 0; i-- {
		entries, err := files.ReadDir(dirs[i])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, e := range entries {
			if err == nil {
				err = files.Remove(filepath.Join(dirs[i], e.Name))
			}
		}
		if err == nil {
			err = files.Remove(dirs[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// already reports on a directory that has a catalog, and finishes an import that ended just after its rename.
func already(files vfs.FS, dir string, o Options) (*Report, error) {
	r := &Report{Dir: dir, DryRun: o.DryRun, Already: true, Topics: []TopicReport{}}
	store, err := state.Open(files, filepath.Join(dir, o.CatalogDir), state.Options{})
	if err != nil {
		return nil, err
	}
	err = r.fill(store)
	if cerr := store.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	if img, err := readMetadata(filepath.Join(dir, MetadataDir)); err == nil && img.end > r.MetadataOffset {
		return nil, refusef("%s was imported when its metadata log ended at %d; Apache Kafka has written since, up to %d. To import it anew, and lose what kaas did to topics and settings, remove %s and %s from it",
			dir, r.MetadataOffset, img.end, o.CatalogDir, engine.JournalName)
	}
	if o.DryRun {
		return r, nil
	}
	return r, finish(files, dir)
}

// fill reads what the catalog says of itself.
func (r *Report) fill(store *state.Store) error {
	origin, imported, err := catalog.ReadOrigin(store)
	if err != nil {
		return err
	}
	if !imported {
		return refusef("%s is kaas's own: there is nothing to import", r.Dir)
	}
	kept, err := catalog.ReadKept(store)
	if err != nil {
		return err
	}
	r.MetadataOffset, r.Stored = origin.MetadataOffset, stored(kept)
	return nil
}
