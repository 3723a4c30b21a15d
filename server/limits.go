package server

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// openFilesDefault is kaas.open.files.max where it is 0: half of the descriptors, for connections need the rest.
func openFilesDefault() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0 // the engine's own
	}
	return int(min(r.Cur/2, 1<<20))
}

// raiseOpenFiles raises the soft limit of open files to the hard one: connections and segments both take descriptors.
func raiseOpenFiles(log *slog.Logger) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		log.Warn("cannot read the limit of open files", "error", err)
		return
	}
	if r.Cur >= r.Max {
		return
	}
	want := r
	want.Cur = r.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
		log.Warn("cannot raise the limit of open files", "from", r.Cur, "to", r.Max, "error", err)
	}
}
