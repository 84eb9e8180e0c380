// The capabilities by Sarama.
package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"pylogseg/answers"
)

func main() {
	answers.Main(map[string]answers.Capability{
		"list":      list,
		"describe":  describe,
		"records":   func(b string, s *answers.Spec) (any, error) { return read(b, s.Topics, sarama.ReadUncommitted) },
		"committed": func(b string, s *answers.Spec) (any, error) { return read(b, s.Topics, sarama.ReadCommitted) },
		"legacy":    func(b string, s *answers.Spec) (any, error) { return read(b, s.Legacy, sarama.ReadUncommitted) },
		"times":     times,
		"reset":     reset,
		"group":     group,
		"produce":   produce,
		"sessions":  sessions,
	}, members)
}

func config() *sarama.Config {
	found := sarama.NewConfig()
	found.Consumer.Return.Errors = true
	found.Consumer.Offsets.Initial = sarama.OffsetOldest
	found.Consumer.Offsets.AutoCommit.Enable = false
	found.Consumer.Fetch.Default = 100_000
	found.Consumer.MaxWaitTime = 200 * time.Millisecond
	found.Producer.Return.Successes = true
	found.Producer.Retry.Max = 0
	found.Producer.Partitioner = sarama.NewManualPartitioner
	return found
}

func list(bootstrap string, spec *answers.Spec) (any, error) {
	client, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	topics, err := client.Topics()
	found := map[string]any{}
	for _, topic := range topics {
		numbers, err := client.Partitions(topic)
		if err != nil {
			return nil, err
		}
		found[topic] = numbers
	}
	return found, err
}

func describe(bootstrap string, spec *answers.Spec) (any, error) {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	var names []string
	for topic := range spec.Topics {
		names = append(names, topic)
	}
	sort.Strings(names)
	topics, err := admin.DescribeTopics(names)
	found := map[string]any{}
	for _, topic := range topics {
		rows := []any{topic.IsInternal, int(topic.Err)}
		sort.Slice(topic.Partitions, func(i, j int) bool { return topic.Partitions[i].ID < topic.Partitions[j].ID })
		for _, each := range topic.Partitions {
			rows = append(rows, []any{each.ID, each.Leader, each.Replicas, each.Isr, int(each.Err)})
		}
		found[topic.Name] = rows
	}
	return found, err
}

// consumed reads partitions until nothing comes for a while; the first record may take longer.
func consumed(bootstrap string, settings *sarama.Config, topics map[string][]int32, offset int64, each func(*sarama.ConsumerMessage)) error {
	consumer, err := sarama.NewConsumer([]string{bootstrap}, settings)
	if err != nil {
		return err
	}
	defer consumer.Close()
	messages, failed := make(chan *sarama.ConsumerMessage), make(chan error, 1000)
	over := make(chan struct{})
	var waiting sync.WaitGroup
	for topic, numbers := range topics {
		for _, number := range numbers {
			partition, err := consumer.ConsumePartition(topic, number, offset)
			if err != nil {
				close(over)
				return err
			}
			waiting.Add(2)
			go func() {
				defer waiting.Done()
				for err := range partition.Errors() {
					failed <- err
				}
			}()
			go func() {
				defer waiting.Done()
				for message := range partition.Messages() {
					select {
					case messages <- message:
					case <-over:
					}
				}
			}()
			defer partition.AsyncClose()
		}
	}
	defer close(over)
	wait := answers.Patience
	for {
		select {
		case message := <-messages:
			wait = answers.Quiet
			each(message)
		case err := <-failed:
			return err
		case <-time.After(wait):
			return nil
		}
	}
}

func read(bootstrap string, topics map[string][]int32, isolation sarama.IsolationLevel) (any, error) {
	settings := config()
	settings.Consumer.IsolationLevel = isolation
	rows := map[string][][]any{}
	err := consumed(bootstrap, settings, topics, sarama.OffsetOldest, func(m *sarama.ConsumerMessage) {
		headers := []any{}
		for _, each := range m.Headers {
			headers = append(headers, []any{string(each.Key), answers.Data(each.Value)})
		}
		rows[m.Topic] = append(rows[m.Topic], answers.Row(m.Partition, m.Offset, m.Timestamp.UnixMilli(), 0, nil, m.Key, m.Value, headers))
	})
	for _, each := range rows {
		answers.Sort(each)
	}
	return rows, err
}

func times(bootstrap string, spec *answers.Spec) (any, error) {
	client, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := map[string]any{}
	for topic, numbers := range spec.Topics {
		for _, number := range numbers {
			for _, moment := range append(spec.Times, sarama.OffsetOldest, sarama.OffsetNewest) {
				offset, err := client.GetOffset(topic, number, moment)
				found[fmt.Sprintf("%s-%d %d", topic, number, moment)] = []any{offset, fmt.Sprint(err)}
			}
		}
	}
	return found, nil
}

func reset(bootstrap string, spec *answers.Spec) (any, error) {
	topic, numbers := answers.Place(spec.Reset)
	first := map[string]any{}
	for name, offset := range map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest, "beyond": 100_000} {
		consumer, err := sarama.NewConsumer([]string{bootstrap}, config())
		if err != nil {
			return nil, err
		}
		partition, err := consumer.ConsumePartition(topic, int32(numbers[0]), offset)
		if err != nil { // Sarama looks first, and refuses an offset that is not there
			first[name] = err.Error()
		} else {
			select {
			case message := <-partition.Messages():
				first[name] = message.Offset
			case <-time.After(answers.Quiet):
				first[name] = "nothing"
			}
			partition.AsyncClose()
		}
		consumer.Close()
	}
	return first, nil
}

