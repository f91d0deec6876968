// Program lag prints the lag of every group as the exporters of Go compute it: with the requests of kminion (kadm), of
// kafka_exporter (sarama), or of Burrow and kminion's mode offsetsTopic, which read __consumer_offsets (topic).
//
//	lag METHOD BOOTSTRAP
//	GROUP TOPIC PARTITION LAG
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const offsetsTopic = "__consumer_offsets"

// ofMember is the first version of a key of __consumer_offsets that is about a member or a group, not an offset.
const ofMember = 2

type position struct {
	group, topic string
	partition    int32
}

func main() {
	methods := map[string]func(context.Context, []string) (map[position]int64, error){
		"kadm": byAdmin, "sarama": bySarama, "topic": byOffsetsTopic,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	found, err := methods[os.Args[1]](ctx, strings.Split(os.Args[2], ","))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for at, lag := range found {
		fmt.Println(at.group, at.topic, at.partition, lag)
	}
}

// byAdmin lists and describes all groups, and fetches all their offsets.
func byAdmin(ctx context.Context, brokers []string) (map[position]int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = admin.DescribeGroups(ctx, groups.Groups()...); err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx)
	if err != nil {
		return nil, err
	}
	found := map[position]int64{}
	for name, response := range admin.FetchManyOffsets(ctx, groups.Groups()...) {
		if response.Err != nil {
			return nil, fmt.Errorf("group %s: %w", name, response.Err)
		}
		for _, one := range response.Fetched.Sorted() {
			end, known := ends.Lookup(one.Topic, one.Partition)
			if one.Err != nil || !known || end.Err != nil {
				return nil, fmt.Errorf("group %s, %s-%d: %v, %v", name, one.Topic, one.Partition, one.Err, end.Err)
			}
			found[position{name, one.Topic, one.Partition}] = end.Offset - one.At
		}
	}
	return found, nil
}

// bySarama sends each broker ListGroups and DescribeGroups, and OffsetFetch for all partitions that there are.
func bySarama(_ context.Context, brokers []string) (map[position]int64, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	topics, err := client.Topics()
	if err != nil {
		return nil, err
	}
	found := map[position]int64{}
	for _, broker := range client.Brokers() {
		if err = broker.Open(config); err != nil && err != sarama.ErrAlreadyConnected {
			return nil, err
		}
		listed, err := broker.ListGroups(&sarama.ListGroupsRequest{})
		if err != nil {
			return nil, err
		}
		for name := range listed.Groups {
			if err = ofGroup(client, broker, name, topics, found); err != nil {
				return nil, fmt.Errorf("group %s: %w", name, err)
			}
		}
	}
	return found, nil
}

func ofGroup(
	client sarama.Client, broker *sarama.Broker, name string, topics []string, found map[position]int64,
) error {
	described, err := broker.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: []string{name}})
	if err != nil {
		return err
	}
	for _, group := range described.Groups {
		if group.Err != sarama.ErrNoError {
			return group.Err
		}
		for _, member := range group.Members {
			if len(member.MemberAssignment) > 0 {
				if _, err = member.GetMemberAssignment(); err != nil {
					return err
				}
			}
		}
	}
	request := &sarama.OffsetFetchRequest{ConsumerGroup: name, Version: 4}
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		if err != nil {
			return err
		}
		for _, partition := range partitions {
			request.AddPartition(topic, partition)
		}
	}
	fetched, err := broker.FetchOffset(request)
	if err != nil {
		return err
	}
	for topic, partitions := range fetched.Blocks {
		for partition, block := range partitions {
			if block.Err != sarama.ErrNoError {
				return block.Err
			}
			if block.Offset < 0 {
				continue // the group has no offset there
			}
			end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
			if err != nil {
				return err
			}
			found[position{name, topic, partition}] = end - block.Offset
		}
	}
	return nil
}

// byOffsetsTopic reads all records of __consumer_offsets; the last of each key is valid.
func byOffsetsTopic(ctx context.Context, brokers []string) (map[position]int64, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(offsetsTopic), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx) // of all topics but internal ones
	if err != nil {
		return nil, err
	}
	left, err := endsOfCommits(brokers)
	if err != nil {
		return nil, err
	}
	committed := map[position]int64{}
	for len(left) > 0 {
		polled := client.PollFetches(ctx)
		if err = polled.Err(); err != nil {
			return nil, err
		}
		for _, record := range polled.Records() {
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
			if !record.Attrs.IsControl() {
				if err = replay(record, committed); err != nil {
					return nil, err
				}
			}
		}
	}
	found := map[position]int64{}
	for at, offset := range committed {
		end, known := ends.Lookup(at.topic, at.partition)
		if !known || end.Err != nil {
			return nil, fmt.Errorf("%v: %v", at, end.Err)
		}
		found[at] = end.Offset - offset
	}
	return found, nil
}

func endsOfCommits(brokers []string) (map[int32]int64, error) {
	client, err := sarama.NewClient(brokers, sarama.NewConfig())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	partitions, err := client.Partitions(offsetsTopic)
	if err != nil {
		return nil, err
	}
	found := map[int32]int64{}
	for _, partition := range partitions {
		end, err := client.GetOffset(offsetsTopic, partition, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		if end > 0 {
			found[partition] = end
		}
	}
	return found, nil
}

func replay(record *kgo.Record, committed map[position]int64) error {
	if len(record.Key) < 2 || record.Key[0] != 0 || record.Key[1] >= ofMember {
		return nil
	}
	key, value := kmsg.NewOffsetCommitKey(), kmsg.NewOffsetCommitValue()
	if err := key.ReadFrom(record.Key); err != nil {
		return fmt.Errorf("offset %d of partition %d: key: %w", record.Offset, record.Partition, err)
	}
	at := position{key.Group, key.Topic, key.Partition}
	if record.Value == nil {
		delete(committed, at)
		return nil
	}
	if err := value.ReadFrom(record.Value); err != nil {
		return fmt.Errorf("offset %d of partition %d: value: %w", record.Offset, record.Partition, err)
	}
	committed[at] = value.Offset
	return nil
}
