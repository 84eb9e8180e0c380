// The capabilities by franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"pylogseg/answers"
)

var background = context.Background()

func main() {
	answers.Main(map[string]answers.Capability{
		"list":      list,
		"describe":  describe,
		"records":   func(b string, s *answers.Spec) (any, error) { return read(b, s.Topics, kgo.ReadUncommitted()) },
		"committed": func(b string, s *answers.Spec) (any, error) { return read(b, s.Topics, kgo.ReadCommitted()) },
		"legacy":    func(b string, s *answers.Spec) (any, error) { return read(b, s.Legacy, kgo.ReadUncommitted()) },
		"times":     times,
		"reset":     reset,
		"group":     func(b string, s *answers.Spec) (any, error) { return group(b, s, "franz") },
		"new group": func(b string, s *answers.Spec) (any, error) {
			return group(b, s, "franz-new", kgo.ServerSideBalancer())
		},
		"produce":   produce,
		"truncated": truncated,
		"sessions":  sessions,
	}, members)
}

func client(bootstrap string, more ...kgo.Opt) (*kgo.Client, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.FetchMaxPartitionBytes(100_000), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	return kgo.NewClient(append(settings, more...)...)
}

func places(topics map[string][]int32, offset kgo.Offset) map[string]map[int32]kgo.Offset {
	found := map[string]map[int32]kgo.Offset{}
	for topic, numbers := range topics {
		found[topic] = map[int32]kgo.Offset{}
		for _, number := range numbers {
			found[topic][number] = offset
		}
	}
	return found
}

// drain polls until nothing comes for a while; the first record may take longer.
func drain(cl *kgo.Client, each func(*kgo.Record)) error {
	wait := answers.Patience
	for {
		ctx, cancel := context.WithTimeout(background, wait)
		fetches := cl.PollFetches(ctx)
		cancel()
		for _, failed := range fetches.Errors() {
			if errors.Is(failed.Err, context.DeadlineExceeded) {
				return nil
			}
			return failed.Err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			wait = answers.Quiet
			each(record)
		})
	}
}

func list(bootstrap string, spec *answers.Spec) (any, error) {
	cl, err := client(bootstrap)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopicsWithInternal(background)
	found := map[string]any{}
	for name, topic := range topics {
		found[name] = []any{topic.ID.String(), topic.IsInternal, topic.Partitions.Numbers()}
	}
	return found, err
}

func describe(bootstrap string, spec *answers.Spec) (any, error) {
	cl, err := client(bootstrap)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	found := map[string]any{}
	for name := range spec.Topics {
		topics, err := admin.ListTopics(background, name)
		if err != nil {
			return nil, err
		}
		var rows []any
		for _, each := range topics[name].Partitions.Sorted() {
			rows = append(rows, []any{each.Partition, each.Leader, each.Replicas, each.ISR, each.OfflineReplicas, each.Err})
		}
		found[name] = rows
	}
	return found, nil
}

func read(bootstrap string, topics map[string][]int32, isolation kgo.IsolationLevel) (any, error) {
	cl, err := client(bootstrap, kgo.ConsumePartitions(places(topics, kgo.NewOffset().AtStart())), kgo.FetchIsolationLevel(isolation))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	rows := map[string][][]any{}
	err = drain(cl, func(r *kgo.Record) { rows[r.Topic] = append(rows[r.Topic], row(r)) })
	for _, each := range rows {
		answers.Sort(each)
	}
	return rows, err
}

func row(r *kgo.Record) []any {
	headers := []any{}
	for _, each := range r.Headers {
		headers = append(headers, []any{each.Key, answers.Data(each.Value)})
	}
	var kind any
	if t := r.Attrs.TimestampType(); t >= 0 {
		kind = t
	}
	return answers.Row(r.Partition, r.Offset, r.Timestamp.UnixMilli(), kind, r.LeaderEpoch, r.Key, r.Value, headers)
}

