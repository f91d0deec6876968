// sarama against a broker: sarama BOOTSTRAP PREFIX. test_go.py knows the names of the checks.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"compat/report"

	"github.com/IBM/sarama"
)

const records = 50

var (
	brokers []string
	prefix  string
	admin   sarama.ClusterAdmin
	topics  int
)

func main() {
	brokers, prefix = []string{os.Args[1]}, os.Args[2]
	var err error
	if admin, err = sarama.NewClusterAdmin(brokers, config()); err != nil {
		fmt.Println("FAIL connect: " + err.Error())
		return
	}
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP,
		sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		report.Check("records["+codec.String()+"]", func() error {
			settings := config()
			settings.Producer.Compression = codec
			return roundTrip(settings)
		})
	}
	report.Check("acks[none]", func() error {
		settings := config()
		settings.Producer.RequiredAcks = sarama.NoResponse
		return roundTrip(settings)
	})
	report.Check("idempotence", func() error {
		settings := config()
		settings.Producer.Idempotent = true
		settings.Producer.RequiredAcks = sarama.WaitForAll
		settings.Net.MaxOpenRequests = 1
		return roundTrip(settings)
	})
	report.Check("old-version", func() error { // message sets and the requests of that time
		settings := config()
		settings.Version = sarama.V0_10_2_0
		return roundTrip(settings)
	})
	report.Check("offsets", offsets)
	report.Check("group", group)
	report.Check("topics", createdTopics)
	report.Check("configs", configs)
	report.Check("delete-records", deleteRecords)
	report.Check("groups-admin", groupsAdmin)
	report.Check("log-dirs", logDirs)
	report.Check("reassignments", reassignments)
}

func config() *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.MaxVersion
	settings.Producer.Return.Successes = true
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	return settings
}

func newTopic(partitions int32) (string, error) {
	topics++
	name := fmt.Sprintf("%s-%d", prefix, topics)
	keep := "-1" // the records are old: the next look at retention would delete them
	return name, admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &keep}}, false)
}

func sent(topic string, number int, partition int32, headers bool) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{Topic: topic, Partition: partition,
		Key:       sarama.StringEncoder(fmt.Sprintf("key-%d", number)),
		Value:     sarama.StringEncoder(fmt.Sprintf("value-%d ☃", number)),
		Timestamp: time.UnixMilli(1_700_000_000_000 + int64(number)*1000)}
	if headers {
		message.Headers = []sarama.RecordHeader{{Key: []byte("h"), Value: []byte{0, 255}}}
	}
	return message
}

func fill(topic string, partition int32, settings *sarama.Config) error {
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(brokers, settings)
	if err != nil {
		return err
	}
	defer producer.Close()
	batch := make([]*sarama.ProducerMessage, records)
	for number := range batch {
		batch[number] = sent(topic, number, partition, settings.Version.IsAtLeast(sarama.V0_11_0_0))
	}
	return producer.SendMessages(batch)
}

func read(topic string, partition int32, offset int64, count int, settings *sarama.Config) ([]*sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumer(brokers, settings)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	part, err := consumer.ConsumePartition(topic, partition, offset)
	if err != nil {
		return nil, err
	}
	defer part.Close()
	var found []*sarama.ConsumerMessage
	for len(found) < count {
		select {
		case message := <-part.Messages():
			found = append(found, message)
		case <-time.After(20 * time.Second):
			return found, fmt.Errorf("%d of %d records in time", len(found), count)
		}
	}
	return found, nil
}

func roundTrip(settings *sarama.Config) error {
	topic, err := newTopic(1)
	if err = report.First(err, fill(topic, 0, settings)); err != nil {
		return err
	}
	found, err := read(topic, 0, sarama.OffsetOldest, records, settings)
	if err != nil {
		return err
	}
	for number, message := range found {
		expected := sent(topic, number, 0, settings.Version.IsAtLeast(sarama.V0_11_0_0))
		key, _ := expected.Key.Encode()
		value, _ := expected.Value.Encode()
		if err := report.First(report.Equal("key", string(message.Key), string(key)),
			report.Equal("value", string(message.Value), string(value)),
			report.Equal("time", message.Timestamp.UnixMilli(), expected.Timestamp.UnixMilli()),
			report.Equal("headers", len(message.Headers), len(expected.Headers)),
			report.Equal("offset", message.Offset, number)); err != nil {
			return err
		}
	}
	return nil
}

func offsets() error {
	topic, err := newTopic(1)
	if err = report.First(err, fill(topic, 0, config())); err != nil {
		return err
	}
	client, err := sarama.NewClient(brokers, config())
	if err != nil {
		return err
	}
	defer client.Close()
	for when, expected := range map[int64]int64{sarama.OffsetOldest: 0, sarama.OffsetNewest: records, 1_700_000_011_500: 12} {
		found, err := client.GetOffset(topic, 0, when)
		if err = report.First(err, report.Equal("offset", found, expected)); err != nil {
			return err
		}
	}
	found, err := read(topic, 0, 7, 1, config())
	return report.First(err, report.Equal("from an offset", found[0].Offset, 7))
}

// counter is a group handler that marks what it reads.
type counter struct {
	read   chan *sarama.ConsumerMessage
	claims chan int
}

