package franz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Layout is a topic before a run: first and next offset of each partition.
type Layout struct{ Starts, Ends []int64 }

const prepareMax = 60 * time.Second

// Prepare makes sure that the topic exists, creating it with the given number of partitions (0: it must exist), and waits until all partitions
// have leaders.
func Prepare(ctx context.Context, c Config, partitions int) (Layout, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareMax)
	defer cancel()
	cl, err := kgo.NewClient(c.options()...)
	if err != nil {
		return Layout{}, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if partitions > 0 {
		_, err := adm.CreateTopic(ctx, int32(partitions), 1, nil, c.Topic)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return Layout{}, fmt.Errorf("create topic %s: %w", c.Topic, err)
		}
	}
	for {
		l, err := layout(ctx, adm, c.Topic)
		if err == nil && partitions > 0 && len(l.Starts) != partitions {
			return Layout{}, fmt.Errorf("topic %s has %d partitions, not %d", c.Topic, len(l.Starts), partitions)
		}
		if err == nil || partitions == 0 || !kerr.IsRetriable(err) {
			return l, err
		}
		select { // a broker may answer CreateTopics before the leader is known
		case <-ctx.Done():
			return l, errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func layout(ctx context.Context, adm *kadm.Client, topic string) (l Layout, err error) {
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return l, err
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return l, err
	}
	if err := errors.Join(starts.Error(), ends.Error()); err != nil {
		return l, err
	}
	n := len(starts[topic])
	l = Layout{make([]int64, n), make([]int64, n)}
	for p := range n {
		first, ok1 := starts.Lookup(topic, int32(p))
		next, ok2 := ends.Lookup(topic, int32(p))
		if !ok1 || !ok2 {
			return l, kerr.UnknownTopicOrPartition
		}
		l.Starts[p], l.Ends[p] = first.Offset, next.Offset
	}
	if n == 0 {
		return l, kerr.UnknownTopicOrPartition
	}
	return l, nil
}
