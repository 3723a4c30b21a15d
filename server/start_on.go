package server

import (
	"io"
	"time"

	"kaas/engine/vfs"
	"kaas/server/config"
)

// StartOn is Start with the logs on fs instead of the file system that the settings ask for: the seam by which server/torture runs a
// broker on a disk that fails. The catalog stays on the real one.
func StartOn(fs vfs.FS, cfg *config.Broker, began time.Time, progress io.Writer) (*Broker, error) {
	return startOn(fs, cfg, began, progress)
}
