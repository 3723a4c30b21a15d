package compare

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// syncsMetric is the broker's counter of the rounds of its group commit: each makes all logs durable that have something to sync.
const syncsMetric = "kaas_commit_rounds_total"

var errNoCounter = errors.New("the broker's metrics have no " + syncsMetric)

// countSyncs reads the counter from a broker's metrics listener.
func countSyncs(address string) (float64, error) {
	c := http.Client{Timeout: 10 * time.Second}
	r, err := c.Get("http://" + address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics of the broker: %s", r.Status)
	}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), syncsMetric+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(errNoCounter, lines.Err())
}
