// franz-go against a broker: franz BOOTSTRAP PREFIX. test_go.py knows the names of the checks. With a third argument
// only the check of a group with the new protocol (KIP-848).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"compat/report"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const records = 50

var (
	bootstrap, prefix string
	admin             *kadm.Client
	ctx               context.Context
	topics            int
)

func main() {
	bootstrap, prefix = os.Args[1], os.Args[2]
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client := newClient()
	defer client.Close()
	admin = kadm.NewClient(client)
	if len(os.Args) > 3 {
		report.Check("group[new]", newGroup)
		return
	}
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		report.Check("records["+name+"]", func() error { return roundTrip(kgo.ProducerBatchCompression(codec)) })
	}
	report.Check("acks[none]", func() error {
		return produceOnly(kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	})
	report.Check("acks[leader]", func() error {
		return roundTrip(kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	})
	report.Check("offsets", offsets)
	report.Check("group", group)
	report.Check("topics", createdTopics)
	report.Check("configs", configs)
	report.Check("delete-records", deleteRecords)
	report.Check("groups-admin", groupsAdmin)
	report.Check("log-dirs", logDirs)
	report.Check("elections", elections)
	report.Check("cluster", cluster)
}

func newClient(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, options...)...)
	if err != nil {
		panic(err)
	}
	return client
}

func newTopic(partitions int32) (string, error) {
	topics++
	name := fmt.Sprintf("%s-%d", prefix, topics)
	// The records are old: the next look at retention would delete them.
	response, err := admin.CreateTopic(ctx, partitions, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, name)
	return name, report.First(err, response.Err)
}

func sent(topic string, number int, partition int32) *kgo.Record {
	record := &kgo.Record{Topic: topic, Partition: partition, Key: []byte(fmt.Sprintf("key-%d", number)),
		Value: []byte(fmt.Sprintf("value-%d ☃", number)), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(number)*1000),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0, 255}}, {Key: "null", Value: nil}}}
	switch number % 5 {
	case 1:
		record.Key = nil
	case 2:
		record.Value = nil
	case 3:
		record.Value = []byte{}
	}
	return record
}

func fill(topic string, partition int32, options ...kgo.Opt) error {
	client := newClient(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer client.Close()
	batch := make([]*kgo.Record, records)
	for number := range batch {
		batch[number] = sent(topic, number, partition)
	}
	return client.ProduceSync(ctx, batch...).FirstErr()
}

func read(count int, options ...kgo.Opt) ([]*kgo.Record, error) {
	client := newClient(options...)
	defer client.Close()
	var found []*kgo.Record
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return found, err
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}

func from(topic string, partition int32, offset kgo.Offset) kgo.Opt {
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: offset}})
}

func describe(record *kgo.Record) string {
	return fmt.Sprintf("%q %t %q %t %d %v", record.Key, record.Key == nil, record.Value, record.Value == nil,
		record.Timestamp.UnixMilli(), record.Headers)
}

