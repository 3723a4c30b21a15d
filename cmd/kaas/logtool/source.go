package logtool

import (
	"errors"
	"fmt"
	"io"
	"os"

	"kaas/codec/batch"
)

// Problem is something wrong in a file.
type Problem struct {
	File     string // path as given
	Position int64  // in the file, in bytes
	What     string
}

// Error makes a Problem usable as an error.
func (p *Problem) Error() string { return fmt.Sprintf("%s: byte %d: %s", p.File, p.Position, p.What) }

// readWindow is what is read of a log file at a time.
const readWindow = 1 << 20

// batches reads the batches of a log file, one after another.
type batches struct {
	name string
	f    io.ReaderAt
	size int64 // of the file when it was opened
	pos  int64 // of the next batch
	zero int64 // bytes of zeros after the last batch: allocated, not written

	buf  []byte
	from int64
	n    int
}

// openBatches opens a log file. close must be called.
func openBatches(path string) (r *batches, close func() error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return &batches{name: path, f: f, size: st.Size(), buf: make([]byte, readWindow)}, f.Close, nil
}

// next returns the next batch, whose CRC is not checked, and its position; it is valid until the next call. io.EOF is the
// end of the data, with nothing but zeros after it. A *Problem says that no whole batch follows; the file ends there.
func (r *batches) next() (batch.View, int64, error) {
	pos := r.pos
	if pos == r.size {
		return nil, pos, io.EOF
	}
	head, err := r.at(pos, min(batch.HeaderSize, r.size-pos))
	if err != nil {
		return nil, pos, err
	}
	h, err := batch.PeekHeader(head)
	if err == nil && int64(h.Size()) > r.size-pos {
		err = fmt.Errorf("%w: %d bytes of %d", batch.ErrTorn, r.size-pos, h.Size())
	}
	if err != nil {
		if !errors.Is(err, batch.ErrTorn) {
			err = fmt.Errorf("%w, %d bytes follow", err, r.size-pos)
		}
		return nil, pos, r.end(pos, err)
	}
	whole, err := r.at(pos, int64(h.Size()))
	if err != nil {
		return nil, pos, err
	}
	v, err := batch.Peek(whole)
	if err != nil {
		return nil, pos, r.end(pos, err)
	}
	r.pos += int64(v.Size())
	return v, pos, nil
}

// end decides what a place without a batch is: allocated space, or damage.
func (r *batches) end(pos int64, cause error) error {
	for at := pos; at < r.size; at += readWindow {
		b, err := r.at(at, min(readWindow, r.size-at))
		if err != nil {
			return err
		}
		for _, x := range b {
			if x != 0 {
				return &Problem{r.name, pos, cause.Error()}
			}
		}
	}
	r.zero = r.size - pos
	r.pos = r.size
	return io.EOF
}

// at returns n bytes at pos; both lie within the file.
func (r *batches) at(pos, n int64) ([]byte, error) {
	if pos < r.from || pos+n > r.from+int64(r.n) {
		if n > int64(len(r.buf)) {
			r.buf = make([]byte, n) // a batch larger than the window: the file has as many bytes
		}
		got, err := r.f.ReadAt(r.buf[:min(int64(len(r.buf)), r.size-pos)], pos)
		r.from, r.n = pos, got
		if int64(got) < n {
			if err == io.EOF {
				return nil, &Problem{r.name, pos + int64(got), "the file has become shorter"}
			}
			return nil, err
		}
	}
	return r.buf[pos-r.from:][:n], nil
}
