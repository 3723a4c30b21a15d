package load

import (
	"errors"
	"fmt"
	"time"

	"kaas/bench/frames"
)

// TopicsConfig describes a run that creates topics, asks for them, and deletes them.
type TopicsConfig struct {
	Brokers    []string
	Prefix     string // of the names; a number follows
	Topics     int
	Partitions int // of each
	PerRequest int // topics in one CreateTopics or DeleteTopics
	Keep       bool
}

// topicsMax bounds a run; the names are kept in memory.
const topicsMax = 1_000_000

func (c *TopicsConfig) check() error {
	if c.Topics < 1 || c.Topics > topicsMax || c.Partitions < 1 || c.PerRequest < 1 {
		return fmt.Errorf("topics: %d of %d partitions, %d per request: out of range", c.Topics, c.Partitions, c.PerRequest)
	}
	if c.Prefix == "" {
		return errors.New("topics: no prefix")
	}
	return nil
}

// Topics runs it, one request after the other. The results are those of creating, of metadata (one request for each topic) and, unless Keep is set,
// of deleting; Records counts topics.
func Topics(c TopicsConfig) ([]Result, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	control, err := dialAny(c.Brokers, 30*time.Second)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	names := make([]string, c.Topics)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", c.Prefix, i)
	}
	create := func(names []string) error { return control.CreateTopics(c.Partitions, names...) }
	ask := func(names []string) error { return control.untilThere(names[0], c.Partitions) }
	steps := []struct {
		kind string
		each int
		do   func([]string) error
	}{{"create-topics", c.PerRequest, create}, {"metadata", 1, ask}, {"delete-topics", c.PerRequest, control.DeleteTopics}}
	if c.Keep {
		steps = steps[:2]
	}
	var results []Result
	for _, s := range steps {
		r, err := inTurn(control, s.kind, names, s.each, s.do)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

func inTurn(c *Control, kind string, names []string, each int, do func([]string) error) (Result, error) {
	rec := NewRecorder()
	cpu, begun := CPUSeconds(), time.Now()
	r := Result{Kind: kind, Connections: 1, Records: int64(len(names))}
	for len(names) > 0 {
		n := min(each, len(names))
		if err := c.SetDeadline(time.Now().Add(stallTimeout)); err != nil {
			return r, err
		}
		from := time.Now()
		if err := do(names[:n]); err != nil {
			return r, err
		}
		rec.Record(int64(time.Since(from)))
		names = names[n:]
		r.Requests++
	}
	r.Seconds, r.ClientCPU = time.Since(begun).Seconds(), CPUSeconds()-cpu
	rec.Finish(&r)
	return r, nil
}

// untilThere asks for a topic until it has all its partitions with leaders.
func (c *Control) untilThere(topic string, partitions int) error {
	_, err := c.waitForTopic(topic, partitions)
	return err
}

// DeleteTopics deletes topics.
func (c *Control) DeleteTopics(topics []string) error {
	body, err := c.Ask(frames.DeleteTopics(30_000, topics...))
	if err != nil {
		return err
	}
	topic, code, err := frames.DeleteTopicsAnswer(body)
	if err == nil && code != 0 {
		err = &frames.Error{What: "delete topic " + topic, Code: code}
	}
	return err
}
