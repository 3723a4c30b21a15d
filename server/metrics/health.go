package metrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// loopDeadline is how long a loop may take to answer. It lies below the second that Kubernetes gives a probe by default.
const loopDeadline = 900 * time.Millisecond

// reasonsMax bounds the reasons in an answer.
const reasonsMax = 20

// health is the answer of /healthz and /readyz.
type health struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons,omitempty"`
}

// answer says 200, or 503 with the reasons.
func answer(w http.ResponseWriter, reasons []string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if len(reasons) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(health{OK: len(reasons) == 0, Reasons: reasons}) // the client may be gone
}

// sick lists the loops that do not answer. A loop that has ended answers.
func (s *Server) sick() (reasons []string) {
	if s.sources.Load() == nil {
		return nil
	}
	asked := make([]<-chan struct{}, len(s.loops))
	for i, p := range s.loops {
		asked[i] = p.ask()
	}
	deadline := time.NewTimer(loopDeadline)
	defer deadline.Stop()
	over := false
	for i, a := range asked {
		if !over {
			select {
			case <-a:
				continue
			case <-deadline.C:
				over = true
			}
		}
		select {
		case <-a:
		default:
			reasons = append(reasons, fmt.Sprintf("event loop %d does not answer within %v", i, loopDeadline))
		}
	}
	return reasons
}

// unready lists why the broker should not be sent clients.
func (s *Server) unready() (reasons []string) {
	from := s.sources.Load()
	switch {
	case s.stopping.Load():
		return []string{"the broker stops"}
	case from == nil:
		return []string{"the broker starts: its ports are not open yet"}
	}
	more := 0
	for _, t := range from.Topics.All() {
		for _, p := range t.Partitions() {
			err := p.Log.Err()
			if err == nil || p.Gone() {
				continue
			}
			if len(reasons) == reasonsMax {
				more++
				continue
			}
			reasons = append(reasons, fmt.Sprintf("log %v is offline: %v", p.Log, err))
		}
	}
	if more > 0 {
		reasons = append(reasons, fmt.Sprintf("%d more logs are offline", more))
	}
	return reasons
}