func times(bootstrap string, spec *answers.Spec) (any, error) {
	cl, err := client(bootstrap)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	var topics []string
	for topic := range spec.Topics {
		topics = append(topics, topic)
	}
	sort.Strings(topics)
	found := map[string]any{}
	add := func(name string, listed kadm.ListedOffsets, err error) error {
		listed.Each(func(at kadm.ListedOffset) {
			found[fmt.Sprintf("%s-%d %s", at.Topic, at.Partition, name)] = []any{at.Offset, at.Timestamp, at.LeaderEpoch, at.Err}
		})
		return err
	}
	for _, moment := range spec.Times {
		listed, err := admin.ListOffsetsAfterMilli(background, moment, topics...)
		if err := add(fmt.Sprint(moment), listed, err); err != nil {
			return nil, err
		}
	}
	for name, ask := range map[string]func(context.Context, ...string) (kadm.ListedOffsets, error){
		"earliest": admin.ListStartOffsets, "latest": admin.ListEndOffsets, "max": admin.ListMaxTimestampOffsets,
		"committed": admin.ListCommittedOffsets, "local": admin.ListLocalLogStartOffsets, "tiered": admin.ListLatestRemoteOffsets,
	} {
		listed, err := ask(background, topics...)
		if err := add(name, listed, err); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func reset(bootstrap string, spec *answers.Spec) (any, error) {
	topic, numbers := answers.Place(spec.Reset)
	found := map[string]any{}
	for name, offset := range map[string]kgo.Offset{"earliest": kgo.NewOffset().AtStart(), "latest": kgo.NewOffset().AtEnd()} {
		asked := places(map[string][]int32{topic: {int32(numbers[0])}}, kgo.NewOffset().At(100_000))
		cl, err := client(bootstrap, kgo.ConsumePartitions(asked), kgo.ConsumeResetOffset(offset))
		if err != nil {
			return nil, err
		}
		first, count := int64(-1), 0
		ctx, cancel := context.WithTimeout(background, 4*time.Second)
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				if count == 0 {
					first = r.Offset
				}
				count++
			})
		}
		cancel()
		cl.Close()
		found[name] = []any{first, count}
	}
	return found, nil
}

func group(bootstrap string, spec *answers.Spec, name string, more ...kgo.Opt) (any, error) {
	var turns []any
	name += spec.Suffix
	for turn := 0; turn < 3; turn++ {
		cl, err := client(bootstrap, append(more, kgo.ConsumerGroup(name), kgo.ConsumeTopics(spec.Group), kgo.DisableAutoCommit())...)
		if err != nil {
			return nil, err
		}
		rows := [][]any{}
		wait := 5 * time.Second // to join; the second turn gets nothing
		for {
			ctx, cancel := context.WithTimeout(background, wait)
			fetches := cl.PollFetches(ctx)
			late := ctx.Err() != nil
			cancel()
			fetches.EachRecord(func(r *kgo.Record) { rows = append(rows, []any{r.Partition, r.Offset}) })
			if len(rows) > 0 {
				wait = answers.Quiet
			}
			if late {
				break
			}
		}
		admin := kadm.NewClient(cl)
		kept, err := admin.FetchOffsets(background, name)
		if err != nil {
			return nil, err
		}
		var committed []any
		for _, each := range kept.Sorted() {
			words := each.Metadata == "words" // else it is the name of the member
			committed = append(committed, []any{each.Partition, each.At, words, each.LeaderEpoch})
		}
		turns = append(turns, []any{answers.Sort(rows), committed})
		if turn == 0 {
			err = cl.CommitUncommittedOffsets(background)
		}
		cl.Close()
		if turn == 1 { // from outside, as an administrator does, once the group is empty
			err = commit(bootstrap, name, spec)
		}
		if err != nil {
			return nil, err
		}
	}
	return turns, nil
}