func (c counter) Setup(session sarama.ConsumerGroupSession) error {
	count := 0
	for _, partitions := range session.Claims() {
		count += len(partitions)
	}
	c.claims <- count
	return nil
}

func (c counter) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c counter) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "read")
		c.read <- message
	}
	return nil
}

func join(name, topic string, count int) (first int64, err error) {
	settings := config()
	settings.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
	member, err := sarama.NewConsumerGroup(brokers, name, settings)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	handler := counter{make(chan *sarama.ConsumerMessage, 1000), make(chan int, 10)}
	done := make(chan error, 1)
	go func() { done <- member.Consume(ctx, []string{topic}, handler) }()
	first = -1
	for number := 0; number < count; number++ {
		select {
		case message := <-handler.read:
			if first < 0 {
				first = message.Offset
			}
		case <-time.After(20 * time.Second):
			err = fmt.Errorf("%d of %d records in time", number, count)
			number = count
		}
	}
	cancel()
	return first, report.First(err, <-done, report.Equal("partitions", <-handler.claims, 2), member.Close())
}

func group() error {
	topic, err := newTopic(2)
	if err = report.First(err, fill(topic, 0, config()), fill(topic, 1, config())); err != nil {
		return err
	}
	name := topic + "-group"
	if _, err := join(name, topic, 2*records); err != nil {
		return err
	}
	if err := fill(topic, 1, config()); err != nil {
		return err
	}
	first, err := join(name, topic, records)
	return report.First(err, report.Equal("goes on at", first, records))
}

func createdTopics() error {
	name, keep := prefix+"-created", "60000"
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &keep}}
	err := report.First(admin.CreateTopic(name, detail, true), admin.CreateTopic(name, detail, false))
	again := admin.CreateTopic(name, detail, false)
	if err = report.First(err, report.Equal("again", errors.Is(again, sarama.ErrTopicAlreadyExists), true),
		admin.CreatePartitions(name, 4, nil, false)); err != nil {
		return err
	}
	described, err := admin.DescribeTopics([]string{name})
	if err = report.First(err, report.Equal("partitions", len(described[0].Partitions), 4)); err != nil {
		return err
	}
	listed, err := admin.ListTopics()
	return report.First(err, report.Equal("listed", *listed[name].ConfigEntries["retention.ms"], keep), admin.DeleteTopic(name))
}

func configs() error {
	topic, err := newTopic(1)
	if err != nil {
		return err
	}
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
	value := func() string {
		entries, err := admin.DescribeConfig(resource)
		if err != nil || len(entries) != 1 {
			return fmt.Sprint(err, len(entries))
		}
		return entries[0].Value
	}
	keep := "5000"
	set := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &keep}}
	err = admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false)
	if err = report.First(err, report.Equal("set", value(), keep)); err != nil {
		return err
	}
	// AlterConfigs, the older request, replaces all settings.
	err = admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{}, false)
	return report.First(err, report.Equal("back", value(), "604800000"))
}

func deleteRecords() error {
	topic, err := newTopic(1)
	if err = report.First(err, fill(topic, 0, config()), admin.DeleteRecords(topic, map[int32]int64{0: 20})); err != nil {
		return err
	}
	found, err := read(topic, 0, sarama.OffsetOldest, 1, config())
	return report.First(err, report.Equal("first record", found[0].Offset, 20))
}

func groupsAdmin() error {
	topic, err := newTopic(2)
	if err = report.First(err, fill(topic, 0, config()), fill(topic, 1, config())); err != nil {
		return err
	}
	name := topic + "-admin"
	if _, err := join(name, topic, 2*records); err != nil {
		return err
	}
	listed, err := admin.ListConsumerGroups()
	if err = report.First(err, report.Equal("listed", listed[name], "consumer")); err != nil {
		return err
	}
	described, err := admin.DescribeConsumerGroups([]string{name})
	if err = report.First(err, report.Equal("state", described[0].State, "Empty")); err != nil {
		return err
	}
	err = admin.DeleteConsumerGroupOffset(name, topic, 0)
	offsets, err2 := admin.ListConsumerGroupOffsets(name, map[string][]int32{topic: {0, 1}})
	if err = report.First(err, err2, report.Equal("deleted", offsets.GetBlock(topic, 0).Offset, -1),
		report.Equal("kept", offsets.GetBlock(topic, 1).Offset, records)); err != nil {
		return err
	}
	return admin.DeleteConsumerGroup(name)
}

func logDirs() error {
	topic, err := newTopic(1)
	if err = report.First(err, fill(topic, 0, config())); err != nil {
		return err
	}
	nodes, controller, err := admin.DescribeCluster()
	if err = report.First(err, report.Equal("controller", controller, nodes[0].ID())); err != nil {
		return err
	}
	folders, err := admin.DescribeLogDirs([]int32{nodes[0].ID()})
	if err != nil {
		return err
	}
	for _, folder := range folders[nodes[0].ID()] {
		for _, described := range folder.Topics {
			if described.Topic == topic {
				return report.Equal("size", described.Partitions[0].Size > 0, true)
			}
		}
	}
	return errors.New("the topic is in no folder")
}

func reassignments() error {
	topic, err := newTopic(1)
	if err != nil {
		return err
	}
	moving, err := admin.ListPartitionReassignments(topic, []int32{0})
	return report.First(err, report.Equal("moving", len(moving), 0))
}
