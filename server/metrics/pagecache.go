package metrics

import (
	"os"
	"strconv"
	"strings"
)

// missedBytes is what the process had the kernel read from the disk because the page cache lacked it (read_bytes of /proc/self/io), by
// reads, sendfile and page faults alike. ok is false where the kernel does not say.
func missedBytes() (n float64, ok bool) {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, false
	}
	return parseIO(string(b))
}

// parseIO finds read_bytes in the text of /proc/PID/io.
func parseIO(text string) (float64, bool) {
	for line := range strings.Lines(text) {
		if v, found := strings.CutPrefix(line, "read_bytes: "); found {
			n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			return n, err == nil
		}
	}
	return 0, false
}
