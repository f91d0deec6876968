// Copies one topic into another in transactions with sarama; ../../copiers/launch.py documents arguments and lines.
package main

import (
	"errors"
	"time"

	"compat/copier"

	"github.com/IBM/sarama"
)

const waitS = 120

type reader struct {
	commands *copier.Commands
	client   sarama.Client
	consumer sarama.Consumer
	parts    map[int32]sarama.PartitionConsumer
}

func main() {
	commands := copier.New()
	client, err := sarama.NewClient([]string{commands.Text("bootstrap")}, config(commands))
	if err != nil {
		panic(err)
	}
	producer := newProducer(client)
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		panic(err)
	}
	input := &reader{commands, client, consumer, map[int32]sarama.PartitionConsumer{}}
	for _, index := range commands.Partitions() {
		input.restart(index)
	}
	copier.Print("ready")
	for number := 0; !commands.Stopped(); {
		found := input.poll()
		if len(found) == 0 {
			continue
		}
		committed, err := copyMessages(commands, producer, found, number)
		if err != nil {
			copier.Print("failed %d %v", number, err)
			endIfFenced(err)
			if err := producer.AbortTxn(); err != nil {
				endIfFenced(err)
				panic(err)
			}
		}
		if !committed {
			for _, index := range commands.Partitions() {
				input.restart(index)
			}
		}
		number++
	}
	producer.Close()
	copier.Print("closed")
}

// newProducer waits until the transaction that another producer left is ended: sarama does not.
func newProducer(client sarama.Client) sarama.SyncProducer {
	for end := time.Now().Add(waitS * time.Second); ; time.Sleep(50 * time.Millisecond) {
		producer, err := sarama.NewSyncProducerFromClient(client)
		if err == nil {
			return producer
		}
		if !errors.Is(err, sarama.ErrConcurrentTransactions) || time.Now().After(end) {
			panic(err)
		}
	}
}

func endIfFenced(err error) {
	if errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch) {
		copier.Fenced()
	}
}

func config(commands *copier.Commands) *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.MaxVersion
	settings.Producer.Return.Successes = true
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.Transaction.ID = commands.Text("id")
	settings.Producer.Transaction.Timeout = time.Duration(commands.Number("timeout_ms")) * time.Millisecond
	settings.Producer.Transaction.Retry.Max = 600
	settings.Producer.Transaction.Retry.Backoff = 50 * time.Millisecond
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	settings.Consumer.MaxWaitTime = 100 * time.Millisecond
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Net.MaxOpenRequests = 1
	settings.Metadata.RefreshFrequency = 5 * time.Second
	return settings
}

// restart reads a partition from the committed offset on; it may be pending for a moment.
func (r *reader) restart(index int32) {
	if old := r.parts[index]; old != nil {
		if err := old.Close(); err != nil {
			panic(err)
		}
	}
	part, err := r.consumer.ConsumePartition(r.commands.Text("input"), index, r.committed(index))
	if err != nil {
		panic(err)
	}
	r.parts[index] = part
}

func (r *reader) committed(index int32) int64 {
	topic, group := r.commands.Text("input"), r.commands.Text("group")
	for end := time.Now().Add(waitS * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		coordinator, err := r.client.Coordinator(group)
		if err != nil {
			continue
		}
		request := &sarama.OffsetFetchRequest{Version: 7, ConsumerGroup: group, RequireStable: true}
		request.AddPartition(topic, index)
		answer, err := coordinator.FetchOffset(request)
		if err != nil || answer.Err != sarama.ErrNoError {
			_ = r.client.RefreshCoordinator(group)
			continue
		}
		block := answer.GetBlock(topic, index)
		if block.Err != sarama.ErrNoError {
			continue
		}
		if block.Offset < 0 {
			return sarama.OffsetOldest
		}
		return block.Offset
	}
	panic("the committed offset was not available")
}

// poll returns up to `size` messages.
func (r *reader) poll() []*sarama.ConsumerMessage {
	var found []*sarama.ConsumerMessage
	deadline := time.After(200 * time.Millisecond)
	for _, part := range r.parts {
		for len(found) < r.commands.Number("size") {
			select {
			case message := <-part.Messages():
				found = append(found, message)
				continue
			case <-deadline:
				return found
			case <-time.After(20 * time.Millisecond):
			}
			break
		}
	}
	return found
}

func copyMessages(
	commands *copier.Commands, producer sarama.SyncProducer, found []*sarama.ConsumerMessage, number int,
) (bool, error) {
	fate := commands.Fate()
	commands.Phase("begun", number, fate)
	if err := producer.BeginTxn(); err != nil {
		return false, err
	}
	var copies []*sarama.ProducerMessage
	for _, message := range found {
		value, partition := commands.Copied(string(message.Value), number, fate)
		copies = append(copies, &sarama.ProducerMessage{
			Topic: commands.Text("output"), Partition: partition, Value: sarama.StringEncoder(value)})
	}
	if err := producer.SendMessages(copies); err != nil {
		return false, err
	}
	commands.Phase("produced", number, len(copies))
	for _, message := range found {
		if err := producer.AddMessageToTxn(message, commands.Text("group"), nil); err != nil {
			return false, err
		}
	}
	commands.Phase("offsets", number, "")
	commands.Phase("ending", number, fate)
	var err error
	if fate == "commit" {
		err = producer.CommitTxn()
	} else {
		err = producer.AbortTxn()
	}
	if err != nil {
		return false, err
	}
	commands.Phase("ended", number, fate)
	return fate == "commit", nil
}
