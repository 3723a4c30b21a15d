package topics

import (
	"fmt"

	"kaas/codec/api"
	"kaas/server/catalog"
	"kaas/server/config"
)

// maxNewPartitions bounds the partitions that one request makes, as Apache's controller does.
const maxNewPartitions = 10_000

// Spec is what CreateTopics wants of one topic; -1 stands for the broker's default.
type Spec struct {
	Name              string
	Partitions        int32
	ReplicationFactor int16
	Assignments       []Assignment
	Configs           []config.Change
}

// Assignment is a manual placement of one partition.
type Assignment struct {
	Partition int32
	Brokers   []int32
}

// Result is what became of a Spec.
type Result struct {
	Name       string
	ID         [16]byte // zero when only validated
	Partitions int32
	Configs    map[string]string
	Err        *Error
}

// Admit is asked before partitions are made or removed, under the registry's lock; false refuses it, for the client is over its quota. nil
// admits everything.
type Admit func(partitions int) bool

// refused is the answer to a change that was not admitted; nil: it was.
func (a Admit) refused(partitions int32) *Error {
	if a == nil || a(int(partitions)) {
		return nil
	}
	return &Error{Code: api.ErrThrottlingQuotaExceeded, Message: api.ErrThrottlingQuotaExceeded.Message()}
}

// Create makes topics, all by one durable write, or only says what would come of it. Names are taken to differ. What is only validated needs
// to be admitted too, as in Apache.
func (r *Registry) Create(specs []Spec, validateOnly bool, admit Admit) []Result {
	results := make([]Result, len(specs))
	r.change.Lock()
	defer r.change.Unlock()
	var news []catalog.NewTopic
	var at []int
	total := int32(0)
	for i := range specs {
		results[i] = r.plan(&specs[i])
		total += results[i].Partitions
		if total > maxNewPartitions && results[i].Err == nil {
			results[i].Err = refuse(api.ErrPolicyViolation, "Unable to perform excessively large batch operation: more than %d partitions in one request.", maxNewPartitions)
		}
		if results[i].Err == nil {
			results[i].Err = admit.refused(results[i].Partitions)
		}
		if results[i].Err == nil {
			news = append(news, catalog.NewTopic{Name: results[i].Name, Partitions: results[i].Partitions, Configs: results[i].Configs, Internal: IsInternal(results[i].Name)})
			at = append(at, i)
		}
	}
	if validateOnly || len(news) == 0 {
		return results
	}
	for k, made := range r.catalog.CreateTopics(news) {
		out := &results[at[k]]
		if out.Err = r.catalogError("create a topic", made.Err); out.Err == nil {
			out.ID = made.Topic.ID
		}
	}
	return results
}