// handler is told of a member's partitions, and passes on their records.
type handler struct {
	changed  func(numbers []int32)
	messages func(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage)
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	var all []int32
	for _, numbers := range session.Claims() {
		all = append(all, numbers...)
	}
	h.changed(all)
	return nil
}

func (h *handler) Cleanup(sarama.ConsumerGroupSession) error {
	h.changed(nil)
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			h.messages(session, message)
		case <-session.Context().Done():
			return nil
		}
	}
}

func group(bootstrap string, spec *answers.Spec) (any, error) {
	var turns []any
	for turn := 0; turn < 3; turn++ {
		name := "sarama" + spec.Suffix
		members, err := sarama.NewConsumerGroup([]string{bootstrap}, name, config())
		if err != nil {
			return nil, err
		}
		var lock sync.Mutex
		rows, claimed, last := [][]any{}, []int32(nil), time.Now().Add(3*time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		finished := make(chan error, 1)
		h := &handler{
			changed: func(numbers []int32) {
				lock.Lock()
				defer lock.Unlock()
				if numbers != nil {
					claimed = numbers
				}
			},
			messages: func(session sarama.ConsumerGroupSession, m *sarama.ConsumerMessage) {
				lock.Lock()
				defer lock.Unlock()
				rows = append(rows, []any{m.Partition, m.Offset})
				last = time.Now()
				if turn == 0 {
					session.MarkMessage(m, "turn 0")
					session.Commit()
				}
			},
		}
		go func() { finished <- members.Consume(ctx, []string{spec.Group}, h) }()
		for {
			lock.Lock()
			quiet := time.Since(last) > answers.Quiet && claimed != nil
			lock.Unlock()
			if quiet {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
		if err := <-finished; err != nil {
			return nil, err
		}
		if err := members.Close(); err != nil {
			return nil, err
		}
		kept, err := offsets(bootstrap, name, spec, turn == 1)
		if err != nil {
			return nil, err
		}
		sort.Slice(claimed, func(i, j int) bool { return claimed[i] < claimed[j] })
		turns = append(turns, []any{answers.Sort(rows), claimed, kept})
	}
	return turns, nil
}

// offsets returns what a group has committed, and then commits an earlier offset where it is told to.
func offsets(bootstrap, name string, spec *answers.Spec, earlier bool) (any, error) {
	client, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	manager, err := sarama.NewOffsetManagerFromClient(name, client)
	if err != nil {
		return nil, err
	}
	var kept []any
	for _, number := range spec.Topics[spec.Group] {
		partition, err := manager.ManagePartition(spec.Group, number)
		if err != nil {
			return nil, err
		}
		offset, words := partition.NextOffset()
		kept = append(kept, []any{number, offset, words})
		if earlier {
			partition.ResetOffset(2, "words")
		}
		defer partition.AsyncClose()
	}
	if earlier {
		manager.Commit()
	}
	return kept, manager.Close()
}

func produce(bootstrap string, spec *answers.Spec) (any, error) {
	var said []string
	for _, idempotent := range []bool{false, true} {
		settings := config()
		if idempotent {
			settings.Producer.Idempotent = true
			settings.Producer.Retry.Max = 1
			settings.Producer.RequiredAcks = sarama.WaitForAll
			settings.Net.MaxOpenRequests = 1
		}
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, settings)
		if err != nil {
			said = append(said, err.Error())
			continue
		}
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: spec.Refused, Value: sarama.StringEncoder("x")})
		said = append(said, fmt.Sprint(err))
		producer.Close()
	}
	return said, nil
}

func sessions(bootstrap string, spec *answers.Spec) (any, error) {
	topic, numbers := answers.Place(spec.Many)
	var all []int32
	for number := int32(0); number < int32(numbers[0]); number++ {
		all = append(all, number)
	}
	var rows [][]any
	err := consumed(bootstrap, config(), map[string][]int32{topic: all}, sarama.OffsetOldest, func(m *sarama.ConsumerMessage) {
		rows = append(rows, []any{m.Partition, m.Offset, string(m.Value)})
	})
	return answers.Sort(rows), err
}

func members(bootstrap string, asked *answers.Members) (func() [][]int32, func()) {
	var lock sync.Mutex
	owned := make([][]int32, asked.Count)
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	for i := 0; i < asked.Count; i++ {
		settings := config()
		settings.Consumer.Return.Errors = false
		settings.Consumer.Group.Session.Timeout = 6 * time.Second
		settings.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
		settings.Consumer.Group.InstanceId = asked.Static
		member, err := sarama.NewConsumerGroup([]string{bootstrap}, asked.Group, settings)
		if err != nil {
			panic(err)
		}
		h := &handler{
			changed: func(numbers []int32) {
				lock.Lock()
				defer lock.Unlock()
				owned[i] = numbers
			},
			messages: func(sarama.ConsumerGroupSession, *sarama.ConsumerMessage) {},
		}
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			for ctx.Err() == nil {
				_ = member.Consume(ctx, []string{asked.Topic}, h)
			}
			_ = member.Close()
		}()
	}
	snapshot := func() [][]int32 {
		lock.Lock()
		defer lock.Unlock()
		found := make([][]int32, asked.Count)
		for i, each := range owned {
			found[i] = append([]int32{}, each...)
		}
		return found
	}
	return snapshot, func() {
		cancel()
		waiting.Wait()
	}
}
