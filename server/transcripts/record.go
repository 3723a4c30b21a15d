package transcripts

// Recording: an answer becomes an expectation, with what differs from run to run bound to names or left free.

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

type recorder struct {
	strings map[string]bool
	numbers map[string]bool
	names   map[string]string // class+value -> variable
	next    map[string]int
}

func newRecorder() *recorder {
	return &recorder{map[string]bool{}, map[string]bool{}, map[string]string{}, map[string]int{}}
}

// literals remembers what the script itself says, so that echoes stay literal.
func (r *recorder) literals(v any) {
	switch x := v.(type) {
	case *object:
		for _, k := range x.K {
			if n, ok := x.V[k].(json.Number); ok {
				r.numbers[k+"="+n.String()] = true
			}
			r.literals(x.V[k])
		}
	case []any:
		for _, y := range x {
			r.literals(y)
		}
	case string:
		if !strings.Contains(x, "${") {
			r.strings[x] = true
		}
	}
}

var uuidText = regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`)

func (r *recorder) name(s *session, class, base string, v any) any {
	key := class + "=" + mustText(v)
	if n, ok := r.names[key]; ok {
		return "${" + n + "}"
	}
	for _, k := range sortedKeys(s.vars) { // bound by hand
		if k != "run" && k != "node" && k != "nodeName" && k != "now" && k != "port" && mustText(s.vars[k]) == mustText(v) && strings.HasPrefix(r.names["class:"+k], class) {
			return "${" + k + "}"
		}
	}
	r.next[base]++
	n := fmt.Sprintf("%s%d", base, r.next[base])
	r.names[key] = n
	s.vars[n] = v
	return "${" + n + "}"
}

func anyOf(v any) any {
	if len(mustText(v)) > 200 { // the raw answer has it
		v = nil
	}
	return objectOf("$any", v)
}

func textOf(v any) any { return objectOf("$text", v) }

func (r *recorder) generalise(s *session, st *step, v any) any {
	for path, n := range st.Bind {
		x := get(v, path)
		s.vars[n] = x
		r.names[classOf(path[strings.LastIndex(path, ".")+1:], x)+"="+mustText(x)] = n
	}
	anyPat := map[string]bool{}
	for _, p := range st.Any {
		anyPat[p] = true
	}
	only := map[string]bool{}
	for _, p := range st.Only {
		only[p] = true
	}
	return r.gen(s, st, "", "", "", v, anyPat, only)
}

func classOf(name string, v any) string {
	switch name {
	case "topicId", "clientInstanceId":
		return "uuid"
	case "producerId", "memberId", "sessionId", "clusterId":
		return name
	case "leader":
		if _, ok := v.(string); ok {
			return "memberId"
		}
	}
	return "other"
}

// gen returns v as an expectation. path has real indexes, pat has [] for any index, name is the field's.
func (r *recorder) gen(s *session, st *step, path, pat, name string, v any, anyPat, only map[string]bool) any {
	if n, ok := st.Bind[path]; ok {
		return "${" + n + "}"
	}
	if l, ok := st.OneOf[pat]; ok {
		return objectOf("$oneOf", normal(l))
	}
	if anyPat[pat] {
		return anyOf(v)
	}
	switch x := v.(type) {
	case *object:
		o := newObject()
		limited := limits(only, pat)
		if limited {
			o.set("$only", true)
		}
		for _, k := range x.K {
			if kp := join(pat, k); !limited || keeps(only, kp) {
				o.set(k, r.gen(s, st, join(path, k), kp, k, x.V[k], anyPat, only))
			}
		}
		return o
	case []any:
		a := make([]any, len(x))
		for i := range x {
			a[i] = r.gen(s, st, fmt.Sprintf("%s[%d]", path, i), pat+"[]", name, x[i], anyPat, only)
		}
		return a
	case string:
		if e := r.text(s, name, x); e != nil {
			return e
		}
		return strings.ReplaceAll(x, s.vars["run"].(string), "${run}")
	case nil:
		switch name {
		case "errorMessage", "batchIndexErrorMessage":
			return textOf(nil)
		case "host", "clientHost", "logDir":
			return anyOf(nil)
		}
	case json.Number:
		if e := r.number(s, name, x); e != nil {
			return e
		}
	}
	return v
}

// limits says whether some of the fields of the object at pat are named in only.
func limits(only map[string]bool, pat string) bool {
	for p := range only {
		if rest, below := strings.CutPrefix(p, join(pat, "")); below && !strings.Contains(rest, ".") {
			return true
		}
	}
	return false
}

func keeps(only map[string]bool, pat string) bool {
	for p := range only {
		if p == pat || strings.HasPrefix(p, pat+".") || strings.HasPrefix(p, pat+"[].") {
			return true
		}
	}
	return false
}

// text returns the expectation for a text that is not the same in every run, else nil.
func (r *recorder) text(s *session, name, text string) any {
	switch name {
	case "host", "clientHost", "logDir":
		return anyOf(text)
	case "errorMessage", "batchIndexErrorMessage":
		return textOf(text)
	case "resourceName":
		if text == fmt.Sprint(s.vars["nodeName"]) {
			return "${nodeName}"
		}
	case "authBytes":
		if text != "" {
			return anyOf(text)
		}
	case "clusterId":
		return r.name(s, "clusterId", "clusterId", text)
	case "leader", "memberId":
		if text != "" && !r.strings[text] {
			return r.name(s, "memberId", "member", text)
		}
	case "topicId", "clientInstanceId":
		if text != zeroUUID && uuidText.MatchString(text) && !r.strings[text] {
			return r.name(s, "uuid", name, text)
		}
	}
	return nil
}

// number returns the expectation for a number that is not the same in every run, else nil.
func (r *recorder) number(s *session, name string, v json.Number) any {
	if strings.ContainsAny(v.String(), ".eE") {
		return nil
	}
	n := toInt(v, name)
	fresh := !r.numbers[name+"="+v.String()]
	switch name {
	case "throttleTimeMs", "totalBytes", "usableBytes", "partitionSize", "finalizedFeaturesEpoch", "coordinatorEpoch":
		return anyOf(v)
	case "sessionLifetimeMs":
		if n != 0 {
			return anyOf(v)
		}
	case "port":
		if mustText(v) == mustText(s.vars["port"]) {
			return "${port}"
		}
	case "nodeId", "leaderId", "controllerId", "brokerId", "replicaNodes", "isrNodes", "replicas", "isr", "offlineReplicas", "brokers":
		if mustText(v) == mustText(s.vars["node"]) {
			return "${node}"
		}
	case "leader":
		if n >= 0 {
			return "${node}"
		}
	case "producerId":
		if n >= 0 && fresh {
			return r.name(s, "producerId", "pid", v)
		}
	case "sessionId":
		if n > 0 && fresh {
			return r.name(s, "sessionId", "session", v)
		}
	case "leaderEpoch", "partitionLeaderEpoch", "currentLeaderEpoch":
		if le, ok := s.vars["le"]; n >= 0 && (!ok || mustText(le) == mustText(v)) {
			s.vars["le"] = v
			return "${le}"
		}
	case "baseTimestamp", "maxTimestamp", "timestamp", "logAppendTimeMs", "transactionStartTimeMs", "txnStartTimestamp", "lastTimestamp", "startTimeMs":
		const day = 24 * 60 * 60 * 1000
		if now := toInt(s.vars["now"], "now"); n > now-day && n < now+day {
			return anyOf(v)
		}
	}
	return nil
}