// refuse makes an Error.
func refuse(code api.ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// plan checks a Spec and fills the defaults in.
func (r *Registry) plan(s *Spec) Result {
	out := Result{Name: s.Name}
	if out.Err = r.checkNewName(s.Name); out.Err != nil {
		return out
	}
	cfg := r.Config()
	configs, err := cfg.NewTopic(s.Configs)
	if err != nil {
		out.Err = &Error{Code: api.ErrorCode(err.Code), Message: err.Message}
		return out
	}
	out.Configs = configs
	out.Partitions, out.Err = r.planPartitions(s, cfg)
	return out
}

// checkNewName refuses a name that cannot become a topic.
func (r *Registry) checkNewName(name string) *Error {
	if err := CheckName(name); err != nil {
		return err
	}
	if r.ByName(name) != nil {
		return refuse(api.ErrTopicAlreadyExists, "Topic '%s' already exists.", name)
	}
	if other, collides := r.catalog.Snapshot().Collides(name); collides {
		return refuse(api.ErrInvalidTopicException, "Topic '%s' collides with existing topic: %s", name, other)
	}
	return nil
}

// planPartitions works out the number of partitions. The only replica of each is this broker.
func (r *Registry) planPartitions(s *Spec, cfg *config.Broker) (int32, *Error) {
	if len(s.Assignments) > 0 {
		if s.ReplicationFactor != -1 {
			return 0, refuse(api.ErrInvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
		}
		if s.Partitions != -1 {
			return 0, refuse(api.ErrInvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
		}
		return int32(len(s.Assignments)), r.checkAssignments(s.Assignments)
	}
	factor, n := int32(s.ReplicationFactor), s.Partitions
	if factor == -1 {
		factor = cfg.DefaultReplicationFactor
	}
	if n == -1 {
		n = cfg.NumPartitions
	}
	switch {
	case factor <= 0:
		return 0, refuse(api.ErrInvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case n <= 0:
		return 0, refuse(api.ErrInvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	case factor > 1:
		return 0, refuse(api.ErrInvalidReplicationFactor, "The target replication factor of %d cannot be reached because only 1 broker(s) are registered.", factor)
	case n > maxNewPartitions:
		return 0, refuse(api.ErrPolicyViolation, "Unable to perform excessively large batch operation: more than %d partitions in one request.", maxNewPartitions)
	}
	return n, nil
}

// checkAssignments accepts partitions 0, 1, … each on this broker alone.
func (r *Registry) checkAssignments(as []Assignment) *Error {
	seen := make(map[int32]bool)
	for _, a := range as {
		if seen[a.Partition] {
			return refuse(api.ErrInvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		seen[a.Partition] = true
		if err := r.CheckReplicas(a.Brokers); err != nil {
			return err
		}
	}
	for i := range as {
		if !seen[int32(i)] {
			return refuse(api.ErrInvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
	}
	return nil
}

// CheckReplicas tells why a partition cannot have these replicas: this broker alone can be one.
func (r *Registry) CheckReplicas(brokers []int32) *Error {
	if len(brokers) == 0 {
		return refuse(api.ErrInvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	seen := make(map[int32]bool)
	for _, b := range brokers {
		if b != r.nodeID {
			return refuse(api.ErrInvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", b)
		}
		if seen[b] {
			return refuse(api.ErrInvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", b)
		}
		seen[b] = true
	}
	return nil
}

// AutoCreateTopics makes topics that clients named in Metadata, where that is allowed; names that cannot be are left out (regressions 13, 14).
func (r *Registry) AutoCreateTopics(names []string) {
	var specs []Spec
	for _, n := range names {
		specs = append(specs, r.autoSpec(n))
	}
	r.Create(specs, false, nil)
}

// autoSpec is how a topic that nobody made by hand is made; the internal ones have settings of their own.
func (r *Registry) autoSpec(name string) Spec {
	s := Spec{Name: string(append([]byte(nil), name...)), Partitions: -1, ReplicationFactor: -1}
	cfg := r.Config()
	internal := cfg.OffsetsTopic
	switch name {
	case OffsetsTopic:
	case TransactionsTopic:
		internal = cfg.TransactionTopic
		s.Configs = append(s.Configs,
			config.Change{Name: "min.insync.replicas", Value: fmt.Sprint(internal.MinInsyncReplicas)},
			config.Change{Name: "unclean.leader.election.enable", Value: "false"})
	default:
		return s
	}
	s.Partitions, s.ReplicationFactor = internal.Partitions, internal.ReplicationFactor
	s.Configs = append(s.Configs,
		config.Change{Name: "cleanup.policy", Value: "compact"},
		config.Change{Name: "compression.type", Value: map[string]string{OffsetsTopic: "producer", TransactionsTopic: "uncompressed"}[name]},
		config.Change{Name: "segment.bytes", Value: fmt.Sprint(internal.SegmentBytes)})
	return s
}

// EnsureInternal makes an internal topic unless it is there.
func (r *Registry) EnsureInternal(name string) *Error {
	if r.ByName(name) != nil {
		return nil
	}
	err := r.Create([]Spec{r.autoSpec(name)}, false, nil)[0].Err
	if err != nil && err.Code == api.ErrTopicAlreadyExists {
		return nil
	}
	return err
}

// AddPartitions grows a topic to count partitions.
func (r *Registry) AddPartitions(name string, count int32, assignments []Assignment, validateOnly bool, admit Admit) *Error {
	r.change.Lock()
	defer r.change.Unlock()
	t := r.ByName(name)
	if t == nil {
		return refuse(api.ErrUnknownTopicOrPartition, "This server does not host this topic-partition.")
	}
	have := int32(len(t.Partitions()))
	switch {
	case count == have:
		return refuse(api.ErrInvalidPartitions, "Topic already has %d partition(s).", have)
	case count < have:
		return refuse(api.ErrInvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", name, have, count)
	case count-have > maxNewPartitions:
		return refuse(api.ErrPolicyViolation, "Unable to perform excessively large batch operation: more than %d partitions in one request.", maxNewPartitions)
	}
	if assignments != nil {
		if len(assignments) != int(count-have) {
			return refuse(api.ErrInvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", count-have, len(assignments))
		}
		for _, a := range assignments {
			if err := r.CheckReplicas(a.Brokers); err != nil {
				return err
			}
		}
	}
	if err := admit.refused(count - have); err != nil || validateOnly {
		return err
	}
	return r.catalogError("add partitions", r.catalog.AddPartitions([]catalog.NewPartitions{{Name: name, Total: count}})[0].Err)
}
