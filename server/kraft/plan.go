package kraft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kaas/codec/wire"
	"kaas/engine"
	"kaas/server/catalog"
	"kaas/server/config"
	"kaas/server/topics"
)

// plan is what an import will do.
type plan struct {
	dir              string
	img              *image
	directory        wire.UUID // directory.id, zero before 3.7
	starts, recovery map[string]int64

	seed   catalog.Seed
	logs   []engine.Imported
	known  map[string]bool // directories that are partitions'
	report *Report
}

// makePlan reads everything and decides; it changes nothing.
func makePlan(dir string) (*plan, error) {
	p := &plan{dir: dir, known: map[string]bool{}, report: &Report{Dir: dir, Topics: []TopicReport{}}}
	for _, step := range []func() error{p.readIdentity, p.readQuorum, p.readCheckpoints, p.readLog, p.takeTopics, p.takeRest, p.sortDir} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plan) readIdentity() error {
	name := filepath.Join(p.dir, metaProperties)
	m, err := properties(name)
	if errors.Is(err, fs.ErrNotExist) {
		return refusef("%s holds no %s: it is not a data directory of Apache Kafka", p.dir, metaProperties)
	}
	if err != nil {
		return err
	}
	node := parse(m["node.id"])
	if m["version"] != "1" || node < 0 || m["cluster.id"] == "" {
		return refusef("%s is not of KRaft mode (version=1 with node.id and cluster.id): a broker with ZooKeeper has to be migrated first", name)
	}
	p.report.NodeID, p.report.ClusterID = int32(node), m["cluster.id"]
	if text, ok := m["directory.id"]; ok {
		if p.directory, err = wire.ParseUUID(text); err != nil {
			return refusef("%s: directory.id: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, MetadataDir)); err != nil {
		return refusef("%s holds no %s: this broker is no controller, or its metadata.log.dir points elsewhere; only a node that is both, with one directory, can be imported",
			p.dir, MetadataDir)
	}
	_, err = os.Stat(filepath.Join(p.dir, cleanMark))
	p.report.Clean = err == nil
	return nil
}

// readQuorum makes sure that this node alone decides what is in the metadata log: then all that is in it counts.
func (p *plan) readQuorum() error {
	name := filepath.Join(p.dir, MetadataDir, "quorum-state")
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var state struct {
		CurrentVoters []struct{ VoterID int32 }
	}
	if err := json.Unmarshal(b, &state); err != nil {
		return refusef("%s: %v", name, err)
	}
	for _, v := range state.CurrentVoters {
		if v.VoterID != p.report.NodeID || len(state.CurrentVoters) > 1 {
			return refusef("the controllers are %v, not node %d alone: only a single node can be imported", state.CurrentVoters, p.report.NodeID)
		}
	}
	return nil
}

func (p *plan) readCheckpoints() (err error) {
	if p.starts, err = checkpoint(filepath.Join(p.dir, logStarts)); err != nil {
		return err
	}
	p.recovery, err = checkpoint(filepath.Join(p.dir, recoveryPoints))
	return err
}

func (p *plan) readLog() (err error) {
	if p.img, err = readMetadata(filepath.Join(p.dir, MetadataDir)); err != nil {
		return err
	}
	r := p.report
	r.Snapshot, r.MetadataOffset, r.TornMetadata = p.img.snapshot, p.img.end, p.img.torn
	return nil
}

func (p *plan) takeTopics() error {
	list := slices.SortedFunc(maps.Values(p.img.topics), func(a, b *topic) int { return strings.Compare(a.name, b.name) })
	for _, t := range list {
		r := TopicReport{Name: t.name, ID: t.id.String(), Partitions: int32(len(t.partitions)), Internal: topics.IsInternal(t.name),
			Configs: p.img.configs[resourceTopic][t.name]}
		for i := range r.Partitions {
			part := t.partitions[i]
			if part == nil {
				return refusef("topic %s has %d partitions, but none with number %d", t.name, r.Partitions, i)
			}
			if err := p.takePartition(t, i, part, &r); err != nil {
				return err
			}
		}
		for _, key := range slices.Sorted(maps.Keys(r.Configs)) {
			if config.TopicKey(key) == nil {
				p.report.warn("setting %s of topic %s is kept, but kaas does not know it", key, t.name)
			}
		}
		p.report.Topics = append(p.report.Topics, r)
		p.seed.Topics = append(p.seed.Topics, catalog.SeedTopic{LastEpoch: r.LastEpoch, NewTopic: catalog.NewTopic{
			Name: t.name, ID: t.id, Partitions: r.Partitions, Internal: r.Internal, Configs: r.Configs}})
	}
	return nil
}

// takeRest takes what is no topic.
func (p *plan) takeRest() error {
	r := p.report
	p.seed.Origin = catalog.Origin{Kind: catalog.OriginKRaft, MetadataOffset: p.img.end}
	p.seed.NodeID, p.seed.ClusterID = r.NodeID, r.ClusterID
	p.seed.BrokerConfigs = p.img.configs[resourceBroker]
	p.seed.Kept = p.img.kept()
	r.BrokerConfigs = shownConfigs(p.seed.BrokerConfigs)
	for _, node := range slices.Sorted(maps.Keys(r.BrokerConfigs)) {
		if node != "" && parse(node) < 0 {
			return refusef("dynamic settings of broker %q, which is no node id", node)
		}
		for _, key := range slices.Sorted(maps.Keys(r.BrokerConfigs[node])) {
			if config.BrokerKey(key) == nil {
				r.warn("dynamic broker setting %s is kept, but kaas does not know it", key)
			}
		}
	}
	r.Stored = stored(&p.seed.Kept)
	if r.Stored.ACLs > 0 {
		r.warn("%d ACLs are kept but NOT enforced by this version: keep clients out by other means", r.Stored.ACLs)
	}
	if n := len(r.Stored.ScramUsers); n > 0 {
		r.warn("%d SCRAM credentials are kept but not used by this version", n)
	}
	if r.NodeID != 1 {
		r.warn("start the broker with node.id=%d (kaas serve --set node.id=%d)", r.NodeID, r.NodeID)
	}
	return nil
}

// shownConfigs hides secrets, and what may be one.
func shownConfigs(all map[string]map[string]string) map[string]map[string]string {
	out := make(map[string]map[string]string, len(all))
	for node, configs := range all {
		out[node] = maps.Clone(configs)
		for name := range configs {
			if k := config.BrokerKey(name); k == nil || k.Sensitive() {
				out[node][name] = "(hidden)"
			}
		}
	}
	return out
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// producerIDsPerSecond is how many producer ids an import has for each second until the next: more than anyone gives.
const producerIDsPerSecond = 1 << 20

// ownProducerIDs lets ids begin far above Apache's, at a place that grows with time. Apache does not learn which ids kaas gives. If it
// gave one again, after a return to it, it would take the first batch of the new producer for a repeat of one that is in the log, and
// drop it with an acknowledgement. The numbers stay below 2^53: some clients keep them in a float.
func (p *plan) ownProducerIDs(now time.Time) {
	p.seed.NextProducerID = max(p.img.nextPID, now.Unix()*producerIDsPerSecond)
	p.report.NextProducerID = p.seed.NextProducerID
}

// mechanisms are the names of SCRAM mechanisms by Kafka's number.
var mechanisms = map[int8]string{1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

func stored(k *catalog.Kept) Stored {
	s := Stored{ACLs: len(k.ACLs), Quotas: len(k.Quotas), Features: len(k.Features), Tokens: len(k.Tokens), ClientMetrics: len(k.ClientMetrics)}
	for _, u := range k.Users {
		s.ScramUsers = append(s.ScramUsers, u.Name+" "+mechanisms[u.Mechanism])
	}
	return s
}

// sortDir says of everything else in the directory what becomes of it, and refuses partitions that no topic owns: the broker would
// remove them.
func (p *plan) sortDir() error {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	r := p.report
	for _, e := range entries {
		name := e.Name()
		switch {
		case p.known[name] || slices.Contains(r.Removed, name) || ours(name):
		case e.IsDir() && strings.HasSuffix(name, "-delete"):
			r.Removed = append(r.Removed, name)
		case e.IsDir() && name != MetadataDir && engine.IsPartitionDir(name):
			id, err := readTopicID(filepath.Join(p.dir, name, partitionMeta))
			if err != nil {
				return err
			}
			if !p.img.removed[id] {
				return refusef("no topic of the metadata owns directory %s (topic id %v): move it away if its records are not needed", name, id)
			}
			r.Removed = append(r.Removed, name)
		case name == cleanMark:
			// It goes: once kaas has written, it would be a lie to Apache.
		default:
			r.LeftAlone = append(r.LeftAlone, name)
		}
	}
	return nil
}

// ours are the names that an import makes, or needs.
func ours(name string) bool {
	return name == ".lock" || name == engine.JournalName || name == stagingDir
}
