package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kaas/engine"
	"kaas/server/kraft"
)

// catalogDir is the directory of the catalog in the data directory.
const catalogDir = "__kaas"

// checkDataDir refuses a directory in which somebody else keeps partitions: without a catalog that knows them they would be taken for
// remains of deleted topics.
func (b *Broker) checkDataDir() error {
	dir := b.cfg.DataDir
	if b.cfg.Memory {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, catalogDir)); err == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, kraft.MetadataDir)); err == nil {
		return fmt.Errorf("data directory %s was written by Apache Kafka: stop that, and run kaas import %s once (docs/import.md)", dir, dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == "meta.properties" || e.IsDir() && engine.IsPartitionDir(e.Name()) {
			return fmt.Errorf("data directory %s holds %s but no %s: it was not written by kaas, or its catalog is lost; choose another directory (log.dirs, --data-dir), or put the catalog back",
				dir, e.Name(), catalogDir)
		}
	}
	return nil
}

// ownsDir tells whether a directory that has the name of a partition's is to stay: the metadata log of an imported directory does, so
// that there is a way back.
func (b *Broker) ownsDir(name string) bool {
	return name == kraft.MetadataDir || b.topics.KnowsDir(name)
}

// ImportDir takes over a data directory that Apache Kafka wrote in KRaft mode, so that Start can open it. Errors: those of kraft.Import.
func ImportDir(dir string, o kraft.Options) (*kraft.Report, error) {
	o.CatalogDir = catalogDir
	return kraft.Import(dir, o)
}