func roundTrip(options ...kgo.Opt) error {
	topic, err := newTopic(1)
	if err = report.First(err, fill(topic, 0, options...)); err != nil {
		return err
	}
	found, err := read(records, from(topic, 0, kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	for number, record := range found {
		expected := describe(sent(topic, number, 0))
		if err := report.First(report.Equal("record", describe(record), expected),
			report.Equal("offset", record.Offset, number)); err != nil {
			return err
		}
	}
	return report.Equal("records", len(found), records)
}

func produceOnly(options ...kgo.Opt) error {
	topic, err := newTopic(1)
	if err = report.First(err, fill(topic, 0, options...)); err != nil {
		return err
	}
	found, err := read(records, from(topic, 0, kgo.NewOffset().AtStart()))
	return report.First(err, report.Equal("records", len(found), records))
}

func offsets() error {
	topic, err := newTopic(1)
	if err = report.First(err, fill(topic, 0)); err != nil {
		return err
	}
	for want, offset := range map[int64]kgo.Offset{
		0: kgo.NewOffset().AtStart(), 7: kgo.NewOffset().At(7), 45: kgo.NewOffset().AtEnd().Relative(-5),
		12: kgo.NewOffset().AfterMilli(1_700_000_011_500),
	} {
		found, err := read(1, from(topic, 0, offset))
		if err = report.First(err, report.Equal("first offset", found[0].Offset, want)); err != nil {
			return err
		}
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	starts, err2 := admin.ListStartOffsets(ctx, topic)
	timed, err3 := admin.ListOffsetsAfterMilli(ctx, 1_700_000_011_500, topic)
	if err = report.First(err, err2, err3); err != nil {
		return err
	}
	end, _ := ends.Lookup(topic, 0)
	start, _ := starts.Lookup(topic, 0)
	later, _ := timed.Lookup(topic, 0)
	return report.First(report.Equal("end", end.Offset, records), report.Equal("start", start.Offset, 0),
		report.Equal("after a time", later.Offset, 12))
}

func group() error {
	return grouped(func(name string) (string, error) {
		described, err := admin.DescribeGroups(ctx, name)
		return fmt.Sprintf("%d %s", len(described[name].Members), described[name].State), err
	})
}

// The client of this version uses the new protocol only with a value in its context.
func newGroup() error {
	client := newClient()
	defer client.Close()
	describe := func(name string) (string, error) {
		request := kmsg.NewPtrConsumerGroupDescribeRequest()
		request.Groups = []string{name}
		for _, shard := range client.RequestSharded(ctx, request) {
			if shard.Err != nil {
				return "", shard.Err
			}
			for _, found := range shard.Resp.(*kmsg.ConsumerGroupDescribeResponse).Groups {
				return fmt.Sprintf("%d %s", len(found.Members), found.State), nil
			}
		}
		return "", nil
	}
	return grouped(describe, kgo.WithContext(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)))
}

// Two members share the partitions, commit, and a third continues where they left.
func grouped(describe func(string) (string, error), protocol ...kgo.Opt) error {
	topic, err := newTopic(4)
	for partition := int32(0); partition < 4 && err == nil; partition++ {
		err = fill(topic, partition)
	}
	if err != nil {
		return err
	}
	name := topic + "-group"
	options := []kgo.Opt{kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	options = append(options, protocol...)
	first, second := newClient(options...), newClient(options...)
	seen := map[string]bool{}
	members := []*kgo.Client{first, second}
	// Both have joined before anything is polled: what a member commits stays its own.
	for state := ""; state != "2 Stable"; {
		if state, err = describe(name); err != nil {
			return fmt.Errorf("state %q: %w", state, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	for len(seen) < 4*records {
		for _, member := range members {
			poll, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			fetches := member.PollFetches(poll)
			cancel()
			fetches.EachRecord(func(record *kgo.Record) {
				seen[fmt.Sprintf("%d-%d", record.Partition, record.Offset)] = true
			})
			if ctx.Err() != nil {
				return fmt.Errorf("%d of %d records in time", len(seen), 4*records)
			}
		}
	}
	for _, member := range members {
		if err := member.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
		member.Close()
	}
	if err := fill(topic, 2); err != nil {
		return err
	}
	found, err := read(records, options...)
	return report.First(err, report.Equal("records behind the commit", len(found), records),
		report.Equal("first of them", found[0].Offset, records))
}

func createdTopics() error {
	name := prefix + "-created"
	_, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("60000")}, name)
	again, _ := admin.CreateTopic(ctx, 2, 1, nil, name)
	if err = report.First(err, report.Equal("again", again.Err, kerr.TopicAlreadyExists)); err != nil {
		return err
	}
	if _, err := admin.UpdatePartitions(ctx, 5, name); err != nil {
		return err
	}
	details, err := admin.ListTopics(ctx, name)
	if err = report.First(err, details.Error(), report.Equal("partitions", len(details[name].Partitions), 5)); err != nil {
		return err
	}
	deleted, err := admin.DeleteTopics(ctx, name, prefix+"-absent")
	return report.First(err, deleted[name].Err,
		report.Equal("absent", deleted[prefix+"-absent"].Err, kerr.UnknownTopicOrPartition))
}

func configs() error {
	topic, err := newTopic(1)
	if err != nil {
		return err
	}
	value := func() string {
		found, err := admin.DescribeTopicConfigs(ctx, topic)
		if err != nil || len(found) != 1 {
			return fmt.Sprint(err)
		}
		for _, config := range found[0].Configs {
			if config.Key == "retention.ms" {
				return fmt.Sprintf("%s from %s", *config.Value, config.Source)
			}
		}
		return "absent"
	}
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("5000")}}
	answers, err := admin.AlterTopicConfigs(ctx, set, topic)
	for tries := 0; tries < 50 && value() != "5000 from DYNAMIC_TOPIC_CONFIG"; tries++ {
		time.Sleep(100 * time.Millisecond) // Apache Kafka's brokers hear of it a little later
	}
	if err = report.First(err, answers[0].Err, report.Equal("set", value(), "5000 from DYNAMIC_TOPIC_CONFIG")); err != nil {
		return err
	}
	unset := []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "retention.ms"}}
	if answers, err = admin.AlterTopicConfigs(ctx, unset, topic); err != nil {
		return err
	}
	bad := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "no.such.key", Value: kadm.StringPtr("1")}}
	refused, err := admin.AlterTopicConfigs(ctx, bad, topic)
	brokers, err2 := admin.ListBrokers(ctx)
	if err = report.First(err, err2, answers[0].Err, report.Equal("back", value(), "604800000 from DEFAULT_CONFIG"),
		report.Equal("refused", errors.Is(refused[0].Err, kerr.InvalidConfig), true)); err != nil {
		return err
	}
	described, err := admin.DescribeBrokerConfigs(ctx, brokers[0].NodeID)
	return report.First(err, described[0].Err, report.Equal("broker's settings", len(described[0].Configs) > 100, true))
}

