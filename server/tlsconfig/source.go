package tlsconfig

import (
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// checkEvery is how often files are looked at while there are handshakes.
const checkEvery = time.Second

// ticketKeyLife is after how long session tickets get another key, as in crypto/tls itself.
const ticketKeyLife = 24 * time.Hour

// Source is the TLS of one listener: settings, and stores that follow their files.
type Source struct {
	settings Settings
	base     *tls.Config
	log      *slog.Logger
	now      func() time.Time

	mu         sync.Mutex // guards the rest; held while files are read
	current    *tls.Config
	stamps     [2]stamp // of the files that current was made of
	checked    time.Time
	ticketKeys [][32]byte
	rotated    time.Time
	failed     string // what went wrong with the files that are there now
}

// stamp tells whether a file is another than before: replaced (another inode) or written (time, size).
type stamp struct {
	device, inode uint64
	size          int64
	modified      time.Time
}

func stampOf(path string) (s stamp) {
	if path == "" {
		return s
	}
	info, err := os.Stat(path)
	if err != nil {
		return s // reading will tell why
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode = sys.Dev, sys.Ino
	}
	s.size, s.modified = info.Size(), info.ModTime()
	return s
}

// New checks settings and reads the stores. The error is an *Error.
func New(settings Settings, log *slog.Logger) (*Source, error) {
	s := &Source{settings: settings, log: log, now: time.Now}
	var err error
	if s.base, err = settings.base(); err != nil {
		return nil, err
	}
	s.stamps = s.stampFiles()
	c, err := s.load()
	if err != nil {
		return nil, err
	}
	s.use(c)
	s.checked = s.now()
	return s, nil
}

func (s *Source) stampFiles() [2]stamp {
	return [2]stamp{stampOf(s.settings.KeystoreLocation), stampOf(s.settings.TruststoreLocation)}
}

// load makes a configuration of the files as they are.
func (s *Source) load() (*tls.Config, error) {
	c := s.base.Clone()
	var err error
	if c.Certificates, err = s.settings.keystore(); err != nil {
		return nil, err
	}
	if c.ClientCAs, err = s.settings.truststore(); err != nil {
		return nil, err
	}
	return c, nil
}

// use puts c in force. Its session tickets have a key of their own, so who was let in under the former stores does not come back by a
// ticket. crypto/tls does not change keys that were set, so rotate does.
func (s *Source) use(c *tls.Config) {
	s.current = c
	s.ticketKeys = s.ticketKeys[:0]
	s.rotate()
}

// rotate makes another key for new session tickets; the one before is good until the next time.
func (s *Source) rotate() {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	s.ticketKeys = append([][32]byte{key}, s.ticketKeys[:min(1, len(s.ticketKeys))]...)
	s.current.SetSessionTicketKeys(s.ticketKeys)
	s.rotated = s.now()
}

// Config is what a listener hands to crypto/tls: each handshake asks the Source for the configuration in force.
func (s *Source) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.inForce(), nil },
	}
}

// inForce reads the stores again if their files have changed. A change that cannot be read, such as a file half written, is told once and
// tried again; the former stores stay.
func (s *Source) inForce() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.checked) < checkEvery {
		return s.current
	}
	s.checked = now
	if now.Sub(s.rotated) >= ticketKeyLife {
		s.rotate()
	}
	stamps := s.stampFiles()
	if stamps == s.stamps {
		return s.current
	}
	c, err := s.load()
	if err != nil {
		if s.failed != err.Error() {
			s.failed = err.Error()
			s.log.Error("TLS files have changed and cannot be read; the former ones stay in force", "error", err)
		}
		return s.current
	}
	s.use(c)
	s.stamps, s.failed = stamps, ""
	s.log.Info("TLS files have changed and are in force", "keystore", s.settings.KeystoreLocation, "truststore", s.settings.TruststoreLocation)
	return c
}