func commit(bootstrap, name string, spec *answers.Spec) error {
	cl, err := client(bootstrap)
	if err != nil {
		return err
	}
	defer cl.Close()
	offsets := kadm.Offsets{}
	for _, number := range spec.Topics[spec.Group] {
		offsets.Add(kadm.Offset{Topic: spec.Group, Partition: number, At: 2, LeaderEpoch: 0, Metadata: "words"})
	}
	for until := time.Now().Add(answers.Patience); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if err = kadm.NewClient(cl).CommitAllOffsets(background, name, offsets); err == nil {
			return nil
		}
	}
	return err
}

func produce(bootstrap string, spec *answers.Spec) (any, error) {
	var said []string
	for _, more := range [][]kgo.Opt{{kgo.DisableIdempotentWrite()}, {}} {
		cl, err := client(bootstrap, append(more, kgo.RecordRetries(1))...)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(background, answers.Patience)
		err = cl.ProduceSync(ctx, &kgo.Record{Topic: spec.Refused, Value: []byte("x")}).FirstErr()
		cancel()
		cl.Close()
		said = append(said, fmt.Sprint(err))
	}
	return said, nil
}

func truncated(bootstrap string, spec *answers.Spec) (any, error) {
	topic, numbers := answers.Place(spec.Truncated)
	offset := kgo.NewOffset().At(numbers[1]).WithEpoch(int32(numbers[2]))
	cl, err := client(bootstrap, kgo.ConsumePartitions(places(map[string][]int32{topic: {int32(numbers[0])}}, offset)))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(background, answers.Patience)
	defer cancel()
	loss, first := "", int64(-1)
	for first < 0 && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			loss = failed.Err.Error()
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if first < 0 {
				first = r.Offset
			}
		})
	}
	return []any{loss, first}, nil
}

func sessions(bootstrap string, spec *answers.Spec) (any, error) {
	topic, numbers := answers.Place(spec.Many)
	var all []int32
	for number := int32(0); number < int32(numbers[0]); number++ {
		all = append(all, number)
	}
	cl, err := client(bootstrap, kgo.ConsumePartitions(places(map[string][]int32{topic: all}, kgo.NewOffset().AtStart())))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var rows [][]any
	if err := drain(cl, func(r *kgo.Record) { rows = append(rows, []any{r.Partition, r.Offset, string(r.Value)}) }); err != nil {
		return nil, err
	}
	return answers.Sort(rows), nil
}

func members(bootstrap string, asked *answers.Members) (func() [][]int32, func()) {
	var lock sync.Mutex
	owned := make([]map[int32]bool, asked.Count)
	var clients []*kgo.Client
	ctx, cancel := context.WithCancel(background)
	for i := 0; i < asked.Count; i++ {
		owned[i] = map[int32]bool{}
		put := func(is bool) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
				lock.Lock()
				defer lock.Unlock()
				for _, number := range changed[asked.Topic] {
					if is {
						owned[i][number] = true
					} else {
						delete(owned[i], number)
					}
				}
			}
		}
		more := []kgo.Opt{
			kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.DisableAutoCommit(),
			kgo.OnPartitionsAssigned(put(true)), kgo.OnPartitionsRevoked(put(false)), kgo.OnPartitionsLost(put(false)),
		}
		if asked.Protocol == "consumer" {
			more = append(more, kgo.ServerSideBalancer())
		} else {
			more = append(more, kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))
		}
		if asked.Static != "" {
			more = append(more, kgo.InstanceID(asked.Static))
		}
		cl, err := client(bootstrap, more...)
		if err != nil {
			panic(err)
		}
		clients = append(clients, cl)
		go func() {
			for ctx.Err() == nil {
				cl.PollFetches(ctx)
			}
		}()
	}
	snapshot := func() [][]int32 {
		lock.Lock()
		defer lock.Unlock()
		found := make([][]int32, asked.Count)
		for i, each := range owned {
			found[i] = []int32{}
			for number := range each {
				found[i] = append(found[i], number)
			}
		}
		return found
	}
	return snapshot, func() {
		cancel()
		for _, cl := range clients {
			cl.Close()
		}
	}
}