func deleteRecords() error {
	topic, err := newTopic(1)
	if err = report.First(err, fill(topic, 0)); err != nil {
		return err
	}
	below := kadm.Offsets{}
	below.AddOffset(topic, 0, 20, -1)
	answers, err := admin.DeleteRecords(ctx, below)
	if err != nil {
		return err
	}
	answer, _ := answers.Lookup(topic, 0)
	found, err := read(1, from(topic, 0, kgo.NewOffset().AtStart()))
	return report.First(err, answer.Err, report.Equal("low watermark", answer.LowWatermark, 20),
		report.Equal("first record", found[0].Offset, 20))
}

func groupsAdmin() error {
	topic, err := newTopic(2)
	if err = report.First(err, fill(topic, 0), fill(topic, 1)); err != nil {
		return err
	}
	name := topic + "-admin"
	commit := kadm.Offsets{}
	commit.AddOffset(topic, 0, 10, -1)
	commit.AddOffset(topic, 1, 20, -1)
	if err := admin.CommitAllOffsets(ctx, name, commit); err != nil {
		return err
	}
	lags, err := admin.Lag(ctx, name)
	if err = report.First(err, lags.Error(), report.Equal("lag", lags[name].Lag.Total(), 2*records-30)); err != nil {
		return err
	}
	listed, err := admin.ListGroups(ctx)
	if err = report.First(err, report.Equal("listed", listed[name].State, "Empty")); err != nil {
		return err
	}
	some := kadm.TopicsSet{}
	some.Add(topic, 0)
	removed, err := admin.DeleteOffsets(ctx, name, some)
	left, err2 := admin.FetchOffsets(ctx, name)
	if err = report.First(err, err2, removed.Error(), report.Equal("left", left.Offsets().Sorted()[0].At, 20)); err != nil {
		return err
	}
	gone, err := admin.DeleteGroups(ctx, name)
	return report.First(err, gone.Error())
}

func logDirs() error {
	topic, err := newTopic(2)
	if err = report.First(err, fill(topic, 1)); err != nil {
		return err
	}
	all, err := admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return err
	}
	var sizes []int64
	all.Each(func(folder kadm.DescribedLogDir) {
		if folder.Err != nil {
			err = folder.Err
		}
		for _, partition := range folder.Topics[topic] {
			sizes = append(sizes, partition.Size)
		}
	})
	sort.Slice(sizes, func(i, j int) bool { return sizes[i] < sizes[j] })
	return report.First(err, report.Equal("partitions", len(sizes), 2), report.Equal("sizes", sizes[0] == 0 && sizes[1] > 0, true))
}

func elections() error {
	topic, err := newTopic(1)
	if err != nil {
		return err
	}
	some := kadm.TopicsSet{}
	some.Add(topic, 0)
	results, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, some)
	moving, err2 := admin.ListPartitionReassignments(ctx, nil)
	return report.First(err, err2, report.Equal("election", results[topic][0].Err, kerr.ElectionNotNeeded),
		report.Equal("reassignments", len(moving), 0))
}

func cluster() error {
	metadata, err := admin.BrokerMetadata(ctx)
	versions, err2 := admin.ApiVersions(ctx)
	if err = report.First(err, err2); err != nil {
		return err
	}
	return report.First(report.Equal("brokers", len(metadata.Brokers), 1),
		report.Equal("cluster id", len(metadata.Cluster), 22),
		report.Equal("versions", len(versions.Sorted()[0].Raw().ApiKeys) > 30, true))
}
